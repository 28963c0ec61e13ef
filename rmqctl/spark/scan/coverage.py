"""Whether the splits of a log were all read, and join: pure, from what each task says of its own split.

A split begins at the first record in it, which is a guess (`rmqctl.store.read.parallel_scan.PartJoin`). No driver reads
these splits again on its own: where two do not join, both must be read once more, as one split. A split without a
record belongs to the one before it as a whole.

Spark may run a task twice (speculation, a lost executor), and then hands over its range twice: each split counts once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from rmqctl.errors import Unreadable
from rmqctl.spark.scan.log_split import Split
from rmqctl.spark.scan.record_counts import RecordCounts, total

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Range(NamedTuple):
    """What was read of a split: [begin, end), physical offsets; nothing where they are the same. It is one of `of`."""

    split: Split
    begin: int
    end: int
    of: int
    counts: RecordCounts = RecordCounts()


class Coverage(NamedTuple):
    """What a job's ranges come to: where `joined`, the counts of all of them.

    Otherwise `splits` are to be read instead.
    """

    joined: bool
    splits: tuple[Split, ...]
    counts: RecordCounts


def sequence_split(root: str) -> Split:
    """Return what stands for the sequence of a log's files in a range.

    No bytes, but gaps between files are counted with it.
    """
    return Split(root, "", -1, 0, 0, "", 0, 0)


def range_of(physical_offset: int, size: int, detail: str) -> Range:
    """Return a row of kind 'range'."""
    told = json.loads(detail)
    return Range(
        Split(*told["split"]), physical_offset, physical_offset + size, told["of"], RecordCounts(*told["counts"])
    )


def coverage(ranges: Iterable[Range]) -> Coverage:
    """Return whether the ranges of one job join in every file, and otherwise what to read.

    Raises Unreadable where a split is missing, or all are, or where two tasks found different records in one split.
    """
    files: Mapping[tuple[str, str], list[Range]] = defaultdict(list)
    unique = sorted(set(ranges), key=lambda found: (found.split.root, found.split.file, found.split.start))
    for before, found in pairwise(unique):
        if before.split == found.split:
            _raise_changed(found.split)
    for found in unique:
        if found.split != sequence_split(found.split.root):
            files[found.split.root, found.split.path].append(found)
    for of_file in files.values():
        _check_whole(of_file)
    if not unique:
        raise Unreadable("nothing proves that it was read: Spark skipped it")
    if len(unique) != unique[0].of:
        raise Unreadable(f"of {unique[0].of} splits, {len(unique)} were read", path=unique[0].split.root)
    read = [split for of_file in files.values() for split in _joined(of_file)]
    joined = len(read) == sum(map(len, files.values()))
    return Coverage(joined, tuple(read), total(found.counts for found in unique))


def _raise_changed(split: Split) -> NoReturn:
    what = "Spark read this file twice, and it changed in between"
    raise Unreadable(
        what,
        path=split.path or split.root,
        offset=split.file_from_offset + split.start,
        hint="try again on a copy of the store",
    )


def _check_whole(ranges: Sequence[Range]) -> None:
    """Raise Unreadable where the splits of a file leave out a part of it."""
    first, last = ranges[0].split, ranges[-1].split
    gaps = [before.split.stop for before, after in pairwise(ranges) if before.split.stop != after.split.start]
    gaps = [0] if first.start else gaps
    if not gaps and last.stop <= last.size:  # at the file's end an item may begin, too
        gaps = [last.stop]
    if gaps:
        raise Unreadable("a part of the file was not read", path=first.path, offset=first.file_from_offset + gaps[0])


def _joined(ranges: Sequence[Range]) -> list[Split]:
    """Return the splits of a file.

    Where one does not begin where the one before it ended, both as one, with the empty ones between.
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
