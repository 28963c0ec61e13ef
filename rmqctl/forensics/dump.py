"""The records of a log as rows, for `rmqctl dump`.

They are selected by filters, by ranges, or as the last N. New records can be shown while a broker writes them.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from rmqctl.errors import BadRequest
from rmqctl.forensics.follow import LogFollower, end_of_records
from rmqctl.format.body.bodies import NO_BODIES, Bodies
from rmqctl.format.body.message_row import damage_row, message_row
from rmqctl.format.message import BAD_PHYSICAL_OFFSET, Damage, Message
from rmqctl.kernels import json_lines
from rmqctl.kernels.warm_up import runs_plain, warm_up
from rmqctl.store.compaction.compaction_log import compaction_queues, records
from rmqctl.store.config.topics import SCHEDULE_TOPIC
from rmqctl.store.read.clock import LogClock
from rmqctl.store.read.commit_log import SMALL_SEGMENT_SIZE, UNREADABLE, ScanSummary
from rmqctl.store.read.file_scan import RecordRun, ScanItem

if TYPE_CHECKING:
    from rmqctl.forensics.message_filter import Filter
    from rmqctl.format.columns import Bytes
    from rmqctl.logfile.column_reader import Columns
    from rmqctl.store.read.read_only_store import ReadOnlyStore

Row = dict[str, Any]
TAIL_RECORD_SIZE = 4096
TAIL_GROWTH = 8
OUT_SIZE = 4 * 1024 * 1024


class Dump:
    """The rows of a store's log that the filter `wanted` selects.

    `on_damage` is called with each damage in the selected range, without its `message`; `damages` counts the calls.
    `matched` and `damaged_rows` count the rows in the blocks of `lines`, the caller others. If a broker cuts the log
    during `follow`, `on_cut` is called with the physical offset of the cut. `incomplete` is set if a part of the log
    was unreadable. `summary` is updated while the rows are read.
    """

    def __init__(
        self,
        store: ReadOnlyStore,
        wanted: Filter,
        *,
        bodies: Bodies = NO_BODIES,
        damaged: bool = False,
        on_damage: Callable[[Damage], None],
        on_cut: Callable[[int], None] = lambda _: None,
        threads: int = 1,
    ) -> None:
        self.summary = ScanSummary()
        self.damages = 0
        self.matched = 0
        self.damaged_rows = 0
        self.incomplete = False
        self._store = store
        self._log = store.commit_log
        self._wanted = wanted
        self._bodies = bodies
        self._damaged = damaged
        self._on_damage = on_damage
        self._on_cut = on_cut
        self._threads = threads

    @property
    def undecoded(self) -> Bodies:
        """The count of bodies that could not be decompressed.

        Those of the condition are preferred to those of the rows, which are the same or fewer.
        """
        return match.bodies if (match := self._wanted.body) is not None and match.bodies.failed else self._bodies

    def warm_up(self, *, with_lines: bool) -> None:
        """Compile or load the kernels for `rows`, and with `with_lines` for `lines`."""
        from rmqctl.kernels import filter_scan, scan

        warm_up(scan, filter_scan, *([json_lines] if with_lines else []), size=self._log.queue.allocated)

    def rows(self, end: int | None = None) -> Iterator[Row]:
        """Yield all rows, in the order of the log, up to physical offset `end`."""
        self.warm_up(with_lines=False)
        for item in self.scan(self._take, end):
            if isinstance(item, RecordRun):
                path, messages = item.result
                for message in messages:
                    yield from self._shown(message, path)
            else:
                yield from self._rows_of(item)

    def messages(self) -> Iterator[Message]:
        """Yield the messages of `rows`; each is valid until the next one."""
        for item in self.scan(self._take):
            yield from filter(None, item.result[1] if isinstance(item, RecordRun) else [self._served(item)])

    def _take(self, columns: Columns) -> tuple[str, list[Message]]:
        return columns.path, columns.messages(columns.rows[self._wanted.rows(columns)])

    def lines(self, to_line: Callable[[Row], str]) -> Iterator[bytes]:
        """Yield the rows as blocks of many JSON Lines.

        `to_line` writes those that the kernel cannot write.
        """
        self.warm_up(with_lines=True)
        writer = LineWriter(self._wanted, self._bodies.encoding)
        for item in self.scan(writer.take):
            if not isinstance(item, RecordRun):
                rows = self._rows_of(item)
                damaged = sum("damage" in row for row in rows)
                self.matched += len(rows) - damaged
                self.damaged_rows += damaged
                yield from ((to_line(row) + "\n").encode() for row in rows)
                continue
            path, pieces, count = item.result
            self.matched += count
            for piece in pieces:
                if isinstance(piece, Message):
                    yield from ((to_line(row) + "\n").encode() for row in self._shown(piece, path))
                else:
                    yield piece

    def scan(self, take: Callable[[Columns], Any], end: int | None = None) -> Iterator[ScanItem | RecordRun]:
        """Yield the items of the part that can have selected messages, as a scan does."""
        start, stop = self._first_file(), self._stop(end)
        scan = self._log.scan_columns(
            self.summary, take, threads=self._threads, start=start, stop=stop, segment_size=SMALL_SEGMENT_SIZE
        )
        return self._log.with_shifted(scan, self._hear)

    def compaction_rows(self) -> Iterator[Row]:
        """Yield the rows of the records in compaction/, queue by queue.

        Raises OSError.
        """
        for queue in compaction_queues(self._store):
            for file in queue.log.values():
                for item in records(file):
                    self.summary.count(item)
                    self._hear(item)
                    yield from self._rows_of(item, file.name)
            queue.close()

    def _stop(self, end: int | None) -> int | None:
        # the physical offset where reading stops, at `end` or earlier; None: at the log's end
        return min((offset for offset in (end, self._wanted.to_offset) if offset is not None), default=None)

    def tail(self, count: int, end: int | None = None) -> list[Row]:
        """Return the last `count` rows before physical offset `end`.

        Records can only be read forwards: reading starts near `end`, and again at an earlier offset if there are too
        few.
        """
        first = max(self._log.min_offset, self._wanted.from_offset or 0, self._first_file() or 0)
        last, _ = self._log.end() if end is None else (end, None)
        span = count * TAIL_RECORD_SIZE
        while True:
            start = max(last - span, first)
            self.summary = ScanSummary()
            rows: deque[Row] = deque(maxlen=count)
            heard: list[Damage] = []
            scan = self._log.scan(self.summary, start=start, stop=self._stop(end))
            for item in self._log.with_shifted(scan, heard.append):
                rows.extend(self._rows_of(item))
            if len(rows) == count or start == first:
                for damage in heard:
                    self._hear(damage)
                return list(rows)
            span *= TAIL_GROWTH

    def around(self, physical_offset: int, context: int) -> list[Row]:
        """Return the record at an offset, and `context` records on each side.

        A damaged place counts as a record.
        """
        file = self._log.queue.find(physical_offset)
        if file is None:
            hint = f"it begins at {self._log.min_offset}; `rmqctl info` shows where it ends"
            raise BadRequest(f"no file of the commit log holds the offset {physical_offset}", hint=hint)
        before: deque[list[Row]] = deque(maxlen=context + 1)
        scan = self._log.scan(self.summary, start=file.file_from_offset)
        for item in scan:
            before.append(self._shown(item))
            if item.physical_offset + max(item.size, 1) > physical_offset:
                self._hear(item)
                break
        behind = []
        for item in islice(scan, context):
            behind.append(self._shown(item))
            self._hear(item)
        self.summary.stopped = f"{context} records after {physical_offset}"
        return [row for rows in (*before, *behind) for row in rows]

    def follow(self, *, tail: int | None = None, from_start: bool = False) -> Iterator[Row]:
        """Yield new rows while a broker appends records, each once.

        With `tail`, the last `tail` rows come first; with `from_start`, all earlier rows that the filter selects.
        Without `to_offset` in the filter, this never ends.
        """
        end = end_of_records(self._log)
        if tail is not None:
            yield from self.tail(tail, end)
        elif from_start:
            yield from self.rows(end)
        else:
            self.summary.ok_up_to = self.summary.end = end
        self.summary.stopped = "interrupted"
        for item in LogFollower(self._log, end, self._on_cut).items(self._wanted.to_offset):
            if isinstance(item, Message):
                self.summary.count(item)
            self._hear(item)
            yield from self._rows_of(item)

    def _rows_of(self, item: ScanItem, path: str | None = None) -> list[Row]:
        is_shown = isinstance(item, Damage) and self._damaged and self._wanted.touches(item)
        return self._shown(item, path) if is_shown or self._served(item) is not None else []

    def _served(self, item: ScanItem) -> Message | None:
        # a broker serves a message with a wrong PHYSICALOFFSET, too
        found = item.message if isinstance(item, Damage) and item.code == BAD_PHYSICAL_OFFSET else item
        return found if isinstance(found, Message) and self._wanted.matches(found) else None

    def _shown(self, item: ScanItem, path: str | None = None) -> list[Row]:
        path = self._log.path_of(item.physical_offset) if path is None else path
        if isinstance(item, Damage):
            return [damage_row(item, path=path, bodies=self._bodies)]
        if isinstance(item, Message):
            return [message_row(item, path=path, tags_code=self._store.tags_code(item), bodies=self._bodies)]
        return []

    def _hear(self, item: ScanItem) -> None:
        if isinstance(item, Damage) and self._wanted.touches(item):
            self.damages += 1
            self.incomplete = self.incomplete or item.code in UNREADABLE
            self._on_damage(item._replace(message=None))

    def _first_file(self) -> int | None:
        """Return the first offset of the file where reading begins, or None.

        With a first offset in the filter, it is the file that has this offset. With only a first time, it is the last
        file that begins before, unless the clock went back: then any file may have this time. None is the log's start.
        """
        if self._wanted.from_offset is not None:
            file = self._log.queue.at_or_before(self._wanted.from_offset)
            return file.file_from_offset if file else None
        if self._wanted.since is None or LogClock(self._log).falls:
            return None
        start = None
        for file in self._log.queue.files:
            first = self._log.message_at(file.file_from_offset)
            file.close()
            if first is None or first.store_timestamp >= self._wanted.since:
                break
            start = file.file_from_offset
        return start


class LineWriter:
    """Turns the columns of scanned messages into JSON Lines.

    The caller gets back the messages that the kernel cannot write. Any thread may call this object; each has its own
    buffer of 4 MiB.
    """

    def __init__(self, wanted: Filter, body: str) -> None:
        self._wanted = wanted
        self._body = json_lines.BODIES.get(body)
        self._local = threading.local()

    def take(self, columns: Columns) -> tuple[str, list[bytes | Message], int]:
        """Return a log file's path, the lines of its wanted messages, and their number.

        For a line that the kernel cannot write, the list has a Message.
        """
        numbers = self._wanted.rows(columns)
        is_plain = columns.path.isascii() and columns.path.isprintable()
        if self._body is None or not is_plain or runs_plain(json_lines):
            return columns.path, [*columns.messages(columns.rows[numbers])], len(numbers)
        rows, path = columns.rows[numbers], json.dumps(columns.path).encode()
        out = self._buffer()
        pieces: list[bytes | Message] = []
        at = 0
        while at < len(rows):
            at, used = json_lines.write_lines(
                columns.buffer, columns.physical_offset, rows, at, path, SCHEDULE_TOPIC.encode(), self._body, out
            )
            if used:
                pieces.append(out[:used].tobytes())
            elif at < len(rows):  # the kernel cannot write this line, or the line alone is larger than the buffer
                pieces.append(columns.message(int(numbers[at])))
                at += 1
        return columns.path, pieces, len(numbers)

    def _buffer(self) -> Bytes:
        if not hasattr(self._local, "out"):
            self._local.out = np.empty(OUT_SIZE, np.uint8)
        out: Bytes = self._local.out
        return out
