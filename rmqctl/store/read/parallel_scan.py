"""A scan of the commit log by several threads, with results in log order.

Each file is cut into segments. The first begins at the start of the file, a later one at the first record found in it.
That is a guess, because bytes in a message body may look like a record. It is wrong if the previous segment ends
elsewhere; then the segment is scanned again from there. So the result is that of a scan by one thread.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.logfile.column_reader import ColumnReader
from rmqctl.store.read.file_scan import FileScan, RecordRun, ScanItem, ZeroTail, cuts, next_readable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.read.file_scan import OnRun

SEGMENT_SIZE = 16 * 1024 * 1024
SEGMENTS_AHEAD = 2


class _Segment(NamedTuple):
    """The part [start, stop) of the log file `whole` in bytes, for one thread."""

    whole: MappedFile
    file: MappedFile  # `whole`, opened a second time for the thread
    start: int
    stop: int
    exact: bool  # an item begins at `start`


class Part(NamedTuple):
    """The items of one part of a log file; positions are bytes from its start."""

    first: int | None  # position of the first item; None: no record begins in the part
    items: list[ScanItem | RecordRun | ZeroTail]
    position: int  # of the next item after the part
    ended: bool  # the file has no more items


def scan_part(
    file: MappedFile,
    start: int,
    stop: int,
    columns: ColumnReader,
    take: OnRun | None,
    *,
    exact: bool,
    border: int | None = None,
) -> Part:
    """Return the items of `file` that begin in [start, stop).

    With `exact`, the first item begins at `start`; otherwise it is the first record or blank found from there on.

    The messages of a record run all begin before the physical offset `border`, or all at or after it.
    """
    first = start if exact else next_readable(file, start, stop)
    if first is None:
        return Part(None, [], stop, ended=False)
    columns.forget()
    scan = FileScan(file, first, columns, take)
    border = stop if border is None else border - file.file_from_offset
    items = [*scan.items(min(border, stop)), *scan.items(stop)]
    return Part(first, items, scan.position, scan.ended)


class PartJoin:
    """Joins the scanned parts of one log file, in the order of the file.

    Where a part begins is a guess: bytes in a body, or after a blank, can look like a record with the right
    PHYSICALOFFSET. It is right if the previous part ends there; otherwise the part must be read again.

    `position` is where the next part must begin. `ended` is True if the file has no more items.
    """

    def __init__(self, position: int = 0) -> None:
        self.position = position
        self.ended = False

    def skips(self, stop: int) -> bool:
        """Return whether a part that ends at `stop` can be skipped.

        That is so if the file has no more items, or the previous parts reach `stop`.
        """
        return self.ended or self.position >= stop

    def joins(self, part: Part) -> bool:
        """Return whether a part begins where the previous one ended.

        If not, it must be read again from `position`.
        """
        return part.first == self.position

    def add(self, part: Part) -> None:
        """Add a part that begins at `position`, and move `position` to the part's end."""
        self.position, self.ended = part.position, part.ended


class ParallelScan:
    """A scan of the log files `files` by `threads` threads.

    The threads call `take` with the columns of each record run; what it returns becomes the run's `result`. With
    `only`, the scan reads only these physical offsets, and an item must begin at the first of them. The messages of a
    record run all begin before the physical offset `border`, or all at or after it. Without `check_bodies`, a record
    run may contain messages with a wrong body CRC.

    Use a ParallelScan as a context manager. Request the items of each file once, in the order of the files.
    """

    def __init__(
        self,
        files: Sequence[MappedFile],
        take: OnRun | None,
        threads: int,
        *,
        only: range | None = None,
        segment_size: int = SEGMENT_SIZE,
        border: int | None = None,
        check_bodies: bool = True,
    ) -> None:
        self._take = take
        self._check_bodies = check_bodies
        self._border = border
        self._only = only
        self._segments = (
            (file, start, stop)
            for file in files
            for start, stop in cuts(file, segment_size, self._begin_in(file), self._end_in(file))
        )
        self._executor = ThreadPoolExecutor(threads, "scan")
        self._ahead = threads + SEGMENTS_AHEAD
        self._pending: deque[tuple[_Segment, Future[Part]]] = deque()
        self._done_with: MappedFile | None = None
        self._local = threading.local()

    def __enter__(self) -> ParallelScan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for segment, future in self._pending:
            if future.cancel():
                segment.file.close()
        self._executor.shutdown(wait=True)

    def items(self, file: MappedFile) -> Iterator[ScanItem | RecordRun | ZeroTail]:
        """Yield the items of one file as `FileScan.items` does."""
        join = PartJoin(self._begin_in(file))
        self._top_up()
        while self._pending and self._pending[0][0].whole is file:
            segment, future = self._pending.popleft()
            if join.skips(segment.stop):
                if future.cancel():
                    segment.file.close()
                self._top_up()
                continue
            part = future.result()
            if not join.joins(part):
                part = self._scan(segment._replace(file=file.apart(), start=join.position, exact=True))
            join.add(part)
            self._done_with = file if join.ended else None
            self._top_up()
            yield from part.items

    def _top_up(self) -> None:
        while len(self._pending) < self._ahead and (following := next(self._segments, None)) is not None:
            file, start, stop = following
            if file is not self._done_with:
                segment = _Segment(file, file.apart(), start, stop, start == self._begin_in(file))
                self._pending.append((segment, self._executor.submit(self._scan, segment)))

    def _begin_in(self, file: MappedFile) -> int:
        return 0 if self._only is None else max(self._only.start - file.file_from_offset, 0)

    def _end_in(self, file: MappedFile) -> int | None:
        return None if self._only is None else max(self._only.stop - file.file_from_offset, 0)

    def _scan(self, segment: _Segment) -> Part:
        with segment.file as file:
            return scan_part(
                file,
                segment.start,
                segment.stop,
                self._column_reader(),
                self._take,
                exact=segment.exact,
                border=self._border,
            )

    def _column_reader(self) -> ColumnReader:
        if not hasattr(self._local, "reader"):
            self._local.reader = ColumnReader(check_bodies=self._check_bodies)
        reader: ColumnReader = self._local.reader
        return reader
