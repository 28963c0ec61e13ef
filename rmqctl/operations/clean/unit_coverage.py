"""Whether the queues' units lead to every message of a file of the log, found out without reading the file.

The units of a file that leads to its messages without a gap form a chain: the first begins where the file begins, each
of the others where another one ends, and the last one ends at the blank record. No chain has to be built to prove it.
Each place where a unit begins counts once for it and each place where one ends once against it; where all places but
the chain's two ends cancel out, the units are one chain, since a unit never ends before it begins. A place counts as a
hash of 64 bits, so that a file takes a few bytes of memory.

Units of LMQ queues are left out: the message has a unit in its own queue too. A file without proof is not known to lack
anything: messages that belong to no queue (prepared ones of 3.x), damage and deleted topics leave gaps as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import PRE_BLANK_SIZE
from rmqctl.format.message import Blank
from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.store.read.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqctl.format.columns import Numbers
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore


def files_without_proof(store: ReadOnlyStore, files: Sequence[MappedFile]) -> list[MappedFile]:
    """Return those of `files`, neighbours in the log, that may have messages which no unit leads to. Raises OSError."""
    chains = _Chains(files)
    for (topic, _), queue in store.queues.items():
        if not topic.startswith(LMQ_PREFIX):
            for places, sizes in _units(queue, chains.begin, chains.end):
                chains.add(places, sizes)
    return [file for number, file in enumerate(files) if not _is_whole(store, file, chains.end_of(number))]


class _Chains:
    """The units of each of `files` (not empty), by what their begins and ends leave over."""

    def __init__(self, files: Sequence[MappedFile]) -> None:
        self.begin = files[0].file_from_offset
        self.end = files[-1].end
        self._borders = np.array([*(file.file_from_offset for file in files), self.end], dtype=np.int64)
        self._left_over = _hashes(self._borders[:-1])
        self._ends = self._borders[:-1].copy()

    def add(self, places: Numbers, sizes: Numbers) -> None:
        """Add units: their physical offsets and sizes (int64, bytes)."""
        numbers = np.searchsorted(self._borders, places, side="right") - 1
        inside = (numbers >= 0) & (numbers < len(self._ends))
        numbers, places, ends = numbers[inside], places[inside], (places + sizes)[inside]
        np.subtract.at(self._left_over, numbers, _hashes(places))
        np.add.at(self._left_over, numbers, _hashes(ends))
        np.maximum.at(self._ends, numbers, ends)

    def end_of(self, number: int) -> int | None:
        """Return the physical offset at which the chain of a file ends.

        None: its units are not one chain.
        """
        end = self._ends[number : number + 1]
        return int(end[0]) if self._left_over[number] == _hashes(end)[0] else None


def _hashes(places: Numbers) -> Numbers:
    """Return a number of 64 bits for each physical offset (splitmix64)."""
    mixed = places.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _units(queue: UnitQueue, begin: int, end: int) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield (physical offsets, sizes) of the units of a queue that lead into [begin, end), and one more."""
    first = queue.first_where(lambda unit: unit.physical_offset >= begin)
    if first is None or first.physical_offset >= end:
        return
    if not isinstance(queue, ConsumeQueue):
        units = [(unit.physical_offset, unit.size) for unit in queue.units(first.queue_offset, queue.max_offset)]
        yield (
            np.array([place for place, _ in units], dtype=np.int64),
            np.array([size for _, size in units], dtype=np.int64),
        )
        return
    for _, data in queue.blocks(first.queue_offset, queue.max_offset):
        units_here = np.frombuffer(data, UNITS)
        places, sizes = units_here["physicalOffset"].astype(np.int64), units_here["size"].astype(np.int64)
        used = (sizes > 0) & (sizes != PRE_BLANK_SIZE)
        yield places[used], sizes[used]
        if places[-1] >= end:
            return


def _is_whole(store: ReadOnlyStore, file: MappedFile, end: int | None) -> bool:
    """Return whether nothing but the blank record follows the chain that ends at `end`."""
    if end is None or end >= file.end:
        return end == file.end
    rest = store.commit_log.at(end)
    return isinstance(rest, Blank) and rest.end == file.end
