"""Count the bytes of the commit log, those of messages by topic, queue and time.

It takes one pass by several threads. Each record run is counted by itself, because a run that was read from a wrong
place is thrown away (`parallel_scan.py`).
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from rmqctl.format.message import BAD_BODY_CRC, HEADS, Blank, Message
from rmqctl.kernels import group_scan, scan
from rmqctl.kernels.group_scan import BY_BROKER, BY_QUEUE, BY_TOPIC, GROUPS, GroupTable, merged
from rmqctl.kernels.row_scan import topic_of
from rmqctl.kernels.warm_up import runs_plain, warm_up
from rmqctl.store.dledger.dledger_entry import ENTRY_HEADER
from rmqctl.store.read.commit_log import NO_BLANK, NOT_READ, ScanSummary
from rmqctl.store.read.file_scan import RecordRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.format.columns import Numbers, Rows
    from rmqctl.format.message import Damage
    from rmqctl.logfile.column_reader import Columns
    from rmqctl.store.read.commit_log import CommitLog
    from rmqctl.store.read.file_scan import ScanItem

LARGEST = 10
SLOTS_A_RUN = 1 << 9  # a larger table would take the place of records in the cache
Span = Literal["records", "blank", "damaged", "placeholders"]
PENDING_MAX = 64  # counted runs that wait to be added up
DATED = range(4_102_444_800_000)  # ms, up to the year 2100: other store times are in one interval, with NO_DATE
NO_DATE = -1
DELAYS = (0, 10, 100, 1000, 10_000)  # ms, between the classes of store time minus born time
_BORN_AT = HEADS[0].offset("BORNTIMESTAMP")


class Large(NamedTuple):
    """One of the largest messages."""

    size: int  # bytes
    physical_offset: int
    topic: bytes


class _Counted(NamedTuple):
    """The counts of one record run."""

    texts: list[bytes]  # the topics by their numbers in `groups`
    known: list[int]  # the numbers in LogSpace of the first of them; only the thread that adds up uses it
    groups: Rows  # of GROUPS, by topic or queue
    intervals: Rows  # of GROUPS, of all topics
    largest: list[Large]
    first_ms: int  # the store time of the first message
    last_ms: int
    placeholders: list[tuple[int, int]]  # their begins and ends, if somebody asks for them
    delays: Counter[int]  # as LogSpace.delays


class LogSpace:
    """What takes the bytes of `log`.

    `groups` counts messages by topic, with `by_queue` by topic and queue, as rows of GROUPS; `topics` has the topics by
    their numbers. With `interval_ms`, `intervals` counts the messages of all topics by store time. A message with a
    damaged body counts as a message.

    With `topics_interval_ms`, `groups` counts by store time, too, and `delays` counts messages by the start of their
    interval * (len(DELAYS) + 1) + the class of their store time minus born time; those with a store time out of DATED
    are left out. `on_span` gets the begin and the end of each part of the log, what it holds, with bodies checked, and
    the rows of `groups` of its messages; placeholders, which are records, come once more with `shows_placeholders`.
    """

    def __init__(
        self,
        log: CommitLog,
        *,
        by_queue: bool = False,
        interval_ms: int = 0,
        topics_interval_ms: int = 0,
        on_span: Callable[[int, int, Span, Rows], None] | None = None,
        shows_placeholders: bool = False,
    ) -> None:
        self._log = log
        self._by = BY_QUEUE if by_queue else BY_TOPIC
        self._interval_ms = interval_ms
        self._topics_interval_ms = topics_interval_ms
        self._on_span = on_span
        self._shows_placeholders = shows_placeholders
        self._local = threading.local()
        self._numbers: dict[str, int] = {}
        self._pending: list[Rows] = []
        self._pending_intervals: list[Rows] = []
        self._end = log.min_offset
        self.summary = ScanSummary()
        self.blank_bytes = self.damaged_bytes = self.header_bytes = 0
        self._lengths: list[Damage] = []  # of log files, other than usual
        self.largest: list[Large] = []
        self.delays: Counter[int] = Counter()
        self.first_ms: int | None = None  # the store time of the log's first message
        self.last_ms: int | None = None

    @property
    def topics(self) -> list[str]:
        """The topics by their numbers; bytes that are not UTF-8 are U+FFFD."""
        return list(self._numbers)

    @property
    def groups(self) -> Rows:
        """The counts of messages by topic or queue."""
        return joined(self._pending)

    @property
    def intervals(self) -> Rows:
        """The counts of messages by store time, with NO_DATE for times out of DATED."""
        return joined(self._pending_intervals)

    @property
    def cut(self) -> list[Damage]:
        """The log files that are longer than usual: what is beyond is not counted."""
        ends = {file.end for file in self._log.queue.files if file.size < file.size_on_disk}
        return [one for one in self._lengths if one.physical_offset in ends]

    def warm_up(self) -> None:
        """Compile or load the kernels, unless the log is small."""
        warm_up(scan, group_scan, size=self._log.queue.allocated)

    def run(self, threads: int) -> None:
        """Count the whole log."""
        self.warm_up()
        checks = self._on_span is not None
        for item in self._log.scan_columns(self.summary, self._take, threads=threads, check_bodies=checks):
            begin = item.physical_offset
            if self._log.has_entries and self._starts_behind_header(item):
                self.header_bytes += ENTRY_HEADER.size
                begin -= ENTRY_HEADER.size
            self._end = item.end
            span, groups = self._count(item)
            if span and self._on_span:
                self._on_span(begin, item.end, span, groups)
                places = item.result.placeholders if isinstance(item, RecordRun) else []
                if isinstance(item, Message) and item.placeholder is not None:
                    places = [(item.physical_offset, item.end)]
                for start, end in places:
                    self._on_span(start, end, "placeholders", NO_GROUPS)

    def _count(self, item: ScanItem | RecordRun) -> tuple[Span | None, Rows]:
        """Count an item, and return what it holds, and the groups of its messages."""
        if isinstance(item, RecordRun):
            return "records", self._add(item.result)
        if isinstance(item, Blank):
            self.blank_bytes += item.size
            return "blank", NO_GROUPS
        if isinstance(item, Message):
            return "records", self._add(self._of_messages([item]))
        if item.code == BAD_BODY_CRC and item.message is not None:
            return "damaged", self._add(self._of_messages([item.message]))
        if item.code not in NOT_READ - {"unreadable"} and item.code != NO_BLANK:
            self.damaged_bytes += item.size
            return "damaged", NO_GROUPS
        self._lengths += [item] if item.code == "file-length" else []
        return None, NO_GROUPS

    def _starts_behind_header(self, item: ScanItem | RecordRun) -> bool:
        file = self._log.queue.find(item.physical_offset)
        begin = max(self._end, file.file_from_offset) if file is not None else self._end
        return item.physical_offset - begin == ENTRY_HEADER.size

    def _take(self, columns: Columns) -> _Counted:
        if runs_plain(group_scan):
            return self._of_messages(columns.messages(columns.rows))
        if not hasattr(self._local, "tables"):
            self._local.known = []
            self._local.tables = (
                GroupTable(self._by, self._topics_interval_ms, SLOTS_A_RUN),
                GroupTable(BY_BROKER, self._interval_ms, SLOTS_A_RUN),
            )
        tables: tuple[GroupTable, GroupTable] = self._local.tables
        groups, intervals = (
            np.concatenate([*table.add(columns.buffer, columns.rows), table.taken()]) if used else NO_GROUPS
            for table, used in zip(tables, (True, self._interval_ms), strict=True)
        )
        first, last = (int(columns.rows[row]["store_timestamp"]) for row in (0, -1))
        least = self.largest[-1].size if len(self.largest) == LARGEST else 0
        largest = _largest_of(columns) if groups["max_size"].max() > least else []
        places = _places(columns) if self._shows_placeholders else []
        delays = (
            self._delays(columns.rows["store_timestamp"], _born(columns)) if self._topics_interval_ms else Counter()
        )
        texts = tables[0].topics.texts
        return _Counted(texts, self._local.known, groups, intervals, largest, first, last, places, delays)

    def _delays(self, stored: Numbers, born: Numbers) -> Counter[int]:
        dated = (stored >= DATED.start) & (stored < DATED.stop)
        stored, born = stored[dated], born[dated]
        classes = np.searchsorted(DELAYS, stored - born, "right")
        begins = stored // self._topics_interval_ms * self._topics_interval_ms
        keys, counts = np.unique(begins * (len(DELAYS) + 1) + classes, return_counts=True)
        return Counter(dict(zip(keys.tolist(), counts.tolist(), strict=True)))

    def _of_messages(self, messages: list[Message]) -> _Counted:
        texts = list(dict.fromkeys(message.topic_bytes for message in messages))
        number_of = {text: number for number, text in enumerate(texts)}
        grouped_ms = self._topics_interval_ms
        groups = np.array(
            [
                _group(
                    one,
                    one.store_timestamp // grouped_ms * grouped_ms if grouped_ms else 0,
                    number_of[one.topic_bytes],
                    one.queue_id if self._by == BY_QUEUE else 0,
                )
                for one in messages
            ],
            GROUPS,
        )
        interval = self._interval_ms
        intervals = [_group(one, one.store_timestamp // interval * interval, 0, 0) for one in messages if interval]
        large = sorted((Large(one.size, one.physical_offset, one.topic_bytes) for one in messages), key=_rank)
        first, last = messages[0].store_timestamp, messages[-1].store_timestamp
        places = [(one.physical_offset, one.physical_offset + one.size) for one in messages if one.placeholder]
        times = np.array([(one.store_timestamp, one.born_timestamp) for one in messages], np.int64).T
        delays = self._delays(*times) if grouped_ms else Counter()
        by_time = merged(np.array(intervals, GROUPS))
        return _Counted(texts, [], merged(groups), by_time, large[:LARGEST], first, last, places, delays)

    def _add(self, counted: _Counted) -> Rows:
        groups, intervals, known = counted.groups, counted.intervals, counted.known
        for text in counted.texts[len(known) :]:
            known.append(self._numbers.setdefault(text.decode("utf-8", "replace"), len(self._numbers)))
        groups["topic"] = [known[number] for number in groups["topic"].tolist()]
        append(self._pending, groups)
        if self._interval_ms:
            times = intervals["timestamp"]
            times[(times < DATED.start) | (times >= DATED.stop)] = NO_DATE
            append(self._pending_intervals, intervals)
        if counted.largest:
            self.largest = sorted([*self.largest, *counted.largest], key=_rank)[:LARGEST]
        self.first_ms = counted.first_ms if self.first_ms is None else self.first_ms
        self.last_ms = counted.last_ms
        self.delays.update(counted.delays)
        return groups


NO_GROUPS: Rows = np.zeros(0, GROUPS)


def _born(columns: Columns) -> Numbers:
    places = columns.rows["position"].astype(np.int64)[:, None] + np.arange(_BORN_AT, _BORN_AT + 8)
    born: Numbers = columns.buffer[places].view(">i8")[:, 0].astype(np.int64)
    return born


def _places(columns: Columns) -> list[tuple[int, int]]:
    rows = columns.placeholders()
    begins = columns.physical_offset + rows["position"]
    return list(zip(begins.tolist(), (begins + rows["size"]).tolist(), strict=True))


def _largest_of(columns: Columns) -> list[Large]:
    sizes, base = columns.rows["size"], columns.physical_offset
    rows = columns.rows[np.argsort(-sizes, kind="stable")[:LARGEST]]
    return [Large(int(row["size"]), base + int(row["position"]), topic_of(columns.buffer, row)) for row in rows]


def _group(message: Message, timestamp: int, topic: int, queue_id: int) -> tuple[int, ...]:
    """Return a row of GROUPS for one message."""
    ms, offset, size = message.store_timestamp, message.queue_offset, message.size
    return timestamp, 1, size, len(message.body), offset, offset, ms, ms, topic, queue_id, size, size


def _rank(large: Large) -> tuple[int, int]:
    return -large.size, large.physical_offset


def append(pending: list[Rows], rows: Rows) -> None:
    """Append rows of GROUPS, and add up the rows of `pending` when there are many."""
    pending.append(rows)
    if len(pending) > PENDING_MAX:
        pending[:] = [joined(pending)]


def joined(pending: list[Rows]) -> Rows:
    """Return a row of GROUPS for each group of `pending`."""
    return merged(np.concatenate([NO_GROUPS, *pending]))
