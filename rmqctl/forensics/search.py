"""Search for one or a few messages, by index and queues or in the whole log."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.errors import READ_ALL_HINT, BadRequest, Unreadable
from rmqctl.format import properties
from rmqctl.format.body.bodies import NO_BODIES, Bodies
from rmqctl.format.body.message_row import damage_row, message_row
from rmqctl.format.host import parse_msg_id
from rmqctl.format.message import Blank, Damage, Message
from rmqctl.format.sys_flag import TransactionType, transaction_type
from rmqctl.format.timestamp import rfc3339
from rmqctl.store.config.topics import is_copy_topic
from rmqctl.store.dispatch.dispatch_rules import queue_destinations
from rmqctl.store.read.commit_log import SMALL_SEGMENT_SIZE, UNREADABLE, ScanSummary, message_of
from rmqctl.store.read.file_scan import RecordRun, ScanItem
from rmqctl.store.read.read_only_store import has_key
from rmqctl.store.read.topic_names import unknown_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.forensics.message_filter import Filter
    from rmqctl.format.cq_unit import CqUnit
    from rmqctl.logfile.column_reader import Columns
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.index.index_service import IndexFile
    from rmqctl.store.read.read_only_store import ReadOnlyStore

WALK_RECORDS_MAX = 2000  # a longer part without keys is not walked to its end


class Question(NamedTuple):
    """The conditions of a search; the command line checks their combination."""

    topic: str | None = None
    key: str | None = None
    ids: tuple[str, ...] | None = None  # offsetMsgIds or UNIQ_KEYs
    msg_id: str | None = None
    unique_key: str | None = None
    queue_id: int | None = None
    offset: int | None = None  # units
    at: int | None = None  # ms since 1970


class Search:
    """One search for messages, by one set of conditions.

    `findings` has the damage on the way, `remarks` notes for the user.
    """

    def __init__(
        self, store: ReadOnlyStore, question: Question, *, bodies: Bodies = NO_BODIES, threads: int = 1
    ) -> None:
        self.findings: list[Damage] = []
        self.remarks: list[str] = []
        self._store = store
        self._question = question
        self._bodies = bodies
        self._threads = threads

    @property
    def incomplete(self) -> bool:
        """Whether a part of the store could not be read."""
        return any(damage.code in UNREADABLE for damage in self.findings)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Return the matching messages in log order, found by msgId, index or queue.

        Raises BadRequest if the queue does not exist, and Unreadable if it cannot be read or if there is no index.
        """
        asked = self._question
        if asked.ids is not None:
            return self._by_ids(asked.ids, by_scan=False)
        if asked.msg_id is not None:
            return self._by_msg_id(asked.msg_id)
        if asked.unique_key is not None or asked.key is not None:
            return self._by_key(self._indexed())
        key = (asked.topic or "", asked.queue_id or 0)
        queue = self._store.queue(*key)
        if queue is None and self._store.is_unread(*key):
            raise Unreadable(
                "the folder of the queue, or a folder above it, could not be read",
                path=f"{key[0]}/{key[1]}",
                hint=READ_ALL_HINT,
            )
        if queue is None:
            hint = "`rmqctl queue STORE` lists them; --scan reads the log instead"
            what = f"there is no queue {key[0]}/{key[1]} that can be read"
            unknown = unknown_topic(self._store, key[0])
            raise BadRequest(f"{what}: {unknown}" if unknown else what, hint=hint)
        return self._by_queue(queue)

    def warm_up(self) -> None:
        """Compile or load the kernels that `by_scan` needs."""
        from rmqctl.kernels import filter_scan, scan
        from rmqctl.kernels.warm_up import warm_up

        warm_up(scan, filter_scan, size=self._store.commit_log.queue.allocated)

    def by_scan(self) -> Iterator[dict[str, Any]]:
        """Yield the matching messages in log order, also those with damaged content.

        The whole log is scanned.
        """
        if self._question.ids is not None:
            yield from self._by_ids(self._question.ids, by_scan=True)
            return
        self.warm_up()
        summary = ScanSummary()
        nearest: ScanItem | None = None
        for item in self._store.commit_log.with_shifted(self._scanned(summary), self._note):
            if isinstance(item, Damage) and (item.message is None or not self._matches(item.message)):
                continue
            if self._question.at is None:
                yield self._row(item)
            elif nearest is None:
                nearest = item
        if nearest is not None:
            yield self._row(nearest)
        read = f"scanned {summary.bytes_scanned} bytes: {summary.messages} messages, ok up to {summary.ok_up_to}"
        self.remarks.append(f"{read}; stopped at {summary.end}: {summary.stopped}")

    def _scanned(self, summary: ScanSummary) -> Iterator[ScanItem]:
        wanted = self._filter()

        def take(columns: Columns) -> list[Message]:
            messages = (columns.message(row) for row in wanted.rows(columns).tolist())
            matching = (message for message in messages if self._matches(message))
            return list(matching if self._question.at is None else islice(matching, 1))

        for item in self._store.commit_log.scan_columns(
            summary, take, threads=self._threads, segment_size=SMALL_SEGMENT_SIZE
        ):
            if isinstance(item, RecordRun):
                yield from item.result
            elif (isinstance(item, Message) and self._matches(item)) or isinstance(item, Damage):
                yield item

    def _filter(self) -> Filter:
        # a filter on columns that keeps all wanted messages, and maybe a few others
        from rmqctl.forensics.message_filter import Filter

        asked = self._question
        if asked.msg_id is not None:
            _, offset = parse_msg_id(asked.msg_id)
            return Filter(from_offset=offset, to_offset=offset + 1)
        if asked.queue_id is not None and (asked.topic or "").startswith(properties.LMQ_PREFIX):
            return Filter(since=asked.at)  # the messages of a light queue are those of other topics
        topics = frozenset() if asked.topic is None else frozenset([asked.topic])
        key = asked.unique_key or asked.key
        return Filter(topics=topics, queue_id=asked.queue_id, queue_offset=asked.offset, key=key, since=asked.at)

    def _matches(self, message: Message) -> bool:
        asked = self._question
        if asked.msg_id is not None:
            return message.msg_id == asked.msg_id.upper()
        if asked.queue_id is not None:
            offset = None if asked.at is not None else asked.offset
            is_late = asked.at is None or message.store_timestamp >= asked.at
            return is_late and any(
                (place.topic, place.queue_id) == (asked.topic, asked.queue_id) and offset in (None, place.queue_offset)
                for place in queue_destinations(message)
            )
        if asked.topic is not None and message.topic != asked.topic:
            return False
        if asked.unique_key is not None:
            return message.properties.get(properties.UNIQ_KEY) == asked.unique_key
        return asked.key is None or has_key(message, asked.key)

    def _by_ids(self, ids: tuple[str, ...], *, by_scan: bool) -> Iterator[dict[str, Any]]:
        shown: set[int] = set()
        for text in dict.fromkeys(ids):
            rows = list(self._at_id(text))
            if not rows:
                asked = Question(self._question.topic, unique_key=text)
                one = Search(self._store, asked, bodies=self._bodies, threads=self._threads)
                rows = list(one.by_scan() if by_scan else one.rows())
                self.findings += [damage for damage in one.findings if damage not in self.findings]
                self.remarks += [remark for remark in one.remarks if remark not in self.remarks]
            if not rows:
                self.remarks.append(f"no message has the id {text}, neither as offsetMsgId nor as UNIQ_KEY")
            yield from (row for row in rows if row["physicalOffset"] not in shown)
            shown.update(row["physicalOffset"] for row in rows)

    def _at_id(self, text: str) -> Iterator[dict[str, Any]]:
        try:
            _, offset = parse_msg_id(text)
        except ValueError:
            return
        found = self._store.commit_log.at(offset)
        message = message_of(found)
        if message is not None and message.msg_id == text.upper() and self._question.topic in (None, message.topic):
            yield from self._found(found)

    def _with_unique_key(self, text: str) -> int | None:
        topics = sorted({topic for topic, _ in self._store.queues})
        messages = (message_of(found) for topic in topics for found in self._store.by_key(topic, text))
        places = (one.physical_offset for one in messages if one and one.properties.get(properties.UNIQ_KEY) == text)
        return min(places, default=None)

    def _by_msg_id(self, msg_id: str) -> Iterator[dict[str, Any]]:
        _, offset = parse_msg_id(msg_id)
        found = self._store.commit_log.at(offset)
        message = message_of(found)
        is_there = message is not None and message.msg_id == msg_id.upper()
        place = None if is_there else self._with_unique_key(msg_id)
        if place is not None:
            what = f"{msg_id} is no offsetMsgId, but the UNIQ_KEY of the message at {place}"
            self.remarks.append(f"{what}: ask with --unique-key, or --id")
        elif isinstance(found, Damage) and found.code in UNREADABLE:
            self.findings.append(found)
        elif message is None:
            start, end = self._store.commit_log.min_offset, self._store.commit_log.queue.end
            self.remarks.append(f"no record begins at the id's offset {offset}; the log's files hold [{start}, {end})")
            self.remarks.append("an id that a producer gave its message is a UNIQ_KEY: --id searches both")
        elif message.msg_id != msg_id.upper():
            self.remarks.append(
                f"the record at {offset} has the id {message.msg_id}: another broker's message is asked for"
            )
        else:
            yield from self._found(found)

    def _indexed(self) -> list[str]:
        # the topics in which a key is looked up; raises Unreadable if there is no index
        index = self._store.index
        if not index.files and index.database is None:
            what = "there is no index file, so no key can be looked up"
            hint = "--scan reads the whole log instead; `rmqctl rebuild STORE index` builds the index"
            raise Unreadable(what, path=str(index.folder), hint=hint)
        cut = [self._note_cut(index_file) for index_file in index.files if index.database is None]
        if (cut and all(cut)) or not index.spans():
            self.remarks.append("the index has no entry that can be read; use --scan")
        else:
            begin = self._store.commit_log.min_offset
            self.remarks += filter(None, (self._lacks(*part) for part in index.not_covered(begin)))
        topic = self._question.topic
        if topic is None:
            return sorted({topic for topic, _ in self._store.queues})
        if not self._store.topic_queues(topic) and not self._store.is_unread(topic):
            what = unknown_topic(self._store, topic) or f"topic {topic!r} has no queue in this store"
            self.remarks.append(what)
        return [topic]

    def _lacks(self, start: int, stop: int | None) -> str | None:
        """Return a remark if a part of the log may have messages without index entries.

        No index file covers the part. The record at `start` may have its entries, and records without keys need none.
        Raises OSError.
        """
        position = start
        for _ in range(WALK_RECORDS_MAX):
            item = self._store.commit_log.at(position) if stop is None or position < stop else None
            if item is None or (isinstance(item, Damage) and item.code == "outside-log"):
                following = self._following_file(position, stop)
                if following is None:
                    return None
                item = self._store.commit_log.at(following)
            if item is not None and stop is not None and item.physical_offset >= stop:  # behind DLedger's header
                return None
            if item is None or isinstance(item, Damage) or self._has_more_keys(item, start):
                break
            position = item.end
        end = "its end" if stop is None else str(stop)
        return f"the index has no entries for the log from {position} to {end}: --scan searches that part, too"

    def _has_more_keys(self, item: Message | Blank, start: int) -> bool:
        # only the record at `start` can have entries: it may be the last one of an index file
        if isinstance(item, Blank) or transaction_type(item.sys_flag) is TransactionType.ROLLBACK:
            return False  # IndexService.buildIndex
        unique = item.properties.get(properties.UNIQ_KEY)
        keys = [*properties.keys(item.properties), *([] if unique is None else [unique])]
        at = item.physical_offset
        return any(at != start or at not in self._store.index.phy_offsets(item.topic, key) for key in keys)

    def _following_file(self, position: int, stop: int | None) -> int | None:
        # where the next log file with records begins, or None if there is none before `stop`
        log = self._store.commit_log
        begins = (file.file_from_offset for file in log.files_in_use())
        return next((at for at in begins if position < at and (stop is None or at < stop)), None)

    def _note_cut(self, index_file: IndexFile) -> bool:
        """Add a finding and return True if an index file lacks entries."""
        problem = self._store.index.length_problem(index_file)
        header = index_file.header()
        if problem is None and header is not None and header.index_count > index_file.capacity:
            problem = f"its header counts {header.index_count} entries, the file has room for {index_file.capacity}"
        if problem is None:
            return False
        detail = f"{problem}: keys in it may not be found; --scan reads the whole log instead"
        self.findings.append(Damage("index-length", 0, 0, detail, path=index_file.file.name))
        return True

    def _by_key(self, topics: list[str]) -> Iterator[dict[str, Any]]:
        key = self._question.unique_key or self._question.key or ""
        is_found = False
        for topic in topics:
            for found in self._store.by_key(topic, key):
                message = message_of(found)
                if isinstance(found, Damage) and message is None and found.code not in UNREADABLE:
                    self._note_dangling(found)
                    continue
                unique = message is not None and message.properties.get(properties.UNIQ_KEY) == key
                if message is None or unique or self._question.unique_key is None:
                    is_found = True
                    yield from self._found(found)
        if not is_found and self._question.unique_key is not None and (rows := list(self._at_id(key))):
            what = f"{key} is no UNIQ_KEY, but the offsetMsgId of the message at {rows[0]['physicalOffset']}"
            self.remarks.append(f"{what}: ask with --msg-id, or --id")
            return
        self._remark_on_copies(topics, key, is_found=is_found)

    def _remark_on_copies(self, topics: list[str], key: str, *, is_found: bool) -> None:
        """Recommend `trace` if other topics have copies, or if nothing was found."""
        others = set(filter(is_copy_topic, self._store.queue_topics)) - set(topics)
        with_copies = sorted(topic for topic in others if any(map(message_of, self._store.by_key(topic, key))))
        if with_copies:
            self.remarks.append(
                f"records with this key are also in {', '.join(with_copies)}: `rmqctl trace` shows them"
            )
        elif not is_found:
            self.remarks.append(
                "`rmqctl trace` searches half, delayed and retried messages, too, and what the index does not cover"
            )

    def _note_dangling(self, found: Damage) -> None:
        # either the index entry or the message is damaged
        detail = f"an index entry leads here, but there is no message ({found.code})"
        hint = "`rmqctl verify` shows whether the log or the index is damaged"
        self.findings.append(Damage("index-dangling", found.physical_offset, 0, f"{detail}: {hint}"))

    def _by_queue(self, queue: UnitQueue) -> Iterator[dict[str, Any]]:
        asked = self._question
        unit = self._store.by_time(queue, asked.at) if asked.at is not None else queue.find(asked.offset or 0)
        if asked.at is not None and (falls := self._store.falls_before_end(queue)):
            self.remarks.append(f"{falls[-1].words}: after the message that is shown, earlier times can follow")
        low, high = queue.min_offset(self._store.commit_log.min_offset), queue.max_offset
        if unit is None or unit.is_pre_blank or unit.physical_offset < self._store.commit_log.min_offset:
            last = queue.last()
            message = self._store.commit_log.message_at(last.physical_offset) if last else None
            stored = f"; its last message was stored at {rfc3339(message.store_timestamp)}" if message else ""
            self.remarks.append(f"the queue has the messages of offsets [{low}, {high}){stored}")
            return
        found = self._store.commit_log.at(unit.physical_offset)
        message = message_of(found)
        if message is None and not (isinstance(found, Damage) and found.code in UNREADABLE):
            detail = (
                f"the unit of offset {unit.queue_offset} points to {unit.physical_offset}, but there is no whole record"
            )
            self.findings.append(Damage("unit-mismatch", unit.physical_offset, 0, detail))
            return
        if message is not None and not _belongs(message, queue, unit):
            whose = f"{message.topic}/{message.queue_id}, queue offset {message.queue_offset}"
            detail = f"the unit of offset {unit.queue_offset} points to the message of {whose}"
            self.findings.append(Damage("unit-mismatch", unit.physical_offset, 0, detail))
        yield from self._found(found)

    def _note(self, damage: Damage) -> None:
        self.findings.append(damage._replace(message=None))

    def _found(self, item: ScanItem | None) -> Iterator[dict[str, Any]]:
        if isinstance(item, Damage):
            self._note(item)
            if item.message is not None:
                yield self._row(item)
        elif isinstance(item, Message):
            yield self._row(item)

    def _row(self, item: ScanItem) -> dict[str, Any]:
        path = self._store.commit_log.path_of(item.physical_offset)
        if isinstance(item, Damage):
            return damage_row(item, path=path, bodies=self._bodies)
        if not isinstance(item, Message):
            raise TypeError("a blank has no row")
        return message_row(item, path=path, tags_code=self._store.tags_code(item), bodies=self._bodies)


def _belongs(message: Message, queue: UnitQueue, unit: CqUnit) -> bool:
    # whether dispatch would create this unit for the message, in its own queue or in an LMQ's
    if unit.batch_size > 1:
        return (message.topic, message.queue_id) == (queue.topic, queue.queue_id)
    places = queue_destinations(message)
    if [place[:3] for place in places[:1]] == [(queue.topic, queue.queue_id, unit.queue_offset)]:
        return True
    return (queue.topic, queue.queue_id) in [place[:2] for place in places[1:]]  # LMQ: the queue offset may differ
