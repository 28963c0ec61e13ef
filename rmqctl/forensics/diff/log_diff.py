"""Compare two logs byte by byte, and name the records that differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.format.message import Blank, Damage, Message
from rmqctl.kernels import scan
from rmqctl.kernels.warm_up import warm_up
from rmqctl.store.read.commit_log import ScanSummary

if TYPE_CHECKING:
    from rmqctl.format.columns import Bytes
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.read.commit_log import CommitLog

DIFFERENT, UNREADABLE = "different", "unreadable"
EXPIRED, BEHIND, MISSING, DAMAGED, PLACEHOLDER, WHOLE = (
    "expired", "behind", "missing", "damaged", "placeholder", "whole",
)  # fmt: skip
_WORST_FIRST = (UNREADABLE, MISSING, DAMAGED, PLACEHOLDER, WHOLE)
_BLOCK = 1024 * 1024
_LOOK_BACK = 4096
_NAMED_MAX = 20_000  # records; from there on, a range ends where the bytes of a block agree again


class Range(NamedTuple):
    """Physical offsets [begin, end) at which two logs differ.

    `kind` is `different` where both have whole records, else what the worse side has, and which side that is: for
    example `damaged-in-b`, `expired-in-a` before the first byte of A, or `behind-in-b` after the last one of B.
    """

    begin: int
    end: int
    kind: str

    @property
    def is_divergence(self) -> bool:
        """Return whether both logs reach these offsets."""
        return not self.kind.startswith(EXPIRED) and not self.is_behind

    @property
    def is_behind(self) -> bool:
        """Return whether one log ends before."""
        return self.kind.startswith(BEHIND)


class Limits(NamedTuple):
    """The physical offsets [begin, end) of a log; damage at its end is inside."""

    begin: int
    end: int


def warm_up_diff(*logs: CommitLog) -> None:
    """Compile or load the kernel for `limits_of`."""
    warm_up(scan, size=sum(log.queue.allocated for log in logs))


def limits_of(log: CommitLog, threads: int) -> Limits:
    """Return the limits of a log: only its last file is scanned. Raises OSError."""
    in_use, summary = log.files_in_use(), ScanSummary()
    if not in_use:
        return Limits(log.min_offset, log.min_offset)
    last = in_use[-1]
    for _ in log.scan_columns(summary, threads=threads, start=last.file_from_offset, check_bodies=False):
        pass
    end = last.file_from_offset + last.data_end(max(summary.end - last.file_from_offset, 0))  # damage is no end
    last.close()
    return Limits(log.min_offset, end)


def log_differences(a: CommitLog, b: CommitLog, limits: tuple[Limits, Limits]) -> Iterator[Range]:
    """Yield the ranges in which two logs differ, in order.

    Both logs call `on_progress`. A part that cannot be read is a range of its own.
    """
    of_a, of_b = limits
    first, last = max(of_a.begin, of_b.begin), min(of_a.end, of_b.end)
    if of_a.begin != of_b.begin and not _is_empty(of_a) and not _is_empty(of_b):
        sooner = min(limits)
        yield Range(sooner.begin, min(first, sooner.end), f"{EXPIRED}-in-{'a' if of_a.begin > of_b.begin else 'b'}")
    found: Range | None = None
    for part in _Comparison(a, b).ranges(first, last):
        if found is not None and found.end >= part.begin and found.kind == part.kind:
            found = found._replace(end=max(part.end, found.end))
            continue
        if found is not None:
            yield found
        found = part
    if found is not None:
        yield found
    if of_a.end != of_b.end:
        longer = max(limits, key=lambda limit: limit.end)
        begin = longer.begin if _is_empty(min(limits, key=lambda limit: limit.end)) else max(last, longer.begin)
        item = _item_around(a if longer is of_a else b, begin)  # the shorter log may have a part of it
        begin = item.begin if item.kind in (WHOLE, PLACEHOLDER) else begin
        begin = max(begin, found.end if found else 0)
        yield Range(begin, longer.end, f"{BEHIND}-in-{'a' if longer is of_b else 'b'}")


class _Comparison:
    def __init__(self, a: CommitLog, b: CommitLog) -> None:
        self._logs = (a, b)
        self._buffers = (np.empty(_BLOCK, np.uint8), np.empty(_BLOCK, np.uint8))
        self._named = 0

    def ranges(self, begin: int, end: int) -> Iterator[Range]:
        done = begin
        while begin < end:
            files = tuple(log.queue.find(begin) for log in self._logs)
            ends = (
                file.end if file else self._next_file(log, begin) for file, log in zip(files, self._logs, strict=True)
            )
            stop = min(begin + _BLOCK, end, *(limit for limit in ends if limit is not None))
            for part in self._of_block(files, begin, stop, done):
                done = part.end
                yield part
            for log, file in zip(self._logs, files, strict=True):
                log.on_progress(stop - begin)
                if file is not None and stop == file.end:
                    file.close()
            begin = stop

    def _of_block(self, files: tuple[MappedFile | None, ...], begin: int, stop: int, done: int) -> Iterator[Range]:
        of_a, of_b = files
        if of_a is None or of_b is None:
            if of_a is not of_b:
                yield Range(max(begin, done), stop, f"{MISSING}-in-{'b' if of_a else 'a'}")
            return
        content: list[Bytes] = []
        for side, file, buffer in zip("ab", (of_a, of_b), self._buffers, strict=True):
            try:
                size = file.read_into(begin - file.file_from_offset, buffer.data[: stop - begin])
                content.append(buffer[:size])
            except OSError:
                yield Range(begin, stop, f"{UNREADABLE}-in-{side}")
                return
        size = min(map(len, content))
        places = np.flatnonzero(content[0][:size] != content[1][:size]) + begin
        while len(places) and (places := places[np.searchsorted(places, done) :]).size:
            found = self._around(int(places[0]), int(places[-1]) + 1)
            done = found.end
            if found.kind != WHOLE:
                yield found

    def _around(self, offset: int, last: int) -> Range:
        self._named += 1
        if self._named > _NAMED_MAX:
            return Range(offset, last, DIFFERENT)
        items = [_item_around(log, offset) for log in self._logs]
        states = [item.kind for item in items]
        worse = min(states, key=_WORST_FIRST.index)
        better = [item for item in items if item.kind in (WHOLE, PLACEHOLDER)] or items
        begin, end = min(item.begin for item in better), max(item.end for item in better)
        if states[0] != states[1]:
            return Range(begin, end, f"{worse}-in-{'ab'[states.index(worse)]}")
        if all(isinstance(log.at(begin), Blank) for log in self._logs):
            return Range(begin, end, WHOLE)  # what follows a blank's head is of no use to anybody
        return Range(begin, end, DIFFERENT if worse in (WHOLE, PLACEHOLDER) else f"{worse}-in-both")

    @staticmethod
    def _next_file(log: CommitLog, offset: int) -> int | None:
        return min((file.file_from_offset for file in log.queue.files if file.file_from_offset > offset), default=None)


def _is_empty(limits: Limits) -> bool:
    return limits.begin == limits.end


def _item_around(log: CommitLog, offset: int) -> Range:
    # the record or damage that has this byte; `kind` is its state
    file = log.queue.find(offset)
    if file is None:
        return Range(offset, offset + 1, MISSING)
    back = _LOOK_BACK
    while True:
        start = max(offset - back, file.file_from_offset)
        begin = log.next_record(start)
        if start == file.file_from_offset or (begin is not None and begin <= offset):
            break
        back *= 8
    at = begin if begin is not None and begin <= offset else file.file_from_offset
    while True:
        item = log.at(at)
        if isinstance(item, Message | Blank):
            end, state = item.end, PLACEHOLDER if isinstance(item, Message) and item.placeholder else WHOLE
        elif isinstance(item, Damage) and item.message is not None:
            end, state = at + item.message.size, DAMAGED
        else:
            end, state = log.next_record(at + 1) or file.end, DAMAGED if isinstance(item, Damage) else MISSING
        if end > offset:
            return Range(at, end, state)
        at = end
