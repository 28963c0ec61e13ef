"""The segments of a log, read by several threads, in the order of the log.

A segment that is not the first of its file begins at the first record found in it. This is a guess, because a message's
body may hold bytes that look like a record in its own place. Therefore each segment says where it began. If it did not
begin where the segment before it ended, it is scanned again from there. The result is the same as that of one thread
that goes from record to record.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.logfile.column_reader import ColumnReader
from rmqctl.store.read.file_scan import FileScan, RecordRun, ScanItem, ZeroTail, end_position, next_readable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.read.file_scan import OnRun

SEGMENT_SIZE = 16 * 1024 * 1024
SEGMENTS_AHEAD = 2


class _Segment(NamedTuple):
    """A part [start, stop) of the file `whole`.

    `file` is the same file, opened once more for the thread that scans the part.
    """

    whole: MappedFile
    file: MappedFile
    start: int
    stop: int


class Part(NamedTuple):
    """The items of a part [start, stop) of a file.

    `first` is the position of the first record; None if no record begins in the part. `position` is the position of the
    next item. Both are positions in the file. `ended` says that the file has no more items.
    """

    first: int | None
    items: list[ScanItem | RecordRun | ZeroTail]
    position: int
    ended: bool


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

    With `exact`, the first item begins at `start`; otherwise it begins at the first record found from `start` on.

    No record run has messages on both sides of the physical offset `border`.
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
    """Joins the parts of one file, in order.

    The begin of a part is a guess. The guess is right if the part before it ended there; otherwise the part must be
    read again. A wrong guess comes from bytes that look like a record in its own place, in a body or after a blank.

    `position` is where the next part must begin. `ended` says that the file has no more items.
    """

    def __init__(self) -> None:
        self.position = 0
        self.ended = False

    def skips(self, stop: int) -> bool:
        """Return whether a part up to `stop` has nothing to add."""
        return self.ended or self.position >= stop

    def joins(self, part: Part) -> bool:
        """Return whether a part begins where the one before it ended.

        Otherwise the part must be read again from `position`.
        """
        return part.first == self.position

    def add(self, part: Part) -> None:
        """Continue after a part that joins."""
        self.position, self.ended = part.position, part.ended


class ParallelScan:
    """Scans `files` with `threads` threads.

    `take` is called in these threads with the columns of each record run, and its result is kept. No record run has
    messages on both sides of the physical offset `border`. Without `check_bodies`, a record run may have messages whose
    body has a wrong CRC.

    Use this class as a context manager, and ask for the items of each file once, in order.
    """

    def __init__(
        self,
        files: Sequence[MappedFile],
        take: OnRun | None,
        threads: int,
        *,
        segment_size: int = SEGMENT_SIZE,
        border: int | None = None,
        check_bodies: bool = True,
    ) -> None:
        self._take = take
        self._check_bodies = check_bodies
        self._border = border
        self._segments = ((file, start, stop) for file in files for start, stop in cuts(file, segment_size))
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
        """Yield the items of one file, as FileScan gives them."""
        join = PartJoin()
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
                part = self._scan(segment._replace(file=file.apart(), start=join.position), exact=True)
            join.add(part)
            self._done_with = file if join.ended else None
            self._top_up()
            yield from part.items

    def _top_up(self) -> None:
        while len(self._pending) < self._ahead and (following := next(self._segments, None)) is not None:
            file, start, stop = following
            if file is not self._done_with:
                segment = _Segment(file, file.apart(), start, stop)
                self._pending.append((segment, self._executor.submit(self._scan, segment, exact=start == 0)))

    def _scan(self, segment: _Segment, *, exact: bool) -> Part:
        with segment.file as file:
            return scan_part(
                file, segment.start, segment.stop, self._column_reader(), self._take, exact=exact, border=self._border
            )

    def _column_reader(self) -> ColumnReader:
        """Return the column reader of the calling thread."""
        if not hasattr(self._local, "reader"):
            self._local.reader = ColumnReader(check_bodies=self._check_bodies)
        reader: ColumnReader = self._local.reader
        return reader


def cuts(file: MappedFile, segment_size: int) -> Iterator[tuple[int, int]]:
    """Yield [start, stop) of a file's segments."""
    end = end_position(file)
    for start in range(0, end, segment_size):
        behind = start + segment_size
        yield (start, end) if end - behind <= 1 else (start, behind)
        if end - behind <= 1:
            return
