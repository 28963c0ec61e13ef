"""Falls of the broker's clock: store times that fall along the log.

A broker stamps a message under the lock that gives it its place, so store times never fall unless its clock does. A
clock went back where store times fall by more than a minute (NTP slews smaller steps), from at least two records to at
least two: a single record with another time is a damaged one.

What depends on it: a search by time is binary (getOffsetInQueueByTime, in all versions), index files are chosen by
their times, and a recovery begins by the times of log files and checkpoint.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.format.message import Message
from rmqctl.format.timestamp import duration, rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rmqctl.format.columns import Numbers
    from rmqctl.format.cq_unit import CqUnit
    from rmqctl.store.read.commit_log import CommitLog
    from rmqctl.store.read.consume_queue import UnitQueue

FALL_MS = 60_000
SMALL = 1 << 20  # a log of so many bytes is read whole
STEP = 1 << 16  # bytes
FILES_READ = 32
CHUNK = 4096  # messages that are looked at together
OFFSET_END = 1 << 63


class ClockFall(NamedTuple):
    """The first message after the clock went back, from one store time to another.

    Times are in ms since 1970.
    """

    physical_offset: int
    before: int
    after: int

    @property
    def words(self) -> str:
        """Say when, how far and where the clock went back."""
        return (
            f"the clock went back by {duration(self.before - self.after)} at physical offset {self.physical_offset}, "
            f"from {rfc3339(self.before) or self.before} to {rfc3339(self.after) or self.after}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the fall for a JSON document."""
        return {
            "physicalOffset": self.physical_offset,
            "fromTimestamp": self.before,
            "fromTime": rfc3339(self.before),
            "toTimestamp": self.after,
            "toTime": rfc3339(self.after),
        }


class ClockWatch:
    """Finds falls in the store times of messages, given in log order."""

    def __init__(self) -> None:
        self._falls: list[ClockFall] = []
        self._parts: list[tuple[Numbers | Sequence[int], Numbers | Sequence[int]]] = []
        self._count = 0

    def hear(self, offsets: Numbers | Sequence[int], times: Numbers | Sequence[int]) -> None:
        """Take the physical offsets and the store times (ms) of messages."""
        self._parts.append((offsets, times))
        self._count += len(times)
        if self._count >= CHUNK:
            self._look()

    def falls(self) -> tuple[ClockFall, ...]:
        """Return the falls that were found, in log order."""
        self._look()
        return tuple(self._falls)

    def _look(self) -> None:
        if not self._parts:
            return
        import numpy as np  # not at the start of a command that only reads small parts

        offsets, times = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        lower = np.flatnonzero(times[1:] < times[:-1] - FALL_MS) + 1
        self._falls += _falls(offsets, times, lower.tolist())
        self._parts, self._count = [(offsets[-3:], times[-3:])], 0


def _falls(
    offsets: Numbers | Sequence[int], times: Numbers | Sequence[int], numbers: Iterable[int]
) -> Iterator[ClockFall]:
    for number in numbers:
        if 2 <= number < len(times) - 1:
            first, before, at, following = (int(time) for time in times[number - 2 : number + 2])
            if max(at, following) < before - FALL_MS and at < first - FALL_MS:
                yield ClockFall(int(offsets[number]), before, at)


class LogClock:
    """The falls of the broker's clock in a log; a large one is not scanned.

    Of a log over 1 MiB, the first messages of at most 32 files are read, and the log is searched between two whose
    times fall. A fall is not found if the times between these two rise as far. Raises OSError.
    """

    def __init__(self, log: CommitLog) -> None:
        self.falls: tuple[ClockFall, ...] = ()
        self._log = log
        self._last: Message | None = None
        files = log.files_in_use()
        if not files or log.has_entries:
            return
        if files[-1].end - log.min_offset <= SMALL:
            self.falls = tuple(_read(log, log.min_offset, files[-1].end))
            return
        firsts = (log.message_at(file.file_from_offset) for file in files[:: -(-len(files) // FILES_READ)])
        samples = [message for message in firsts if message is not None]
        self._last = samples[-1] if samples else None
        falls = (fall for one, two in pairwise(samples) for fall in _between(log, one, two))
        self.falls = tuple({fall.physical_offset: fall for fall in falls}.values())

    def falls_until(self, message: Message | None) -> tuple[ClockFall, ...]:
        """Return the falls, also those up to a later message. Raises OSError."""
        if self._last is None or message is None or message.physical_offset <= self._last.physical_offset:
            return self.falls
        more = _between(self._log, self._last, message)
        return tuple({fall.physical_offset: fall for fall in (*self.falls, *more)}.values())


def _message_from(log: CommitLog, place: int) -> Message | None:
    found = log.next_record(place)
    return None if found is None else log.message_at(found)


def _between(log: CommitLog, one: Message, two: Message) -> Iterator[ClockFall]:
    if two.store_timestamp >= one.store_timestamp - FALL_MS:
        return
    begin, end = one.physical_offset, two.physical_offset
    middle = _message_from(log, (begin + end) // 2) if end - begin > SMALL else None
    if middle is None or middle.physical_offset >= end:
        yield from _read(log, begin, end + STEP)
        return
    yield from _between(log, one, middle)
    yield from _between(log, middle, two)


def _read(log: CommitLog, begin: int, end: int) -> Iterator[ClockFall]:
    items = log.scan(start=begin, stop=end)
    messages = [(item.physical_offset, item.store_timestamp) for item in items if isinstance(item, Message)]
    offsets, times = [offset for offset, _ in messages], [time for _, time in messages]
    yield from _falls(offsets, times, range(len(times)))


def time_at_end(falls: Sequence[ClockFall], physical_offset: int, time: int) -> int:
    """Return a store time by the clock that the log ends with, in ms since 1970.

    A clock that was ahead, and is right again, changes nothing for a message of a time before.
    """
    for fall in falls:
        if fall.physical_offset > physical_offset and time > fall.after:
            time -= fall.before - fall.after
    return time


def first_stored_at(log: CommitLog, falls: Sequence[ClockFall], queue: UnitQueue, time: int) -> CqUnit | None:
    """Return a queue's first unit whose message was stored at `time` or later.

    Store times only rise between two falls, so each of these parts has a binary search. Raises OSError.
    """
    begin = log.min_offset
    for end in (*(fall.physical_offset for fall in falls), OFFSET_END):

        def is_from(unit: CqUnit, begin: int = begin, end: int = end) -> bool:
            if not begin <= unit.physical_offset < end:
                return unit.physical_offset >= end
            message = log.message_at(unit.physical_offset)
            return message is not None and message.store_timestamp >= time

        found = queue.first_where(is_from)
        if found is None or found.physical_offset < end:
            return found
        begin = end
    return None
