"""The reader of consume queues: their units, first offsets and end offsets.

A queue file is named by the byte offset, in the queue, of its first unit; unit n begins at byte n * unit size of the
queue. The units in use begin in the first file and end before the first unused one (format/cq_unit.py). Only zeros
follow the last unit in use, so it is found by bisection; `verify` reads every unit.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rmqctl.format.cq_unit import BATCH_CQ_UNIT, CQ_UNIT, PRE_BLANK_SIZE, CqUnit, whole_units
from rmqctl.logfile.queue_slots import QueueSlots
from rmqctl.logfile.system.zeros import used_length

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqctl.logfile.mapped_file_queue import MappedFileQueue


class ScannedEnd(NamedTuple):
    """The ends of a queue, as queue offsets."""

    max_offset: int  # after the last unit in use
    data_end: int  # from here on, the queue has only zeros


class UnitQueue(Protocol):
    """The methods that ConsumeQueue and BatchConsumeQueue have."""

    topic: str
    queue_id: int
    queue: MappedFileQueue
    unit_size: int

    def min_offset(self, min_physical_offset: int) -> int:
        """Return the queue offset of the queue's first message that is in the log.

        The log begins at `min_physical_offset`. If it has no message of the queue, this is the max offset.
        """

    def min_and_max(self, min_physical_offset: int) -> tuple[int, int]:
        """Return the min offset (as in `min_offset`) and the max offset of the queue."""

    def correct_min_offset(self, min_physical_offset: int, end: int, *, expired_begins_at_end: bool) -> int:
        """Return the min offset that a broker sets when it loads the queue."""

    @property
    def max_offset(self) -> int:
        """Return the queue offset after the last message."""

    @property
    def used_end(self) -> int:
        """Return the byte offset in the queue at which the last unit in use ends."""

    def units(self, start: int, end: int) -> Iterator[CqUnit]:
        """Return the units at the queue offsets [start, end)."""

    def iterate_from(self, queue_offset: int, end: int) -> Iterator[CqUnit] | None:
        """Return the units of one queue file at the queue offsets [queue_offset, end).

        None if no queue file contains `queue_offset`.
        """

    def first_where(self, holds: Callable[[CqUnit], bool]) -> CqUnit | None:
        """Return the first unit for which `holds` is True, or None.

        The search is a bisection: where `holds` is True, it must be True for all later units.
        """

    def find(self, queue_offset: int) -> CqUnit | None:
        """Return the unit at a queue offset, or None if no unit is there."""

    def last(self) -> CqUnit | None:
        """Return the last unit in use, or None if no unit is in use."""


def _cq_used(raw: bytes) -> bool:
    physical_offset, size, _ = CQ_UNIT.struct.unpack(raw)
    return bool(physical_offset >= 0 and size > 0)


def _batch_used(raw: bytes) -> bool:
    physical_offset, size, _, _, base_offset, count, _, _ = BATCH_CQ_UNIT.struct.unpack(raw)
    return bool(physical_offset >= 0 and size > 0 and base_offset >= 0 and count > 0)


class ConsumeQueue:
    """One queue of a topic; each unit has 20 bytes.

    The methods raise OSError if a file cannot be read.
    """

    __slots__ = ("_units", "queue", "queue_id", "topic")
    unit_size = CQ_UNIT.size

    def __init__(self, topic: str, queue_id: int, queue: MappedFileQueue) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.queue = queue
        self._units = QueueSlots(queue, CQ_UNIT.size)

    @property
    def first_offset(self) -> int:
        """Return the queue offset of the first slot, used or not; 0 without a file."""
        return self._units.first_slot

    @property
    def max_offset(self) -> int:
        """Return the queue offset after the last unit in use."""
        last = self._units.last_used(_cq_used)
        return last + 1 if last is not None else self.first_offset

    @property
    def used_end(self) -> int:
        """Return the byte offset in the queue at which the last unit in use ends."""
        return self.max_offset * CQ_UNIT.size

    def min_offset(self, min_physical_offset: int) -> int:
        """Return the queue offset of the first unit that points to a message in the log.

        The log begins at `min_physical_offset`. If it has no message of the queue, this is the max offset.
        """
        return self.min_and_max(min_physical_offset)[0]

    def min_and_max(self, min_physical_offset: int) -> tuple[int, int]:
        """Return the min offset (as in `min_offset`) and the max offset of the queue."""
        count = self._units_in_memory(min_physical_offset)
        if count:
            first_offset = self.first_offset
            return first_offset, first_offset + count
        end = self.max_offset
        first = self.first_where(lambda unit: unit.physical_offset >= min_physical_offset, end)
        return first.queue_offset if first else end, end

    def _small_units(self) -> bytes | None:
        """Return the bytes of the queue's units, without the zeros at the end.

        None if the storage does not cache them, or if they are longer than the slots of the file.
        """
        content = self.queue.small_content
        if content is None:
            return None
        units = whole_units(content)
        return units if len(units) <= self.queue.files[0].size else None

    def _units_in_memory(self, min_physical_offset: int) -> int:
        """Return the number of units in memory, or 0 if the files must be searched.

        They are in memory if the storage caches the queue's only file. 0 also if one of them is unused, pre-blank, or
        points before `min_physical_offset`.
        """
        small = self._small_units()
        if small is None:
            return 0
        for offset, size, _ in CQ_UNIT.struct.iter_unpack(small):
            if offset < min_physical_offset or not 0 < size < PRE_BLANK_SIZE:
                return 0
        return len(small) // CQ_UNIT.size

    def first_where(self, holds: Callable[[CqUnit], bool], end: int | None = None) -> CqUnit | None:
        """Return the first unit for which `holds` is True, or None; never a pre-blank.

        The search is a bisection: where `holds` is True, it must be True for all later units. `end` is the queue's max
        offset, if the caller knows it.
        """

        def behind(queue_offset: int) -> bool:
            unit = self.find(queue_offset)
            return unit is not None and not unit.is_pre_blank and holds(unit)

        candidates = range(self.first_offset, self.max_offset if end is None else end)
        at = bisect_left(candidates, True, key=behind)
        return self.find(candidates[at]) if at < len(candidates) else None

    def find(self, queue_offset: int) -> CqUnit | None:
        """Return the unit at a queue offset, or None if no unit in use is there."""
        raw = self._units.raw(queue_offset) if queue_offset >= self.first_offset else None
        if raw is None or not _cq_used(raw):
            return None
        return CqUnit(queue_offset, *CQ_UNIT.struct.unpack(raw))

    def last(self) -> CqUnit | None:
        """Return the last unit in use, or None if there is none or it is a pre-blank."""
        last = self._units.last_used(_cq_used)
        unit = self.find(last) if last is not None else None
        return None if unit is None or unit.is_pre_blank else unit

    def units(self, start: int, end: int) -> Iterator[CqUnit]:
        """Yield the units in use at the queue offsets [start, end), in order."""
        for slot, data in self._units.blocks(start, end):
            for at, (physical_offset, size, tags_code) in enumerate(CQ_UNIT.struct.iter_unpack(data), slot):
                if physical_offset >= 0 and size > 0:
                    yield CqUnit(at, physical_offset, size, tags_code)

    def iterate_from(self, queue_offset: int, end: int) -> Iterator[CqUnit] | None:
        """Return the units of one queue file at the queue offsets [queue_offset, end).

        None if no queue file has a slot for `queue_offset`.
        """
        file = self.queue.find(queue_offset * CQ_UNIT.size)
        return None if file is None else self.units(queue_offset, min(end, file.end // CQ_UNIT.size))

    def correct_min_offset(self, min_physical_offset: int, end: int, *, expired_begins_at_end: bool) -> int:
        """Return the min offset that a broker sets when it loads the queue.

        As in RocketMQ's ConsumeQueue.correctMinOffset, it is the queue offset of the first unit in the first queue
        file, pre-blank or not, that points to `min_physical_offset` or later, and 0 if there is none. With
        `expired_begins_at_end` (5.x), it is `end`, the queue offset after the last loaded unit, if the last unit points
        before `min_physical_offset`.
        """

        def reached(queue_offset: int) -> bool:
            unit = self.find(queue_offset)
            return unit is not None and unit.physical_offset >= min_physical_offset

        if not self.queue.files:
            return 0
        last = self.find(end - 1) if expired_begins_at_end else None
        if last is not None and last.physical_offset < min_physical_offset:
            return end
        candidates = range(self.first_offset, min(self.queue.files[0].end // CQ_UNIT.size, end))
        at = bisect_left(candidates, True, key=reached)
        return candidates[at] if at < len(candidates) else 0

    def end_by_scan(self) -> ScannedEnd:
        """Return the end of the units in use, and the end of the data, without bisection.

        In a damaged queue, a bisection could be wrong. The files are scanned from the last to the first, until a unit
        in use is found.
        """
        small = self._small_units()
        if small and _cq_used(small[-CQ_UNIT.size :]):
            end = self.first_offset + len(small) // CQ_UNIT.size
            return ScannedEnd(end, end)
        data_end = None
        for slot, data in self._units.blocks_backwards():
            slots = min(-(-used_length(data) // CQ_UNIT.size), len(data) // CQ_UNIT.size)
            if slots and data_end is None:
                data_end = slot + slots
            for at in range(slots - 1, -1, -1):
                if _cq_used(data[at * CQ_UNIT.size : (at + 1) * CQ_UNIT.size]):
                    return ScannedEnd(slot + at + 1, data_end or slot + slots)
        return ScannedEnd(self.first_offset, data_end or self.first_offset)

    def blocks(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield the slots [start, end) in blocks: (first queue offset, bytes).

        The bytes of a block are whole slots, in use or not. Missing files, and holes in sparse files, are left out.
        """
        return self._units.blocks(start, end)

    def parts(self, start: int, end: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield the slots [start, end): (first queue offset, number of slots, bytes).

        The bytes are whole slots, in use or not, and empty if the whole part is in a hole of a sparse file (zeros).
        Slots in missing files are left out.
        """
        return self._units.parts(start, end)

    @property
    def slots_end(self) -> int:
        """Return the queue offset after the last slot of the last file; 0 without a file."""
        return self.queue.files[-1].end // CQ_UNIT.size if self.queue.files else 0


class BatchConsumeQueue:
    """A batch consume queue of 5.x (queue.type=BatchCQ).

    Each unit has 46 bytes and represents a batch of `count` queue offsets.
    """

    unit_size = BATCH_CQ_UNIT.size

    def __init__(self, topic: str, queue_id: int, queue: MappedFileQueue) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.queue = queue
        self._units = QueueSlots(queue, BATCH_CQ_UNIT.size)

    @property
    def used_end(self) -> int:
        """Return the byte offset in the queue at which the last unit in use ends."""
        return self._candidates().stop * BATCH_CQ_UNIT.size

    @property
    def max_offset(self) -> int:
        """Return the queue offset after the last batch, or 0 if there is no batch."""
        last = self.last()
        return last.queue_offset + last.batch_size if last else 0

    def min_offset(self, min_physical_offset: int) -> int:
        """Return the base offset (of the first message) of the first batch in the log.

        The log begins at `min_physical_offset`. If it has no batch of the queue, this is the max offset.
        """
        return self.min_and_max(min_physical_offset)[0]

    def min_and_max(self, min_physical_offset: int) -> tuple[int, int]:
        """Return the min offset (as in `min_offset`) and the max offset of the queue."""
        first = self.first_where(lambda unit: unit.physical_offset >= min_physical_offset)
        end = self.max_offset
        return first.queue_offset if first else end, end

    def correct_min_offset(self, min_physical_offset: int, end: int, *, expired_begins_at_end: bool) -> int:  # noqa: ARG002 -- ConsumeQueue's
        """Return the min offset that a broker sets when it loads the queue.

        It is the base offset of the first batch in the first queue file that is in the log, and without such a batch
        the queue offset at the end of this file. A queue without a batch has -1.
        """
        if self.last() is None:
            return -1
        first = self.first_where(lambda unit: unit.physical_offset >= min_physical_offset)
        behind_first_file = self._unit(self.queue.files[0].end // BATCH_CQ_UNIT.size)
        return min(
            [unit.queue_offset for unit in (first, behind_first_file) if unit is not None], default=self.max_offset
        )

    def first_where(self, holds: Callable[[CqUnit], bool]) -> CqUnit | None:
        """Return the first batch for which `holds` is True, or None.

        The search is a bisection: where `holds` is True, it must be True for all later batches.
        """

        def behind(slot: int) -> bool:
            unit = self._unit(slot)
            return unit is not None and holds(unit)

        candidates = self._candidates()
        at = bisect_left(candidates, True, key=behind)
        return self._unit(candidates[at]) if at < len(candidates) else None

    def find(self, queue_offset: int) -> CqUnit | None:
        """Return the batch that contains a queue offset, or None if no batch does."""
        slot = self._slot_of(queue_offset)
        return None if slot is None else self._unit(slot)

    def iterate_from(self, queue_offset: int, end: int) -> Iterator[CqUnit] | None:
        """Return the batches of one queue file, from `queue_offset` to `end`.

        The first batch contains `queue_offset`, and the last begins before `end`. None if no batch contains
        `queue_offset`.
        """
        slot = self._slot_of(queue_offset)
        file = None if slot is None else self.queue.find(slot * BATCH_CQ_UNIT.size)
        if slot is None or file is None:
            return None
        units = map(self._unit, range(slot, file.end // BATCH_CQ_UNIT.size))
        return takewhile(lambda unit: unit.queue_offset < end, (unit for unit in units if unit is not None))

    def last(self) -> CqUnit | None:
        """Return the last batch, or None if the queue has no batch."""
        last = self._units.last_used(_batch_used)
        return self._unit(last) if last is not None else None

    def units(self, start: int, end: int) -> Iterator[CqUnit]:
        """Yield each batch that has a queue offset in [start, end), in order."""
        candidates = self._candidates()
        for _, data in self._units.blocks(candidates.start, candidates.stop):
            for physical_offset, size, tags_code, _, base, count, _, _ in BATCH_CQ_UNIT.struct.iter_unpack(data):
                if base < end and base + count > start:
                    yield CqUnit(base, physical_offset, size, tags_code, count)

    def _slot_of(self, queue_offset: int) -> int | None:
        def base_offset(slot: int) -> int:
            unit = self._unit(slot)
            return unit.queue_offset if unit else -1

        candidates = self._candidates()
        at = bisect_right(candidates, queue_offset, key=base_offset) - 1
        unit = self._unit(candidates[at]) if at >= 0 else None
        return candidates[at] if unit and queue_offset < unit.queue_offset + unit.batch_size else None

    def _candidates(self) -> range:
        last = self._units.last_used(_batch_used)
        return range(self._units.first_slot, last + 1 if last is not None else self._units.first_slot)

    def _unit(self, slot: int) -> CqUnit | None:
        raw = self._units.raw(slot)
        if raw is None or not _batch_used(raw):
            return None
        physical_offset, size, tags_code, _, base, count, _, _ = BATCH_CQ_UNIT.struct.unpack(raw)
        return CqUnit(base, physical_offset, size, tags_code, count)
