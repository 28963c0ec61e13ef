"""The slots in the files of a queue, each with space for one unit."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.logfile.mapped_file_queue import MappedFileQueue

UNITS_PER_READ = 16384
_SLOTS_OF_BLOCK = 100  # 2000 bytes of a consume queue: a smaller read takes as long


class UsedTest(Protocol):
    """Decides whether a slot contains a unit in use."""

    def __call__(self, raw: bytes, /) -> bool:
        """Return whether `raw`, the bytes of a slot, is a unit in use."""


def _end_of_data(file: MappedFile, unit_size: int) -> int:
    """Return how many slots at the start of a file may have data."""
    return -(-file.known_data_end // unit_size)


class _FileSlots:
    """The slots of one queue file, read in blocks.

    The last block that was read stays in memory for the next steps of a bisection.
    """

    def __init__(self, file: MappedFile, unit_size: int) -> None:
        self._file = file
        self._unit_size = unit_size
        self._number = -1
        self._block = b""
        self._end = _end_of_data(file, unit_size)

    def has(self, slot: int, used: UsedTest) -> bool:
        if slot >= self._end:
            return False
        number, at = divmod(slot, _SLOTS_OF_BLOCK)
        if number != self._number:
            size = _SLOTS_OF_BLOCK * self._unit_size
            self._number, self._block = number, self._file.read(number * size, size)
        raw = self._block[at * self._unit_size : (at + 1) * self._unit_size]
        return len(raw) == self._unit_size and used(raw)


class QueueSlots:
    """The slots in the files of a queue, each with space for one unit.

    Slot n begins at byte n * unit size of the queue.
    """

    __slots__ = ("queue", "unit_size")

    def __init__(self, queue: MappedFileQueue, unit_size: int) -> None:
        self.queue = queue
        self.unit_size = unit_size

    @property
    def first_slot(self) -> int:
        """Return the number of the first slot in the files."""
        return self.queue.min_offset // self.unit_size

    def slots_of(self, file: MappedFile) -> int:
        """Return how many slots a file has."""
        return file.size // self.unit_size

    def raw(self, slot: int) -> bytes | None:
        """Return the bytes of a slot, or None if its file is missing or too short."""
        file = self.queue.find((slot + 1) * self.unit_size - 1)
        if file is None:
            return None
        data = file.read((slot - file.file_from_offset // self.unit_size) * self.unit_size, self.unit_size)
        return data if len(data) == self.unit_size else None

    def blocks(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield the slots [start, end) in blocks: (number of the first slot, bytes).

        The bytes of a block are whole slots. Missing files, and holes in sparse files, are left out.
        """
        return ((slot, data) for slot, _, data in self.parts(start, end) if data)

    def parts(self, start: int, end: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield the slots [start, end) in parts: (first slot, number of slots, bytes).

        The bytes are empty if the whole part is in a hole. Slots in missing files are left out.
        """
        for file in self.queue.files:
            base = file.file_from_offset // self.unit_size
            slot, stop = max(start, base), min(end, base + self.slots_of(file))
            if slot < stop:
                yield from self._parts_of(file, base, slot, stop)

    def _parts_of(self, file: MappedFile, base: int, slot: int, stop: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield the slots as `parts` does; `base` is the number of the file's first one."""
        data_end = min(stop, base + _end_of_data(file, self.unit_size))
        while slot < data_end:
            hole_end = min(base + file.next_data((slot - base) * self.unit_size) // self.unit_size, data_end)
            if hole_end > slot:
                yield slot, hole_end - slot, b""
                slot = hole_end
                continue
            count = min(UNITS_PER_READ, data_end - slot)
            data = file.read((slot - base) * self.unit_size, count * self.unit_size)
            whole = len(data) // self.unit_size
            if not whole:
                return
            yield slot, whole, data[: whole * self.unit_size]
            slot += whole
        if slot < stop:
            yield slot, stop - slot, b""

    def blocks_backwards(self) -> Iterator[tuple[int, bytes]]:
        """Yield all slots as `blocks` does, from the last block to the first."""
        for file in reversed(self.queue.files):
            base = file.file_from_offset // self.unit_size
            stop = min(self.slots_of(file), _end_of_data(file, self.unit_size))
            while stop > 0:
                start = max(stop - UNITS_PER_READ, 0)
                if file.next_data(start * self.unit_size) < stop * self.unit_size:
                    data = file.read(start * self.unit_size, (stop - start) * self.unit_size)
                    yield base + start, data[: len(data) // self.unit_size * self.unit_size]
                stop = start

    def last_used(self, used: UsedTest) -> int | None:
        """Search the files from the last to the first, each by bisection."""
        for file in reversed(self.queue.files):
            count = self._used_in(file, used)
            if count:
                return file.file_from_offset // self.unit_size + count - 1
        return None

    def _used_in(self, file: MappedFile, used: UsedTest) -> int:
        """Count the slots in use; if they end in the first block, one read is enough."""
        slots = _FileSlots(file, self.unit_size)
        count = self.slots_of(file)
        ends_in_first_block = count > _SLOTS_OF_BLOCK and not slots.has(_SLOTS_OF_BLOCK - 1, used)
        searched = range(_SLOTS_OF_BLOCK if ends_in_first_block else count)
        return bisect_left(searched, True, key=lambda slot: not slots.has(slot, used))
