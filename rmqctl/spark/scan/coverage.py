"""Check that Spark's tasks read all splits of a log, without gaps.

Each task reports the range of the log that it read; the check uses these, and reads no file.

A task guesses where the first record of its split begins (`rmqctl.store.read.parallel_scan.PartJoin`). After a wrong
guess, the range does not begin where the previous one ended, and the job must run again, and read the split and the
previous one as one split. If no record begins in a split, its range is empty.

If Spark runs a task twice (speculation, or a lost executor), its range counts once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from rmqctl.errors import Unreadable
from rmqctl.spark.scan.record_counts import RecordCounts, total
from rmqctl.spark.scan.split import Split

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class NotAllRead(Unreadable):
    """Spark has not read all splits.

    A query may have needed only a few rows.
    """


class Range(NamedTuple):
    """The physical offsets [begin, end) that a task read for its split.

    Each task reports one range, which may be empty.
    """

    split: Split
    begin: int
    end: int
    of: int  # the number of tasks of the job
    counts: RecordCounts = RecordCounts()  # of messages, blanks and damage in the range


class Coverage(NamedTuple):
    """The ranges that the tasks of a job have read, checked.

    Several stores are counted together.
    """

    joined: bool  # each range begins where the previous one ended
    splits: tuple[Split, ...]  # that the job must read if it runs again, as it must unless `joined`
    counts: RecordCounts  # sums over all ranges
    ranges: tuple[Range, ...]


def sequence_split(root: str) -> Split:
    """Return a split without bytes, for the damage between the files of a log.

    A missing file is such damage.
    """
    return Split(root, "", -1, 0, 0, "", 0, 0)


def range_of(detail: str) -> Range:
    """Return the range that the column `detail` of a row of kind 'range' describes."""
    told = json.loads(detail)
    return Range(Split(*told["split"]), told["begin"], told["end"], told["of"], RecordCounts(*told["counts"]))


def coverage(ranges: Iterable[Range], only: Sequence[Split] = ()) -> Coverage:
    """Check whether the ranges of one job join in every file, without gaps.

    They must cover each file of the log, or if `only` is not empty, the part of each file that the splits in `only`
    cover together, and no other file.

    Raises NotAllRead if a split is missing, and Unreadable if the splits leave out a part of a file, or if two tasks
    report different ranges or counts for one split.
    """
    files: Mapping[tuple[str, str], list[Range]] = defaultdict(list)
    unique = sorted(set(ranges), key=lambda found: (found.split.root, found.split.file, found.split.start))
    for before, found in pairwise(unique):
        if before.split == found.split:
            _raise_changed(found.split)
    for found in unique:
        if found.split != sequence_split(found.split.root):
            files[found.split.root, found.split.path].append(found)
    parts = _parts(only)
    for place, of_file in files.items():
        _check_whole(of_file, parts.pop(place, None))
    if parts:
        raise NotAllRead("a part of the log was not read", path=next(iter(parts))[1])
    if not unique:
        raise NotAllRead("nothing proves that it was read: Spark skipped it")
    if len(unique) != unique[0].of:
        raise NotAllRead(f"of {unique[0].of} splits, {len(unique)} were read", path=unique[0].split.root)
    read = [split for of_file in files.values() for split in _joined(of_file)]
    joined = len(read) == sum(map(len, files.values()))
    return Coverage(joined, tuple(read), total(found.counts for found in unique), tuple(unique))


def check_pieces(ranges: Iterable[Range], messages: int) -> None:
    """Raise Unreadable if the tasks have not read all pieces.

    `messages` is the number of their messages, as an earlier reading of the log has counted them.
    """
    unique = set(ranges)
    tasks = max((found.of for found in unique), default=0)
    found = total(one.counts for one in unique).messages
    if (len(unique), found) != (tasks, messages):
        raise Unreadable(
            f"a second reading found {found} of {messages} messages",
            path=next((one.split.root for one in unique), ""),
            hint="try again on a copy of the store",
        )


def _raise_changed(split: Split) -> NoReturn:
    what = "Spark read this file twice, and it changed in between"
    raise Unreadable(
        what,
        path=split.path or split.root,
        offset=split.file_from_offset + split.start,
        hint="try again on a copy of the store",
    )


def _parts(splits: Sequence[Split]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return for each file the positions [start, stop) that `splits` cover."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for split in splits:
        start, stop = found.get((split.root, split.path), (split.start, split.stop))
        found[split.root, split.path] = min(start, split.start), max(stop, split.stop)
    return found


def _check_whole(ranges: Sequence[Range], part: tuple[int, int] | None) -> None:
    # `part` are the positions [start, stop) in the file to read, None for the whole file
    first, last = ranges[0].split, ranges[-1].split
    start, stop = part or (0, last.size + 1)  # at the file's end an item may begin, too
    gaps = [before.split.stop for before, after in pairwise(ranges) if before.split.stop != after.split.start]
    gaps = [start] if first.start != start or ranges[0].begin != first.file_from_offset + start else gaps
    if not gaps and last.stop < stop:
        gaps = [last.stop]
    if gaps:
        raise Unreadable("a part of the file was not read", path=first.path, offset=first.file_from_offset + gaps[0])


def _joined(ranges: Sequence[Range]) -> list[Split]:
    """Merge splits whose ranges do not join; return all splits of the file.

    Two ranges join if the second begins where the first ended. Splits with empty ranges between two merged ones are
    merged, too.
    """
    read: list[Range] = []
    end = ranges[0].split.file_from_offset
    for found in ranges:
        if read and found.begin not in (found.end, end):
            while len(read) > 1 and read[-1].begin == read[-1].end:
                read.pop()
            read[-1] = read[-1]._replace(split=read[-1].split._replace(stop=found.split.stop))
        else:
            read.append(found)
        end = found.end if found.begin != found.end else end
    return [found.split for found in read]
