"""Finds what a broker of 5.1 and later does not serve of compacted topics.

The effects were asked of the real 5.5.0, damage by damage. A broker uses neither tagsCode, storeTime and the last two
fields of a unit, nor anything after the last unit or record: these are not compared.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqctl.forensics.finding import Finding
from rmqctl.forensics.restart_reach import DamageTally
from rmqctl.format.message import Damage, Message
from rmqctl.format.properties import KEYS
from rmqctl.logfile.mapped_file_queue import OFFSET_MAX
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.compaction.compaction_log import (
    LOG,
    NO_QUEUE,
    POSITIONS,
    UNITS,
    CompactionQueue,
    compaction_queues,
    records,
    slots,
    usual_size,
)
from rmqctl.store.config.config_file import TOPICS_CONFIG, compaction_topics, load_config, table
from rmqctl.store.config.store_path import COMPACTION
from rmqctl.store.read.commit_log import message_of
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

FILES = "compaction-files"  # the code of a Finding
NOT_LOADED = "compaction-not-loaded"  # the code of a Finding
RECORD = "compaction-record"  # the code of a Finding
MISSING = "compaction-missing"  # the code of a Finding
BEYOND = "compaction-beyond-queue"  # the code of a Finding
POSITION = "compaction-position"  # the code of a Finding


@dataclass
class _Content:
    """The content of a queue in compaction/, by queue offsets."""

    offsets: set[int] = field(default_factory=set)
    end: int = 0  # after the last unit


def audit_compaction(store: ReadOnlyStore, missed: Mapping[QueueKey, int]) -> Iterator[Finding]:
    """Yield the findings on compaction/.

    `missed` has, for each queue, how many messages of the log have no unit. Raises OSError.
    """
    if not store.conf.compaction_enabled:
        return
    topics = compaction_topics(store.config(TOPICS_CONFIG))
    queues = compaction_queues(store)
    refilled_from = _refilled_from(store) if topics or queues else OFFSET_MAX
    log_size = usual_size([file for queue in queues for file in queue.log.values()])
    units_size = usual_size([file for queue in queues for file in queue.units.values()])
    held: dict[QueueKey, _Content] = {}
    unloaded = set()
    for queue in queues:
        faults = list(_faults_of_files(store, queue, log_size, units_size))
        key = queue.topic, queue.queue_id
        if faults:
            unloaded.add(key)
            yield from faults
        else:
            held[key] = _Content()
            yield from _faults_of_content(store, queue, held[key], refilled_from)
        queue.close()
    yield from _faults_of_positions(store, held)
    for key in sorted({*store.queues, *held} - unloaded):
        if key[0] in topics and not store.is_unread(*key):
            yield from _against_log(store, key, held.get(key, _Content()), refilled_from, missed.get(key, 0))


def _refilled_from(store: ReadOnlyStore) -> int:
    """Return the physical offset from which on the next start copies again."""
    if not store.path.has_abort:
        return OFFSET_MAX
    reach = DamageTally().reach(store)
    return reach.scans_from if reach is not None else 0


def _faults_of_files(store: ReadOnlyStore, queue: CompactionQueue, log_size: int, units_size: int) -> Iterator[Finding]:
    """Yield why a broker does not start, or does not load the queue."""
    for entry in queue.others:
        is_taken = queue.queue_id == NO_QUEUE or entry.size in (log_size, units_size)
        what = f"a {entry.kind.value} that is not named as a broker names it"
        yield _finding(FILES if is_taken else NOT_LOADED, queue, store.storage.display(entry.path), what)
    for files, size in ((queue.log, log_size), (queue.units, units_size)):
        if files and not files[max(files)].size:
            del files[max(files)]  # as a broker does: the empty file is the last
        for file in files.values():
            if file.size != size or log_size % (units_size or 1):  # a broker makes the one a multiple of the other
                what = f"the file has {file.size} bytes; in {LOG}, {log_size} are usual, in {UNITS} {units_size}"
                yield _finding(NOT_LOADED, queue, file.name, what)
    name = f"{queue.topic}/{queue.queue_id}"
    for part, others in ((LOG, queue.units), (UNITS, queue.log)):
        if others and store.storage.entry(store.path.root / part / name).kind is Kind.MISSING:
            yield _finding(NOT_LOADED, queue, f"{part}/{name}", "the folder is missing, and its files with it")
            return
    last = max(queue.units, default="~")  # the start deletes files of the log after the last one of the units
    for file in [queue.log[one] for one in queue.log if one not in queue.units and one < last]:
        yield _finding(FILES, queue, file.name, f"{UNITS} has no file of this name")
    for file in [queue.units[one] for one in queue.units if one not in queue.log]:
        yield _finding(FILES, queue, file.name, f"{LOG} has no file of this name")


def _finding(
    code: str, queue: CompactionQueue, path: str, why: str, *, count: int = 1, at: int | None = None
) -> Finding:
    """Return a finding; `at` is a position in the file."""
    return Finding(code, path, None, why, file_offset=at, topic=queue.topic, queue_id=queue.queue_id, count=count)


def _faults_of_content(
    store: ReadOnlyStore, queue: CompactionQueue, content: _Content, refilled_from: int
) -> Iterator[Finding]:
    def is_refilled(queue_offset: int) -> bool:
        unit = store.unit(queue.topic, queue.queue_id, queue_offset)
        return unit is not None and unit.physical_offset >= refilled_from

    for name, log in queue.log.items():
        found: dict[int, tuple[int, int]] = {}  # queue offset and size of each record, by its place
        broken: list[Damage] = []
        for item in records(log):
            message = message_of(item)
            if message is not None:
                found[item.physical_offset] = message.queue_offset, message.size
            if isinstance(item, Damage):
                broken.append(item)
                why = item.detail
            elif (item.topic, item.queue_id) != (queue.topic, queue.queue_id):
                why = f"the record is of {item.topic}/{item.queue_id}"
            else:
                continue
            yield _finding(RECORD, queue, log.name, why, at=item.physical_offset - log.file_from_offset)
        content.offsets.update(offset for offset, _ in found.values())
        units = queue.units.get(name)
        if units is None:
            what = f"{UNITS} has no file of this name: the next start deletes this one"
            yield _finding(RECORD, queue, log.name, what, count=max(len(found), 1))
        else:
            yield from _faults_of_units(queue, units, found, broken, content, is_refilled)


def _faults_of_units(
    queue: CompactionQueue,
    file: MappedFile,
    found: Mapping[int, tuple[int, int]],
    broken: list[Damage],
    content: _Content,
    is_refilled: Callable[[int], bool],
) -> Iterator[Finding]:
    """Yield a finding if units do not lead to the records of their file.

    Records after the last unit are left out where `is_refilled` says that the next start copies them again.
    """
    why = ""
    good: set[int] = set()
    before = used = -1
    for slot, unit in slots(file):
        used += 1
        content.offsets.add(unit.queue_offset)
        record = found.get(unit.physical_offset)
        behind = bisect_right(broken, unit.physical_offset, key=lambda damage: damage.physical_offset)
        is_broken = behind > 0 and unit.physical_offset < broken[behind - 1].end
        fault = ""
        if slot != used:
            fault = "a unit is not in use, and a broker reads none behind it"
        elif record is None and not is_broken:
            fault = f"the unit at slot {slot} leads to {unit.physical_offset}, where no record begins"
        elif (record is not None and record != (unit.queue_offset, unit.size)) or unit.batch_size != 1:
            fault = f"the unit at slot {slot} does not have the queue offset and the size of its record"
        elif unit.queue_offset <= before:
            fault = f"the unit at slot {slot} has no greater queue offset than the one before"
        else:
            good.add(unit.physical_offset)
            content.end = max(content.end, unit.queue_offset + 1)
        why = why or fault
        before = unit.queue_offset
    last = max(good, default=-1)
    lost = [at for at in found if at not in good and not (at > last and is_refilled(found[at][0]))]
    if why or lost:
        why = why or f"no unit leads to the record at {lost[0]}"
        yield _finding(RECORD, queue, file.name, why, count=max(len(lost), 1))


def _faults_of_positions(store: ReadOnlyStore, held: Mapping[QueueKey, _Content]) -> Iterator[Finding]:
    path = f"{COMPACTION}/{POSITIONS}"
    config = load_config(store.storage, store.path.part(COMPACTION), POSITIONS)
    if config.problem:
        yield Finding(POSITION, path, None, config.problem)
    positions = table(config, "queueOffsetMap")
    for (topic, queue_id), content in held.items():
        position = positions.get(f"{topic}_{queue_id}")
        if isinstance(position, int) and position >= content.end:
            what = f"the queue is compacted up to {position}, and compactionCq ends at {content.end}"
            yield Finding(POSITION, path, None, what, topic=topic, queue_id=queue_id)


def _against_log(
    store: ReadOnlyStore, key: QueueKey, content: _Content, refilled_from: int, missed: int
) -> Iterator[Finding]:
    """Compare a queue with the messages that the log has of it."""
    queue, log = store.queue(*key), store.commit_log
    path = f"{LOG}/{key[0]}/{key[1]}"
    end = (queue.max_offset if queue is not None else 0) + missed
    if content.end > end:
        what = f"compactionCq ends at {content.end}, and the queue at {end}"
        yield Finding(BEYOND, path, None, what, topic=key[0], queue_id=key[1], count=content.end - end)
    newest: dict[str, Message] = {}
    for unit in queue.units(*queue.min_and_max(log.min_offset)) if queue is not None else ():
        message = log.at(unit.physical_offset)
        if isinstance(message, Message) and message.properties.get(KEYS, "").strip():
            newest[message.properties[KEYS]] = message._replace(body=message.body[:1])
    missing = [
        message
        for message in newest.values()
        if message.body and message.queue_offset not in content.offsets
        and not (message.queue_offset >= content.end and message.physical_offset >= refilled_from)
    ]  # fmt: skip
    if missing:
        first = min(missing, key=lambda message: message.queue_offset)
        what = f"it lacks the newest message of {counted(len(missing), 'key')}, the first at queue offset "
        yield Finding(
            MISSING, path, first.physical_offset, f"{what}{first.queue_offset}",
            topic=key[0], queue_id=key[1], queue_offset=first.queue_offset, count=len(missing),
        )  # fmt: skip
