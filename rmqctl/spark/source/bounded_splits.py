"""Choose splits by a range of physical offsets and store times.

For physical offsets, a split is left out only if no record that is wanted can begin in it.

Brokers store messages in the order of their store times, so the first message of each file says which times the file
can have. If the times of these first messages go back anywhere in the log, no file is left out because of its time.
Inside a file, some messages are sampled, and the places of the wanted times are searched for between two of them, with
a minute to spare. If the samples go back by more, the whole file is read.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.spark.scan.split import MIB, whole_file
from rmqctl.store.read.clock import FALL_MS
from rmqctl.store.read.file_scan import cuts, next_readable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmqctl.forensics.message_filter import Filter
    from rmqctl.format.message import Message
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.spark.scan.split import Split
    from rmqctl.store.read.commit_log import CommitLog


SEARCH_MIN = 16 * MIB  # up to here, to search in a file would take longer than to read
SAMPLES = 16  # of a file
FAR = 8 * MIB  # a sample is searched for so far: longer than a message
NEAR = MIB  # how near to the wanted time a search ends
NEVER = 2**63  # ms, later than all store times


class Bounds(NamedTuple):
    """A range of physical offsets, and one of store times in ms since 1970.

    Both ends are included; None is no limit.
    """

    from_offset: int | None = None
    last_offset: int | None = None
    since: int | None = None
    until: int | None = None

    @classmethod
    def of(cls, wanted: Filter) -> Bounds:
        """Return the bounds that a filter sets."""
        last = None if wanted.to_offset is None else wanted.to_offset - 1
        return cls(wanted.from_offset, last, wanted.since, wanted.until)

    def within(self, *, of_offsets: bool, low: int | None, high: int | None) -> Bounds:
        """Return narrower bounds, of physical offsets or of store times."""
        if of_offsets:
            return self._replace(
                from_offset=_later(self.from_offset, low), last_offset=_earlier(self.last_offset, high)
            )
        return self._replace(since=_later(self.since, low), until=_earlier(self.until, high))


NO_BOUNDS = Bounds()


def _later(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _earlier(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)


def splits_within(log: CommitLog, root: Path, split_size: int, bounds: Bounds) -> list[Split]:
    """Return the splits of a log that can have records in `bounds`.

    Those of one file follow one another, and the first begins with a record, or at the beginning of the file.
    """
    splits: list[Split] = []
    in_time = _in_time(log, bounds)
    for number, file in enumerate(log.queue.files):
        whole = whole_file(log, file, number, root)
        if in_time[number]:
            inner = _in_file(log, file, bounds)
            begin = _begin(log, file, inner.from_offset, split_size)
            stop = None if inner.last_offset is None else inner.last_offset + 1 - file.file_from_offset
            places = () if begin is None else cuts(file, split_size, begin, stop)
            splits += [whole._replace(start=start, stop=stop) for start, stop in places]
        file.close()
    return splits


def _in_file(log: CommitLog, file: MappedFile, bounds: Bounds) -> Bounds:
    """Return `bounds`, limited to the part of a file that can have its times."""
    if (bounds.since is None and bounds.until is None) or file.size <= SEARCH_MIN:
        return bounds
    try:
        samples = _samples(log, file)
        if any(later < earlier - FALL_MS for (_, earlier), (_, later) in pairwise(samples)):
            return bounds
        low = None if bounds.since is None else _around(log, file, samples, bounds.since - FALL_MS)[0]
        high = None if bounds.until is None else _around(log, file, samples, bounds.until + FALL_MS + 1)[1]
    except OSError:  # a task tells where
        return bounds
    return bounds.within(of_offsets=True, low=low, high=high)


def _samples(log: CommitLog, file: MappedFile) -> list[tuple[int, int]]:
    """Return the physical offset and the store time of some messages.

    The end of the file comes last, with NEVER.
    """
    near = (_message_near(log, file, begin) for begin in range(0, file.size, file.size // SAMPLES))
    return [*((one.physical_offset, one.store_timestamp) for one in near if one is not None), (file.end, NEVER)]


def _message_near(log: CommitLog, file: MappedFile, position: int) -> Message | None:
    found = next_readable(file, position, position + FAR, reader=log.reader_of(file))
    return None if found is None else log.message_at(file.file_from_offset + found)


def _around(log: CommitLog, file: MappedFile, samples: Sequence[tuple[int, int]], time: int) -> tuple[int, int]:
    """Return two physical offsets, between which store times reach `time` (ms).

    Messages before the first have earlier times, and those from the second on have this time or a later one.
    """
    after = next(number for number, (_, at) in enumerate(samples) if at >= time)
    (low, earliest), (high, latest) = samples[max(after - 1, 0)], samples[after]
    base = file.file_from_offset
    while high - low > NEAR:
        middle = (low + high) // 2
        if file.next_data(middle - base) >= high - base:  # a hole, as behind the end of the log
            high = middle
            continue
        found = _message_near(log, file, middle - base)
        if found is None or not earliest - FALL_MS <= found.store_timestamp <= latest + FALL_MS:
            break  # a blank or damage does not tell
        if found.physical_offset >= high or found.store_timestamp >= time:
            high = middle
        else:
            low = found.physical_offset
    return low, high


def _begin(log: CommitLog, file: MappedFile, low: int | None, split_size: int) -> int | None:
    """Return the position in a file at which reading begins.

    No record at the physical offset `low` or later begins before. None if the file ends before `low`.
    """
    if low is None or low <= file.file_from_offset:
        return 0
    if file.end < low:  # damage may begin at the end of a file
        return None
    target = low - file.file_from_offset
    if target <= min(split_size, SEARCH_MIN):
        return 0
    from rmqctl.kernels import scan
    from rmqctl.spark.scan.task_kernels import warm_up_once
    from rmqctl.spark.source.stream.boundary import LOOK_BACK, boundary

    warm_up_once(scan)
    known = file.file_from_offset
    try:
        position = boundary(log, known, max(known, low - LOOK_BACK)) - known
    except OSError:
        return 0
    # at a damaged place, the task would search for a later record, and leave out the damage
    is_record = (
        position <= target and next_readable(file, position, position + 1, reader=log.reader_of(file)) == position
    )
    return position if is_record else 0


def _in_time(log: CommitLog, bounds: Bounds) -> list[bool]:
    """Return for each file whether it can have messages of the wanted times.

    A file without a message at its beginning is read, and so is the file before it.
    """
    files = log.queue.files
    if bounds.since is None and bounds.until is None:
        return [True] * len(files)
    firsts = []
    for file in files:
        message = log.message_at(file.file_from_offset)
        firsts.append(None if message is None else message.store_timestamp)
        file.close()
    known = [first for first in firsts if first is not None]
    if any(later < earlier for earlier, later in pairwise(known)):
        return [True] * len(files)
    is_early = [
        bounds.since is not None and later is not None and later < bounds.since for later in (*firsts[1:], None)
    ]
    is_late = [bounds.until is not None and first is not None and first > bounds.until for first in firsts]
    return [not early and not late for early, late in zip(is_early, is_late, strict=True)]
