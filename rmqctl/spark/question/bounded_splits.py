"""Choose splits by a range of physical offsets and store times.

For physical offsets, a split is left out only if no record that is wanted can begin in it.

For store times, whole files are left out, by the rule of `rmqctl dump --since`: brokers store messages in the order of
their store times, so the first message of each file says which times the file can have. If the times of these first
messages go back anywhere in the log, no file is left out because of its time.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.spark.scan.split import whole_file
from rmqctl.store.read.file_scan import cuts, next_readable

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.spark.scan.split import Split
    from rmqctl.store.read.commit_log import CommitLog


class Bounds(NamedTuple):
    """A range of physical offsets, and one of store times in ms since 1970.

    Both ends are included; None is no limit.
    """

    from_offset: int | None = None
    last_offset: int | None = None
    since: int | None = None
    until: int | None = None

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
            begin = _begin(log, file, bounds.from_offset, split_size)
            places = [] if begin is None else cuts(file, split_size, begin)
            last = bounds.last_offset
            splits += [
                whole._replace(start=start, stop=stop)
                for start, stop in places
                if last is None or file.file_from_offset + start <= last
            ]
        file.close()
    return splits


def _begin(log: CommitLog, file: MappedFile, low: int | None, split_size: int) -> int | None:
    """Return the position in a file at which reading begins.

    No record at the physical offset `low` or later begins before. None if the file ends before `low`.
    """
    if low is None or low <= file.file_from_offset:
        return 0
    if file.end < low:  # damage may begin at the end of a file
        return None
    target = low - file.file_from_offset
    if target <= split_size:  # to search would take longer than to read
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
