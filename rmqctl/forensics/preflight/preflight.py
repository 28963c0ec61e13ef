"""What a start of another broker makes of a store.

It is a broker of another version, or with another broker.conf. The start is the one that `rmqctl.store.recovery`
simulates, on the store as that broker sees it (`view`). What the start leaves unread is counted: messages that a
consumer can get now and not afterwards, and parts that the version does not know.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rmqctl.forensics.audit.compaction_audit import FILES as REFUSED
from rmqctl.forensics.audit.compaction_audit import audit_compaction
from rmqctl.forensics.groups.waiting_timers import timers_by_queues
from rmqctl.forensics.preflight.option_names import is_known, versions_of
from rmqctl.forensics.preflight.view import seen_by
from rmqctl.format.cq_unit import CQ_UNIT
from rmqctl.format.message import Message
from rmqctl.format.profile import profile_of, start_rules
from rmqctl.format.properties import CRC32
from rmqctl.store.compaction.compaction_log import compaction_queues, records
from rmqctl.store.config.config_file import QUEUE_MAPPINGS_CONFIG, table
from rmqctl.store.config.store_path import BATCHCONSUMEQUEUE, COMPACTION, CONFIG, ROCKSDB_FOLDER, Layout
from rmqctl.store.config.topics import REVIVE_PREFIX, TIMER_TOPIC
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.dispatch.queue_offset_ranges import QueueSpans
from rmqctl.store.read.consume_queue import BatchConsumeQueue
from rmqctl.store.read.consumers.consumer_offsets import LMQ_CONSUMER_OFFSET, consumer_offsets
from rmqctl.store.read.consumers.pop_checkpoints import kv_checkpoints, popped_messages
from rmqctl.store.read.consumers.timer_check import has_timer
from rmqctl.store.read.file_scan import RecordRun
from rmqctl.store.read.known_topics import KnownTopics
from rmqctl.store.recovery.dledger_start import DLedgerRestart
from rmqctl.store.recovery.replay import KnownRecords
from rmqctl.store.recovery.simulation import RestartSimulation, can_simulate, can_simulate_group
from rmqctl.store.rocksdb.message_rows import half_rows
from rmqctl.store.serve.static_queues import static_queues
from rmqctl.store.timer.timer_start import refused_file
from rmqctl.text import counted, quoted, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rmqctl.store.config.broker_conf import BrokerConf
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore
    from rmqctl.store.recovery.simulation import RestartedQueue, RestartOutcome

NAMED = 5
TIERED_CONFIG, PLUG_IN = "tieredStoreMetadata.json", "messageStorePlugIn"


class Problem(NamedTuple):
    """What the broker drops, does not read, or does not know."""

    code: str  # for `explain`
    summary: str
    number: int = 0  # of messages, offsets or names
    line: int = 0  # of broker.conf, from 1


@dataclass(frozen=True)
class Preflight:
    """What the broker makes of the store."""

    version: str
    restart: RestartOutcome
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]  # what differs, and harms nobody

    @property
    def starts(self) -> bool | str:
        """Return whether the broker starts; "hangs" if its start never ends."""
        return "hangs" if self.restart.hangs is not None else self.restart.refused is None

    def to_json(self) -> dict[str, Any]:
        """Return the document without the problems, whose `next` the verb adds."""
        lost = self.restart.lost
        return {
            "brokerVersion": self.version,
            "starts": self.starts,
            "lost": {"records": lost.records, "bytes": lost.bytes},
            "notes": list(self.notes),
        }


class _Scan:
    """One pass over the log: the start, and what the version takes for no record."""

    def __init__(self, seen: ReadOnlyStore, version: str) -> None:
        self.builder = DispatchRequestBuilder(with_keys=False)
        self._known = KnownRecords(self.builder, start_rules(version, seen.conf.start))
        simulation = DLedgerRestart if can_simulate_group(seen) else RestartSimulation
        self._start = simulation(seen, profile_of(version), self.builder)
        self.spans = QueueSpans(self.builder, lambda _: None)  # no LMQ: whether they are filled is a setting
        self.unknown: dict[str, int] = {}  # by topic, the records that the broker takes for none
        self.last_ms = 0  # newest store time

    def run(self, seen: ReadOnlyStore, threads: int) -> RestartOutcome:
        for item in self.builder.scan(seen.commit_log, threads=threads):
            self._start.hear(item)
            if isinstance(item, RecordRun) and len(rows := item.result.messages):
                self.spans.on_messages(rows)
                self.last_ms = max(self.last_ms, int(rows["store_timestamp"].max()))
                for at in self._known.foreign(rows).nonzero()[0]:
                    topic = self.builder.keys[rows["queue"][at]][0]
                    self.unknown[topic] = self.unknown.get(topic, 0) + 1
        return self._start.finish()


def preflight(
    store: ReadOnlyStore,
    conf: BrokerConf,
    names: Mapping[str, int],
    version: str,
    threads: int,
    *,
    source: ReadOnlyStore | None = None,
) -> Preflight:
    """Return what a broker of `version`, one of VERSIONS, makes of the store.

    `conf` is its broker.conf, or BrokerConf() for the settings that fit the store; `names` are the names in it with
    their lines. `source` is what the store was written from, if it was: its queues tell what consumers get now. Raises
    OSError.
    """
    seen, hidden = seen_by(store, conf, version)
    scan = _Scan(seen, version)
    restart = scan.run(seen, threads)
    restart = replace(restart, refused=restart.refused or _refused_part(seen, version))
    gets_ready = restart.problem is None
    problems = [
        *_of_start(restart, version),
        *_of_records(scan.unknown, version),
        *(_of_queues(store, source or store, restart, scan.spans, hidden, version) if gets_ready else ()),
        *_of_parts(store, names, version, scan.last_ms),
        *_of_config(store, hidden, version),
        *_of_names(names, version),
    ]
    return Preflight(version, restart, tuple(problems), tuple(_notes(seen, restart, version)))


def _refused_part(seen: ReadOnlyStore, version: str) -> str | None:
    """Return why the broker does not start although it loads log and queues."""
    if is_known("timerWheelEnable", version) and seen.conf.timer_enabled:
        path, why = refused_file(seen)
        if why:
            return f"{path}: {why}"
    if not (is_known("enableCompaction", version) and seen.conf.compaction_enabled):
        return None
    # seen with 5.4.0 and 5.5.0; 5.3.3 starts
    in_rocksdb = seen.path.layout is Layout.ROCKSDB and is_known("combineCQPreferCQType", version)
    if in_rocksdb and compaction_queues(seen):
        what = f"with queues in RocksDB, {version} does not load it"
        return f"{COMPACTION}: {what}; move it away: the start makes it anew"
    findings = audit_compaction(seen, {})
    return next((f"{found.path}: {found.detail}" for found in findings if found.code == REFUSED), None)


def _of_start(restart: RestartOutcome, version: str) -> Iterator[Problem]:
    if restart.refused is not None:
        yield Problem("target-refuses", f"{version} does not start: {restart.refused}")
    elif restart.hangs is not None:
        yield Problem("target-hangs", f"{version} never gets ready: {restart.hangs}")
    elif restart.lost.records:
        why = f": {restart.end.why}" if restart.end is not None and restart.end.why else ""
        what = f"{counted(restart.lost.records, 'message')} ({counted(restart.lost.bytes, 'byte')})"
        yield Problem(
            "target-loses", f"the log ends at {restart.max_phy_offset}, {what} lost{why}", restart.lost.records
        )


def _of_records(unknown: Mapping[str, int], version: str) -> Iterator[Problem]:
    if count := sum(unknown.values()):
        what = f"{counted(count, 'message')} of {_some(unknown)} that {version} takes for no record"
        why = "topic longer than 127 bytes, IPv6 host, or a DELAY that is no number"
        yield Problem("records-unknown", f"{what} ({why})", count)


def _of_queues(
    store: ReadOnlyStore,
    source: ReadOnlyStore,
    restart: RestartOutcome,
    spans: QueueSpans,
    hidden: frozenset[str],
    version: str,
) -> Iterator[Problem]:
    """Compare what the start serves with the log, and with `source`'s queues now."""
    after = {(queue.topic, queue.queue_id): queue for queue in restart.queues}
    knows_batches = start_rules(version).has_batch_queues
    unread: dict[str, dict[QueueKey, int]] = {}
    known = KnownTopics(store)
    in_log = {key for key in spans.counts() if key[0] in known} if restart.fills_queues else set()
    for key in source.queues.keys() | in_log:
        queue, low, high = source.queues.get(key), 0, 0
        if queue is not None:
            low, high = queue.min_and_max(source.commit_log.min_offset)
            queue.queue.close()
        is_batch = isinstance(queue, BatchConsumeQueue)
        is_read = (knows_batches or not is_batch) and restart.start_file is not None  # else there is no log
        found = after.get(key) if is_read else None
        lacking = high - low - _held(found, low, high)
        if key in in_log:
            first, end, count = spans.of(key)
            lacking = max(lacking, min(count, end - first) - _held(found, first, end))
        if lacking > 0:
            code = "batch-queues-unread" if is_batch and not knows_batches else "queues-unread"
            unread.setdefault(code, {})[key] = lacking
    for code, queues in unread.items():
        count, where = sum(queues.values()), _some(f"{topic}/{number}" for topic, number in sorted(queues))
        what = f"{counted(count, 'message')} of {where}"
        if code == "batch-queues-unread":
            yield Problem("batch-queues-unread", f"{version} does not read {what}, in {BATCHCONSUMEQUEUE}/", count)
        elif log := _hidden_log(store, hidden):
            yield Problem("dledger-unread", f"the broker does not read the DLedger log in {log}/: {what} unread", count)
        elif store.path.layout is Layout.ROCKSDB and ROCKSDB_FOLDER in hidden:
            yield Problem("queue-database-unread", f"the broker does not read queues in RocksDB: {what} unread", count)
        else:
            yield Problem("queues-unread", f"{what} in no queue after the start", count)


def _held(found: RestartedQueue | None, low: int, high: int) -> int:
    """Count what a queue has of a range after the start, or is known to lose."""
    if found is None:
        return 0
    return max(min(found.max_offset, high) - max(found.min_offset, low), 0) - found.missing + found.lost


def _hidden_log(store: ReadOnlyStore, hidden: frozenset[str]) -> str:
    folder = "" if store.path.entries_in is None else store.path.entries_in.parent.name
    return folder if folder in hidden else ""


def _of_parts(store: ReadOnlyStore, names: Mapping[str, int], version: str, last_ms: int) -> Iterator[Problem]:
    problems: list[str] = []
    if not is_known("timerWheelEnable", version):
        waiting = timers_by_queues(store, last_ms).waiting() if has_timer(store) else []
        timers = [timer for timer in waiting if not timer.topic.startswith(REVIVE_PREFIX)]
        if timers:
            what = f"{counted(len(timers), 'timer message')} wait in {TIMER_TOPIC}"
            yield Problem("timers-unread", f"{what}, and {version} never delivers them", len(timers))
        popped = sum(len(one) for groups in popped_messages(store, problems).values() for one in groups.values())
        if popped:
            what = f"{counted(popped, 'popped message')} not acknowledged: {version} has no POP"
            yield Problem("pop-unread", f"{what}, and never delivers them again", popped)
        if static := sorted({topic for topic, _ in static_queues(store)}):
            what = f"{version} does not read {CONFIG}/{QUEUE_MAPPINGS_CONFIG}"
            yield Problem("static-topics-unread", f"static topics {_some(static)}: {what}", len(static))
    elif not is_known("popConsumerKVServiceEnable", version) and (rows := len(list(kv_checkpoints(store, problems)))):
        what = f"{counted(rows, 'popped message')} in kvStore/"
        yield Problem("pop-unread", f"{what}, which {version} does not read", rows)
    database = store.path.message_database if not is_known("transRocksDBEnable", version) else None
    if database is not None and (halves := len(list(half_rows(database)))):
        what = f"{counted(halves, 'half message')} in rocksdbstore/, which {version} does not read"
        yield Problem("half-messages-unread", f"{what}: no producer is asked to commit them", halves)
    if not is_known("enableCompaction", version) and (only := _only_compacted(store)):
        yield Problem("compaction-unread", f"{counted(only, 'message')} in compaction/ alone", only)
    reads_tier = is_known("tieredStorageLevel", version) and (PLUG_IN in names or not names)
    if not reads_tier and (only := _only_tiered(store)):
        how = f"reads only with {PLUG_IN}" if is_known("tieredStorageLevel", version) else "does not read"
        what = f"{counted(only, 'message')} in tiered storage alone, which {version} {how}"
        yield Problem("tiered-unread", what, only)


def _only_compacted(store: ReadOnlyStore) -> int:
    """Count the messages of compacted topics that the commit log no longer has."""
    count, log = 0, store.commit_log
    for compacted in compaction_queues(store):
        queue = store.queue(compacted.topic, compacted.queue_id)
        first = queue.min_and_max(log.min_offset)[0] if queue is not None else None
        for file in compacted.log.values():
            found = (item.queue_offset for item in records(file) if isinstance(item, Message))
            count += sum(first is None or offset < first for offset in found)
        compacted.close()
    return count


class _Segment(msgspec.Struct, rename="camel"):
    """A file of a queue in tiered storage; both numbers are bytes of 20-byte units."""

    base_offset: int
    size: int


def _only_tiered(store: ReadOnlyStore) -> int:
    """Count the messages in tiered storage that the log no longer has."""
    try:
        found = table(store.config(TIERED_CONFIG), "consumeQueueFileSegmentTable")
        tiered = msgspec.convert(found, dict[str, dict[int, _Segment]], strict=False)  # by BROKER/TOPIC/QUEUEID
    except msgspec.ValidationError:
        return 0
    queues = {f"{topic}/{queue_id}": queue for (topic, queue_id), queue in store.queues.items()}
    count = 0
    for path, segments in tiered.items():
        queue = queues.get(path.partition("/")[2])
        begin = min((one.base_offset for one in segments.values()), default=0) // CQ_UNIT.size
        if queue is not None:
            end = queue.min_and_max(store.commit_log.min_offset)[0]
            queue.queue.close()
        else:
            end = max((one.base_offset + one.size for one in segments.values()), default=0) // CQ_UNIT.size
        count += max(end - begin, 0)
    return count


def _of_config(store: ReadOnlyStore, hidden: frozenset[str], version: str) -> Iterator[Problem]:
    unread = [name for name in store.path.config_databases if f"{CONFIG}/{name}" in hidden]
    offsets = consumer_offsets(store) if unread or not is_known("enableLmq", version) else []
    if unread:
        what = f"topics, groups and {counted(len(offsets), 'offset')} are in {CONFIG}/{unread[0]}"
        yield Problem("config-database-unread", f"{what}, which {version} does not read", len(offsets))
    light = [one for one in offsets if one.source == LMQ_CONSUMER_OFFSET]
    if light and not unread:
        what = f"{counted(len(light), 'offset')} of {_some(sorted({one.owner for one in light}))}"
        yield Problem("offsets-unread", f"{version} does not read {what} in {LMQ_CONSUMER_OFFSET}", len(light))


def _of_names(names: Mapping[str, int], version: str) -> Iterator[Problem]:
    for name, line in names.items():
        if not is_known(name, version):
            known = versions_of(name)
            what = f"known to {known}" if known else "no version from 4.1.0 on knows it"
            summary = f"line {line} of broker.conf: {version} ignores {quoted(name)} ({what})"
            yield Problem("option-unknown", summary, 1, line)


def _notes(seen: ReadOnlyStore, restart: RestartOutcome, version: str) -> Iterator[str]:
    profile = profile_of(version)
    if not can_simulate(seen, profile):
        yield f"how {version} starts with queues in RocksDB was not compared with a real broker"
    if profile.indexes_tags and not seen.tags_are_indexed and seen.index.files:
        yield f"look-ups by tag find no older message in {version}, until `rebuild index --profile 5.4`"
    elif seen.tags_are_indexed and not profile.indexes_tags:
        yield f"the index has entries for tags, which {version} neither reads nor writes"
    first = next((item for item in seen.commit_log.scan() if isinstance(item, Message)), None)
    if first is not None and CRC32 in first.properties and not is_known("enabledAppendPropCRC", version):
        yield f"{version} does not check the checksum of properties, and consumers see it as a property, {CRC32}"
    if dropped := restart.dropped_index_files:
        where = PurePath(dropped[0]).name
        yield f"the start deletes {counted(len(dropped), 'index file')}, from {where} on, and indexes what it scans"


def _some(names: Iterable[str]) -> str:
    every = list(names)
    shown = (quoted(shortened(name)) for name in every[:NAMED])
    return ", ".join(shown) + (f" and {len(every) - NAMED} more" if len(every) > NAMED else "")
