"""The map of a log: what lies where in each file."""

from __future__ import annotations

from bisect import bisect_right
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from rmqctl.forensics.space.log_space import append, joined

if TYPE_CHECKING:
    from collections.abc import Collection

    from rmqctl.format.columns import Numbers, Rows
    from rmqctl.logfile.mapped_file_queue import MappedFileQueue

CELLS = 120  # a bar has these; of what lies in a cell, it shows the kind with the highest rank
BARS_MAX = 200  # in a log of more files, a bar has several
Kind = Literal["unwritten", "missing", "records", "blank", "placeholders", "damaged"]
RANKS: dict[Kind, int] = {"unwritten": 0, "missing": 1, "records": 2, "blank": 3, "placeholders": 4, "damaged": 5}
_KINDS = list(RANKS)


class Run(NamedTuple):
    """Successive cells of one kind."""

    first: int
    cells: int
    kind: Kind


class Bar:
    """A part of the log: a file, a gap between files, or several files of a long log."""

    def __init__(self, begin: int, end: int, names: list[str], expired: int) -> None:
        self.begin, self.end = begin, end  # physical offsets
        self.names = names  # of its files; none in a gap
        self.expired = expired  # how many of them a broker would delete in the next hour of deleteWhen
        self.sizes: dict[Kind, int] = dict.fromkeys(RANKS, 0)
        self.of_topics: list[int] = []  # bytes of messages by the numbers of LogMap.finish
        self._groups: list[Rows] = []
        self._cells = np.zeros(CELLS, np.uint8)

    def put(self, begin: int, end: int, kind: Kind) -> None:
        """Mark the bytes from `begin` to `end`, as far as they are in the bar."""
        begin, end, span = max(begin, self.begin), min(end, self.end), self.end - self.begin
        if begin >= end:
            return
        self.sizes[kind] += end - begin
        self.sizes["records"] -= end - begin if kind == "placeholders" else 0
        cells = self._cells[(begin - self.begin) * CELLS // span : -((self.begin - end) * CELLS // span)]
        np.maximum(cells, RANKS[kind], out=cells)

    @property
    def runs(self) -> list[Run]:
        """What the bar shows, from left to right."""
        found, first = [], 0
        for rank, cells in groupby(self._cells.tolist()):
            found.append(Run(first, len(list(cells)), _KINDS[rank]))
            first += found[-1].cells
        return found

    def add(self, groups: Rows) -> None:
        """Count messages, as rows of GROUPS."""
        groups = groups.copy()
        groups["timestamp"] = 0
        append(self._groups, groups)

    def finish(self, shown: Numbers) -> None:
        """Count what nobody marked as not written yet.

        `shown` is that of LogMap.finish.
        """
        groups, self._groups = joined(self._groups), []
        if len(groups):
            self.of_topics = np.bincount(shown[groups["topic"]], groups["bytes"]).astype(np.int64).tolist()
        self.sizes["unwritten"] = max(self.end - self.begin - sum(self.sizes.values()), 0)


class LogMap:
    """The map of the log files of `queue`.

    `expired` has the names of files that have expired. `put` is called for each part of the log, in any order, then
    `finish`.
    """

    def __init__(self, queue: MappedFileQueue, expired: Collection[str]) -> None:
        self.bars: list[Bar] = []
        files = queue.files
        together = -(-len(files) // BARS_MAX) or 1
        for at in range(0, len(files), together):
            part = files[at : at + together]
            begin, end = part[0].file_from_offset, max(file.end for file in part)
            if self.bars and begin > (before := self.bars[-1].end):
                self.bars.append(Bar(before, begin, [], 0))
                self.bars[-1].put(before, begin, "missing")
            names = [file.name for file in part]
            self.bars.append(Bar(begin, end, names, sum(name in expired for name in names)))
            for file, after in pairwise(part):
                self.bars[-1].put(file.end, after.file_from_offset, "missing")
        self._begins = [bar.begin for bar in self.bars]

    def put(self, begin: int, end: int, kind: Kind, groups: Rows) -> None:
        """Mark the bytes of the log from `begin` to `end`, which are in one file.

        `groups` has rows of GROUPS that count their messages.
        """
        bar = self.bars[max(bisect_right(self._begins, begin) - 1, 0)]
        bar.put(begin, end, kind)
        if len(groups):
            bar.add(groups)

    def finish(self, shown: Numbers) -> None:
        """Count what nobody marked.

        `shown` has the number under which each topic is shown, by the topic's number.
        """
        for bar in self.bars:
            bar.finish(shown)
