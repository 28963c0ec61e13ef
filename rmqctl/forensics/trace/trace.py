"""Find every record of a message in the stores of a cluster.

The search begins with a key, an id or an offset that the user knows, finds the message's UNIQ_KEY, and then all records
with this UNIQ_KEY in all stores, also along the links in the found records (`links.py`). The index is used first. The
log of a store is scanned if its index cannot be used, or lacks a linked record. All logs are scanned if the indexes
lead to no record of the message.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from msgspec import MsgspecError

from rmqctl.forensics.groups.waiting_timers import left_and_repeated, timers_by_queues
from rmqctl.forensics.trace import links
from rmqctl.forensics.trace.compacted import compacted_stages
from rmqctl.forensics.trace.groups import GroupState, group_states
from rmqctl.forensics.trace.key_search import TOPIC_NAMES, IndexedPlace, KeySearch
from rmqctl.forensics.trace.links import own_stage
from rmqctl.forensics.trace.log_scan import LogScan
from rmqctl.forensics.trace.op_messages import OpMessages
from rmqctl.forensics.trace.queue_records import by_queue, record_at
from rmqctl.forensics.trace.stage import (
    DELIVERED,
    HALF,
    POP_ACK,
    POP_CHECKPOINT,
    ROLLBACK,
    TIMER,
    Record,
    Stage,
    in_order,
    kinds_of,
)
from rmqctl.forensics.trace.verdict import life_verdict
from rmqctl.format.body import pop_message
from rmqctl.format.body.bodies import Bodies
from rmqctl.format.body.pop_message import PopCheckpoint
from rmqctl.format.host import parse_msg_id
from rmqctl.format.message import tags_code
from rmqctl.format.properties import TAGS
from rmqctl.store.config.config_file import OFFSETS_CONFIG
from rmqctl.store.config.store_path import COMPACTION
from rmqctl.store.config.topics import TIMER_TOPIC, TRACE_TOPIC
from rmqctl.store.read.consumers.consumer_groups import ConsumerGroups
from rmqctl.store.read.consumers.pop_checkpoints import is_pop_topic, kv_checkpoints, to_process, unacknowledged
from rmqctl.store.read.consumers.timer_check import has_timer
from rmqctl.store.read.read_only_store import has_key
from rmqctl.store.timer.timer_message import MS_MAX
from rmqctl.store.timer.timer_start import timer_start, to_deliver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rmqctl.format.body.client_trace import ClientRecord
    from rmqctl.format.body.pop_message import PopAck
    from rmqctl.store.read.consumers.pop_checkpoints import Popped
    from rmqctl.store.read.read_only_store import ReadOnlyStore

MESSAGES_MAX = 1000  # of one key; each is followed in all stores
_POP_CODES = frozenset(tags_code({TAGS: tag}) for tag in pop_message.BODIES)


class Question(NamedTuple):
    """The question of the user: one of the first five fields is set."""

    key: str | None = None
    unique_key: str | None = None
    msg_id: str | None = None
    offset: int | None = None  # physical offset
    ids: tuple[str, ...] | None = None  # offsetMsgIds or UNIQ_KEYs
    topic: str | None = None  # limits the search to its messages


class Life(NamedTuple):
    """One message: its stages in order, its groups, and the data from clients."""

    unique_key: str | None  # None: the message has none
    stages: list[Stage]
    groups: list[GroupState]
    client_records: list[tuple[Record, ClientRecord]]
    commit_may_be_lost: bool  # a record is lost between a half message and its rollback
    has_unread_offsets: bool  # a store of the message has its configuration in RocksDB
    is_left_by_timer: bool  # it waits in the timer's queue, and the timer's files do not lead to it

    @property
    def verdict(self) -> str:
        """Say in one line what happened to the message."""
        return life_verdict(
            self.stages,
            self.groups,
            commit_may_be_lost=self.commit_may_be_lost,
            has_unread_offsets=self.has_unread_offsets,
            is_left_by_timer=self.is_left_by_timer,
        )


class _Found(NamedTuple):
    records: list[Record]
    by_unique_key: dict[str | None, list[Record]]
    client_records: list[Record]

    def of(self, unique_key: str) -> list[Record]:
        return self.by_unique_key.get(unique_key, [])


class Trace:
    """The search for a message in several stores, and its result.

    `lives` has the messages that were found: several can have the same key. At most `limit` are traced, and `left_out`
    counts the others. With `by_scan`, the index is not used. If the message is not in the topic of the question,
    `other_topics` names its topics. `missing` are the ids of the question that no record has. Each pair in `unlike` is
    a shown record and its copy in another store, one of them whole and the other not. `problems` says why popped
    messages may be unknown.
    """

    def __init__(
        self,
        stores: Sequence[ReadOnlyStore],
        question: Question,
        *,
        threads: int,
        warm_up: Callable[[], None],
        by_scan: bool = False,
        limit: int = MESSAGES_MAX,
        bodies: Bodies | None = None,
    ) -> None:
        self.stores = stores
        self.bodies = bodies or Bodies()
        self.question = question
        self._limit = limit
        self.scans = [LogScan(store, number, threads=threads, warm_up=warm_up) for number, store in enumerate(stores)]
        self.searches = [KeySearch(scan, by_scan=by_scan) for scan in self.scans]
        self._ops = [OpMessages(scan) for scan in self.scans]
        self._client_records_at: dict[tuple[int, int], bool] = {}
        self._of_searches: dict[int, _Found] = {}
        self._groups: dict[int, ConsumerGroups] = {}
        self._timers: dict[int, set[int]] = {}  # by store, the physical offsets of the messages that its timer leaves
        self._in_kv_store: dict[int, list[PopCheckpoint]] = {}
        self.problems: list[str] = []
        self.left_out = 0
        self.missing: list[str] = []
        self.other_topics: list[str] = []
        self.unlike: list[tuple[Record, Record]] = []
        self.lives = [self._life(unique_key, records) for unique_key, records in self._messages()]
        self.lives += self._compacted() if not self.lives else ()

    @property
    def dangling(self) -> list[tuple[int, IndexedPlace]]:
        """The index entries for the key that point to no record, with the store's number."""
        return [(search.scan.number, place) for search in self.searches for place in search.dangling]

    @property
    def incomplete(self) -> bool:
        """Whether a part of a store could not be read."""
        return any(scan.incomplete for scan in self.scans) or bool(self.problems)

    def _messages(self) -> Iterator[tuple[str | None, list[Record]]]:
        # (UNIQ_KEY, all records) of each message
        found = list(self._seeds())
        seeds = [record for record in found if self._is_wanted(record)]
        if not seeds and self.question.topic is not None:
            self.other_topics = sorted({record.message.topic for record in found if not self._is_told(record)})
        keys = dict.fromkeys(record.unique_key for record in in_order(seeds) if record.unique_key is not None)
        self.left_out = max(len(keys) - self._limit, 0)
        for key in list(keys)[: self._limit]:
            yield key, self._with_links(key, self._with_unique_key(key))
        by_origin: dict[tuple[int, int], list[Record]] = {}
        for record in self._each_once(record for record in seeds if record.unique_key is None):
            origin = min(one.place for one in self._with_links(None, [record]))
            by_origin.setdefault(origin, []).append(record)
        room = max(self._limit - len(keys), 0)
        self.left_out += max(len(by_origin) - room, 0)
        for same in list(by_origin.values())[:room]:
            yield None, self._with_links(None, same)

    def _compacted(self) -> Iterator[Life]:
        for scan in self.scans:
            found: dict[str | None, list[Stage]] = {}
            try:
                for stage in compacted_stages(scan.store, scan.number, self.question.topic, self._is_asked):
                    found.setdefault(stage.record.unique_key, []).append(stage)
            except OSError as error:
                self.problems.append(f"{COMPACTION}: {error.strerror}")
            for key, stages in list(found.items())[: self._limit]:
                states = self._group_states(stages, scan)
                self.missing = [text for text in self.missing if text != key]
                yield Life(key, stages, states, [], False, _has_unread_offsets(scan.store), False)

    def _is_asked(self, record: Record) -> bool:
        key, unique_key, _, _, ids, _ = self.question
        if key is not None:
            return has_key(record.message, key)
        return record.unique_key is not None and record.unique_key in (unique_key, *(ids or ()))

    def _seeds(self) -> Iterator[Record]:
        asked = self.question
        for text in dict.fromkeys(asked.ids or ()):
            found = list(self.with_id(text))
            self.missing += [] if found else [text]
            yield from found
        key = asked.unique_key or asked.key
        if key is not None:
            yield from self._by_key(key)
        if key is not None or asked.ids is not None:
            return
        places = ((scan, *self.asked_place()) for scan in self.scans)
        for scan, offset, msg_id in places:
            record = record_at(scan, offset)
            if record is not None and msg_id in (None, record.message.msg_id):
                yield record

    def with_id(self, text: str) -> Iterator[Record]:
        """Yield the records with an offsetMsgId, otherwise those with a UNIQ_KEY."""
        at_place = list(self.at_id(text))
        yield from at_place or (record for record in self._by_key(text) if record.unique_key == text)

    def at_id(self, text: str) -> Iterator[Record]:
        """Yield each store's record whose offsetMsgId is `text`."""
        try:
            _, offset = parse_msg_id(text)
        except ValueError:
            return
        for scan in self.scans:
            record = record_at(scan, offset)
            if record is not None and record.message.msg_id == text.upper():
                yield record

    def asked_place(self) -> tuple[int, str | None]:
        """Return the physical offset of the question, and its msgId if it has one."""
        if self.question.msg_id is None:
            return self.question.offset or 0, None
        return parse_msg_id(self.question.msg_id)[1], self.question.msg_id.upper()

    def _by_key(self, key: str) -> list[Record]:
        """Look into the indexes; if they lead to no record of a message, scan the logs."""
        found = [record for search in self.searches for record in search.records(key)]
        if all(map(self._is_client_record, found)):
            found = [record for search in self.searches for record in search.by_scan(key)]
        return found

    def _is_wanted(self, record: Record) -> bool:
        asked = self.question
        if self._is_told(record) or (asked.unique_key is not None and record.unique_key != asked.unique_key):
            return False
        topics = {record.message.topic, *map(record.properties.get, TOPIC_NAMES)}
        return asked.topic is None or asked.topic in topics

    def _is_told(self, record: Record) -> bool:
        return self.question.offset is None and self.question.msg_id is None and self._is_client_record(record)

    def _is_client_record(self, record: Record) -> bool:
        """Return whether a record has data that a client recorded about the message.

        The trace topic of clients can be configured, and can differ from RMQ_SYS_TRACE_TOPIC.
        """
        asked = (self.question.key, self.question.unique_key, *(self.question.ids or ()))
        if record.unique_key is not None and record.unique_key in asked:
            return False
        if record.message.topic == TRACE_TOPIC:
            return True
        if record.place not in self._client_records_at:
            from rmqctl.format.body.client_trace import is_trace

            self._client_records_at[record.place] = is_trace(self.bodies.plain(record.message)[0])
        return self._client_records_at[record.place]

    def _with_unique_key(self, unique_key: str) -> list[Record]:
        return self._each_once(
            record for search in self.searches for record in self._found(search, unique_key).of(unique_key)
        )

    def _each_once(self, records: Iterable[Record]) -> list[Record]:
        """Return each record once, without the copies that replication has made.

        A whole copy goes before a damaged one, then that of the first store. Two records without UNIQ_KEY are copies if
        msgId and store time are equal: a msgId is not unique, because brokers of different clusters can have the same
        address.
        """
        found = [(_identity(record), record) for record in records]
        chosen: dict[tuple[str, int], Record] = {}
        for identity, record in found:
            best = chosen.setdefault(identity, record)
            if record.is_whole and not best.is_whole:
                chosen[identity] = record
        pairs = [(chosen[identity], record) for identity, record in found]
        self.unlike += [(one, other) for one, other in pairs if one.is_whole != other.is_whole]
        return list(chosen.values())

    def _found(self, search: KeySearch, unique_key: str) -> _Found:
        records = search.records_of_message(unique_key, self.question.key)
        known = self._of_searches.get(search.scan.number)
        if known is None or known.records is not records:
            known = _Found(records, {}, list(filter(self._is_client_record, records)))
            for record in records:
                known.by_unique_key.setdefault(record.unique_key, []).append(record)
            self._of_searches[search.scan.number] = known
        return known

    def _with_links(self, unique_key: str | None, records: Sequence[Record]) -> list[Record]:
        """Add the records of the message that links or a scan find.

        The log is scanned for the UNIQ_KEY if the index lacks a linked record, or if a delivery is overdue.
        """
        known = {record.place: record for record in records}
        fresh = list(known.values())
        while fresh:
            fresh = [one for one in self._linked(unique_key, fresh, known) if known.setdefault(one.place, one) is one]
        if unique_key is None:
            return list(known.values())
        is_incomplete = len(known) > len(records)
        for search in self.searches:
            of_store = [record for record in known.values() if record.store == search.scan.number]
            if of_store and (is_incomplete or links.has_overdue(of_store, search.scan.store)):
                search.by_scan(self.question.key or unique_key)  # all records of the message have both keys
                known |= {record.place: record for record in self._found(search, unique_key).of(unique_key)}
        return list(known.values())

    def _linked(
        self, unique_key: str | None, fresh: Sequence[Record], known: dict[tuple[int, int], Record]
    ) -> Iterator[Record]:
        for record in fresh:
            for offset in links.linked_offsets(record, self.stores[record.store]):
                found = record_at(self.scans[record.store], offset, indexed=False)
                if found is not None and found.place not in known and found.unique_key == unique_key:
                    yield found

    def _life(self, unique_key: str | None, records: list[Record]) -> Life:
        ordered = in_order(records)
        stages = []
        for kind, record in zip(kinds_of(ordered), ordered, strict=True):
            store = self.stores[record.store]
            stages += [links.own_stage(kind, record, store), *links.light_stages(record, store)]
        for scan in self.scans:
            of_store = [stage for stage in stages if stage.record.store == scan.number]
            halves = [stage for stage in of_store if stage.kind == HALF]
            stages += links.op_stages(halves, ordered, self._ops[scan.number]) if halves else ()
            if of_store and any(map(is_pop_topic, scan.store.queue_topics)):
                stages += pop_stages(of_store, scan)
        of_stages = {stage.record.place: stage.record for stage in stages}
        rank = {record.place: at for at, record in enumerate(in_order(of_stages.values()))}
        stages.sort(key=lambda stage: rank[stage.record.place])
        states = [
            state
            for scan in self.scans
            for state in self._group_states([stage for stage in stages if stage.record.store == scan.number], scan)
        ]
        stores = [self.searches[number].scan.store for number in {stage.record.store for stage in stages}]
        return Life(
            unique_key,
            stages,
            states,
            list(self._client_records(unique_key)),
            self._commit_may_be_lost(stages),
            any(map(_has_unread_offsets, stores)),
            self._is_left_by_timer(stages),
        )

    def _is_left_by_timer(self, stages: list[Stage]) -> bool:
        if any(stage.kind == DELIVERED for stage in stages):
            return False
        last = next((stage.record for stage in reversed(stages) if stage.kind == TIMER and stage.group is None), None)
        store = self.scans[last.store].store if last is not None else None
        if last is None or store is None:
            return False
        if last.store not in self._timers:
            self._timers[last.store] = _left_by_timer(store)
        return last.message.physical_offset in self._timers[last.store]

    def _group_states(self, stages: list[Stage], scan: LogScan) -> list[GroupState]:
        if scan.number not in self._groups:
            self._groups[scan.number] = ConsumerGroups(scan.store)
        return group_states(stages, scan.store, self._groups[scan.number], self._popped(stages, scan))

    def _popped(self, stages: list[Stage], scan: LogScan) -> Popped:
        """Return the popped and unacknowledged messages in a store.

        Of those that are not in kvStore/, they are the ones that `stages` has POP messages of.
        """
        if scan.number not in self._in_kv_store:
            self._in_kv_store[scan.number] = list(kv_checkpoints(scan.store, self.problems))
        pops = {stage.record.message.physical_offset: stage.pop for stage in stages if stage.pop is not None}
        messages = [stage.record.message for stage in stages if stage.pop is not None]
        try:
            left = to_process(scan.store, messages) if messages else []
        except OSError as error:
            self.problems.append(f"config/timercheck: {error.strerror}")
            left = []
        return unacknowledged([*(pops[one.physical_offset] for one in left), *self._in_kv_store[scan.number]])

    def _commit_may_be_lost(self, stages: Sequence[Stage]) -> bool:
        # a broker stores a commit between half and op message: a record lost there may be one
        for op in (stage.record for stage in stages if stage.kind == ROLLBACK):
            search = self.searches[op.store]
            log = search.scan.store.commit_log
            lost = [(place.physical_offset, place.physical_offset + 1) for place in search.dangling]
            lost += [(one.physical_offset, one.end) for one in (*search.scan.damages.values(), *log.queue.anomalies)]
            halves = [stage.record for stage in stages if stage.kind == HALF and stage.record.store == op.store]
            begin = min((half.message.end for half in halves), default=log.min_offset)
            if any(start < op.message.physical_offset and end > begin for start, end in lost):
                return True
        return False

    def _client_records(self, unique_key: str | None) -> Iterator[tuple[Record, ClientRecord]]:
        if unique_key is None:
            return
        found = [
            record
            for search in self.searches
            for record in self._found(search, unique_key).client_records
            if record.unique_key != unique_key
        ]
        if not found:
            return
        from rmqctl.format.body import client_trace

        found = list({record.message.msg_id: record for record in reversed(found)}.values())  # replicas have one msgId
        groups: dict[str | None, str | None] = {}  # old clients say the group only in SubBefore
        for record in in_order(found):
            for recorded in client_trace.decode(self.bodies.plain(record.message)[0]):
                if recorded.msg_id == unique_key:
                    group = recorded.group or groups.get(recorded.request_id)
                    groups[recorded.request_id] = group
                    yield record, recorded._replace(group=group)


def _identity(record: Record) -> tuple[str, int]:
    """Return the values that are the same in all copies of a record."""
    message = record.message
    return message.msg_id, 0 if record.unique_key is not None else message.store_timestamp


def pop_stages(stages: Sequence[Stage], scan: LogScan) -> Iterator[Stage]:
    """Yield the POP checkpoints and acknowledgements for a message in one store.

    They name the topic, the queue and the queue offset of a message (format/body/pop_message.py). A broker stores them
    first in rmq_sys_wheel_timer, and when they are due in rmq_sys_REVIVE_LOG_CLUSTER.
    """
    store = scan.store
    first = min((stage.record.message.physical_offset for stage in stages), default=0)
    texts = {(json.dumps(stage.topic, ensure_ascii=False).encode(), b'"q":%d' % stage.queue_id) for stage in stages}

    def may_be_meant(raw: bytes) -> bool:
        return any(topic in raw and queue in raw for topic, queue in texts)

    keys = (key for topic in sorted(filter(is_pop_topic, store.queue_topics)) for key in store.topic_queues(topic))
    for key in keys:
        for record in by_queue(scan, key, first, may_be_meant, codes=_POP_CODES):
            pop = _pop_of(record, stages)
            if pop is not None and key[0] == TIMER_TOPIC:
                yield own_stage(TIMER, record, store)._replace(pop=pop)
            elif isinstance(pop, PopCheckpoint):
                yield own_stage(POP_CHECKPOINT, record, store)._replace(pop=pop, due=pop.visible_ms)
            elif pop is not None:
                yield own_stage(POP_ACK, record, store)._replace(pop=pop)


def _pop_of(record: Record, stages: Iterable[Stage]) -> PopCheckpoint | PopAck | None:
    """Return the body of a POP message if it names one of `stages`."""
    tag = record.properties.get(TAGS, "")
    if tag not in pop_message.BODIES:
        return None
    try:
        found = pop_message.decode(tag, bytes(record.message.body))
    except MsgspecError:
        return None
    offsets = found.offsets()
    is_meant = any(
        (stage.topic, stage.queue_id) == (found.t, found.q) and stage.queue_offset in offsets for stage in stages
    )
    return found if is_meant else None


def _left_by_timer(store: ReadOnlyStore) -> set[int]:
    # the physical offsets of the messages that wait, and to which nothing leads
    try:
        if not has_timer(store):
            return set()
        waiting = timers_by_queues(store, MS_MAX).waiting()
        never, _ = left_and_repeated(waiting, list(to_deliver(store, timer_start(store))))
        return {timer.physical_offset for timer in never}
    except OSError:  # `verify` says what cannot be read
        return set()


def _has_unread_offsets(store: ReadOnlyStore) -> bool:
    return bool(store.path.config_databases) and store.config(OFFSETS_CONFIG).content is None
