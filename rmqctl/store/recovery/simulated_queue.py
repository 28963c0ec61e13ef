"""A consume queue in a simulated recovery.

The simulation loads, cuts and fills the queue by the broker's rules, but writes nothing. The table FILL_STATES has one
row for each queue. The kernel `queue_simulate` updates the table. A simulated queue has the units on disk and new
units. The simulation does not keep the contents of a new unit, unless its record has a wrong PHYSICALOFFSET.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.format.cq_unit import CQ_UNIT, PRE_BLANK_SIZE, whole_units
from rmqctl.kernels import queue_simulate
from rmqctl.logfile.mapped_file_queue import OFFSET_MAX
from rmqctl.store.config.store_path import CONSUMEQUEUE
from rmqctl.store.recovery import rules
from rmqctl.store.recovery.rules import NO_QUEUE, third_from_end

if TYPE_CHECKING:
    from rmqctl.format.columns import Bytes, Flags, Numbers, Row, Rows
    from rmqctl.format.profile import StartRules
    from rmqctl.logfile.mapped_file import MappedFile

_UNIT_SIZE = CQ_UNIT.size
_UNITS_FIRST, _UNITS_MAX = 256, 65536  # most queues' files are nearly empty; a full one is read in large steps
_ROWS_FIRST = 64
_ON_DISK, _NEW, _PRE_BLANK, _ZERO = range(4)


class _OddUnit(NamedTuple):
    """A new unit whose record has a wrong PHYSICALOFFSET.

    `end_before` is the physical offset where the previous unit's record ends.
    """

    queue_offset: int
    physical_offset: int
    size: int
    end_before: int


class _Stretch(NamedTuple):
    """The units [start, end) of a file, which are all of the same kind."""

    kind: int
    start: int
    end: int


class _Kept(NamedTuple):
    """What recovery keeps of a file; the last record ends at `physical_end`."""

    end: int
    physical_end: int


class UnitReader:
    """Reads raw units of all queues through one buffer."""

    def __init__(self) -> None:
        self._buffer = np.empty(_UNITS_MAX * _UNIT_SIZE, np.uint8)

    def units(self, file: MappedFile, start: int, end: int) -> Iterator[tuple[int, Bytes, int]]:
        """Yield (first unit, bytes, number of units) for each part of a file.

        The units [start, end) are read. If the file is too short, the missing bytes are zeros. The first unit is at the
        file's start, even if the file's name is no multiple of 20. Raises OSError.
        """
        base = file.file_from_offset // _UNIT_SIZE
        step = _UNITS_FIRST
        while start < end:
            count = min(step, end - start)
            raw = self._buffer[: count * _UNIT_SIZE]
            got = file.read_into((start - base) * _UNIT_SIZE, raw.data)
            raw[got:] = 0
            yield start, raw, count
            start += count
            step = min(step * 8, _UNITS_MAX)


class SmallQueues:
    """Recovers many queues at once; each queue has one file.

    The units of each file are in memory. Units after the first `units_a_file` units of a file are ignored.
    """

    def __init__(self, units_a_file: int) -> None:
        self._bytes_a_file = units_a_file * _UNIT_SIZE
        self._rows: list[int] = []
        self._bases: list[int] = []
        self._units: list[bytes] = []

    def add(self, row: int, files: Sequence[MappedFile]) -> bool:
        """Add the queue with row number `row` of FILL_STATES.

        Returns False if this class cannot recover the queue. Raises OSError.
        """
        is_one = len(files) == 1 and files[0].size and files[0].file_from_offset % _UNIT_SIZE == 0
        content = files[0].content if is_one else None
        if content is None:
            return False
        self._rows.append(row)
        self._bases.append(files[0].file_from_offset // _UNIT_SIZE)
        self._units.append(whole_units(content)[: self._bytes_a_file])
        return True

    def recover(self, states: Rows) -> None:
        """Find the ends of the added queues. `states` are rows of FILL_STATES."""
        ends = np.cumsum([len(units) for units in self._units], dtype=np.int64)
        rows, bases = np.array(self._rows, np.int64), np.array(self._bases, np.int64)
        queue_simulate.recover(np.frombuffer(bytearray().join(self._units), np.uint8), ends, rows, bases, states)


def begin_at_first_unit(states: Rows, log_start: int, start: StartRules) -> Flags:
    """Correct the min offsets of queues whose units all point into the log.

    In 4.x, the min offset becomes the queue offset of the first unit. In 5.x, the min offset is correct if it is at or
    after the first unit (`rules.correct_min_offset`). The result has True for each queue with a correct min offset.
    `states` are rows of FILL_STATES.
    """
    known = queue_simulate.are_from(states, log_start)
    if start.expired_queue_begins_at_end:
        return known & (states["min_offset"] >= states["first_base"])
    states["min_offset"][known] = states["first_base"][known]
    return known


class FillTable:
    """The table FILL_STATES: a row for each queue.

    `rows` is replaced by a longer array while the table grows, so no caller may keep `rows`.
    """

    def __init__(self, start: StartRules) -> None:
        self._start = start
        self.rows = _rows_without_units(_ROWS_FIRST, start)

    def extend_to(self, number: int) -> None:
        """Add rows of queues without units until there is the row `number`."""
        if number >= len(self.rows):
            self.rows = np.concatenate((self.rows, _rows_without_units(max(len(self.rows), number + 1), self._start)))


def _rows_without_units(count: int, start: StartRules) -> Rows:
    rows = np.zeros(count, queue_simulate.FILL_STATES)
    rows["by_start"], rows["keeps_repeats"] = start.repeats_by_start, start.keeps_repeats
    rows["max_physical_offset"], rows["appended_from"] = NO_QUEUE, -1
    return rows


def max_offsets(states: Rows) -> Numbers:
    """Return the position after the last unit of each queue, int64.

    The position is 0 if the queue has no files. `states` are rows of FILL_STATES.
    """
    ends: Numbers = np.where(states["has_files"] != 0, states["base"] + states["wrote"], 0)
    return ends


class RecoveredQueue:
    """A simulated consume queue with `files`, in ascending order.

    Each file has `units_a_file` units. The files `left_out`, of a wrong length, are not loaded. The broker opens one
    when it needs a new file of this name. Queue offsets are in units, physical offsets in bytes. Methods raise OSError.

    The state of the queue is row number `row` of `table`. `deleted` names the files that recovery deletes. `cut_from`
    is the max offset before the cut, or None if no units were cut. New units for records with a wrong PHYSICALOFFSET do
    not change `cut_from`.
    """

    __slots__ = (
        "_files",
        "_left_out",
        "_odd",
        "_reader",
        "_regions",
        "_rest",
        "_row",
        "_table",
        "_units_a_file",
        "cut_from",
        "deleted",
        "queue_id",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        files: Sequence[MappedFile],
        units_a_file: int,
        table: FillTable,
        row: int,
        reader: UnitReader,
        left_out: Sequence[MappedFile] = (),
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.deleted: tuple[str, ...] = ()
        self.cut_from: int | None = None
        self._files = files
        self._left_out = left_out
        self._units_a_file = units_a_file
        self._table = table
        self._row = row
        self._regions: tuple[tuple[int, int], ...] = ()
        self._odd: list[_OddUnit] = []
        self._rest = 0  # bytes after the last unit up to the write position, in a file whose name is no multiple of 20
        self._reader = reader

    @property
    def name(self) -> str:
        """Return the folder of the queue."""
        return f"{CONSUMEQUEUE}/{self.topic}/{self.queue_id}"

    @property
    def min_offset(self) -> int:
        """Return the min offset that `correct_min_offset` has found."""
        return int(self._state["min_offset"])

    @property
    def max_offset(self) -> int:
        """Return the position after the last unit; 0 if the queue has no files."""
        return int(max_offsets(self._state))

    @property
    def first(self) -> int:
        """Return the queue offset of the first unit in the first file."""
        return int(self._state["first_base"])

    @property
    def readable(self) -> int:
        """Return how many units of the first file are in use."""
        state = self._state
        return int(state["wrote"]) if state["first_base"] == state["base"] else self._units_a_file

    @property
    def last_readable(self) -> int:
        """Return how many units of the last file are in use."""
        return int(self._state["wrote"])

    def recover(self) -> None:
        """Find the end in the last three files, and delete later files (recover)."""
        state = self._state
        for number in range(third_from_end(len(self._files)), len(self._files)):
            file = self._files[number]
            kept = self._used_on_disk(file, self._base_of(file), self._base_of(file) + self._units_a_file, OFFSET_MAX)
            self._end_at(self._base_of(file), kept.end)
            if kept.end > self._base_of(file):
                state["max_physical_offset"] = kept.physical_end
            if kept.end < self._base_of(file) + self._units_a_file:
                self._truncate(file.file_from_offset + (kept.end - self._base_of(file)) * _UNIT_SIZE)
                break
        for file in self._files:
            file.close()

    def become(self, min_offset: int, max_offset: int, physical_end: int) -> None:
        """Replace the queue by one without gaps: [min_offset, max_offset).

        The record of the last unit ends at `physical_end`.
        """
        state, units = self._state, self._units_a_file
        state["has_files"], state["first_base"] = 1, min_offset - min_offset % units
        state["base"] = max(max_offset - 1 - (max_offset - 1) % units, 0)
        state["wrote"], state["min_offset"] = max_offset - int(state["base"]), min_offset
        state["max_physical_offset"], state["pre_blank_end"] = physical_end, min_offset
        self._regions = ((min_offset, max_offset),)

    def put(self, physical_offset: int, size: int, queue_offset: int, *, is_odd: bool) -> None:
        """Dispatch one message.

        `physical_offset` is the PHYSICALOFFSET of the message. `is_odd` is True if `physical_offset` is not the
        position of the message in the log.
        """
        state, before = self._state, self.max_offset
        physical_end = int(state["max_physical_offset"]) if state["has_files"] else self._after(0, PRE_BLANK_SIZE)
        one = self._table.rows[self._row : self._row + 1]
        queue_simulate.fill_one(one, physical_offset, size, queue_offset, self._units_a_file)
        if is_odd and self.max_offset > before:
            self._odd.append(_OddUnit(self.max_offset - 1, physical_offset, size, physical_end))

    def cut(self, log_end: int) -> None:
        """Cut off what points to the log's end or later (truncateDirtyLogicFiles)."""
        state, before = self._state, self.max_offset
        state["leads_to"] = self._rest = 0
        if state["appended_from"] >= 0:
            self._regions += ((int(state["appended_from"]), before),)
            state["appended_from"] = -1
        physical_end = int(state["max_physical_offset"])
        state["max_physical_offset"] = log_end
        while state["has_files"]:
            kept = self._kept_of_last_file(log_end, physical_end)
            if kept is not None:
                state["wrote"], state["max_physical_offset"] = kept.end - int(state["base"]), kept.physical_end
                break
            ends = (unit.end_before for unit in self._odd if unit.queue_offset == state["base"])
            physical_end = next(ends, physical_end)
            self._delete_last()
        behind = self.max_offset
        before -= sum(unit.queue_offset >= behind for unit in self._odd)  # they point to no message
        self.cut_from = before if behind < before else None
        self._regions = tuple((start, min(end, behind)) for start, end in self._regions if start < behind)
        self._odd = [unit for unit in self._odd if unit.queue_offset < behind]

    def destroy(self) -> None:
        """Delete all files of the queue."""
        self._delete_from(0)
        state = self._state
        state["leads_to"] = 0
        state["max_physical_offset"], state["has_files"], state["min_offset"] = NO_QUEUE, 0, 0

    def correct_min_offset(self, log_start: int, start: StartRules) -> str | None:
        """Find the min offset of the queue; return None, or why a broker fails."""
        if not self._state["has_files"]:
            if start.forgets_min_without_files:
                self._state["min_offset"] = 0
            return None
        refusal = rules.empty_last_file_refusal(self, start)
        if refusal is None:
            self._state["min_offset"] = rules.correct_min_offset(self, log_start, start)
        for file in (*self._files, *self._left_out):
            file.close()
        return refusal

    def physical_offset(self, queue_offset: int) -> int:
        """Return the physical offset in a unit, or OFFSET_MAX if it is unknown."""
        if self._rest and queue_offset == self.max_offset - 1 and self._state["appended_from"] < 0:
            at = (self.last_readable - 1) * _UNIT_SIZE + self._rest  # as brokers do: 20 bytes before the write position
            return int.from_bytes(self._files[-1].read(at, 8), "big", signed=True)
        unit = self.unit(queue_offset)
        return OFFSET_MAX if unit is None else unit[0]

    def first_reaching(self, start: int, end: int, bound: int) -> int | None:
        """Return the first unit in [start, end) of a file that reaches `bound`."""
        for record_run in self._record_runs(start, end):
            if record_run.kind == _ON_DISK:
                found = self._first_reaching_on_disk(record_run, bound)
            elif record_run.kind == _NEW:
                below = {unit.queue_offset for unit in self._odd if unit.physical_offset < bound}
                found = next((at for at in range(record_run.start, record_run.end) if at not in below), None)
            else:
                found = record_run.start if bound <= 0 else None
            if found is not None:
                return found
        return None

    @property
    def _state(self) -> Row:
        row: Row = self._table.rows[self._row]
        return row

    def _after(self, physical_offset: int, size: int) -> int:
        return physical_offset + (1 if self._state["by_start"] else size)

    def _base_of(self, file: MappedFile) -> int:
        return file.file_from_offset // _UNIT_SIZE

    def _file_at(self, queue_offset: int) -> MappedFile | None:
        """Return the file on disk with a unit, the last one of several, or None."""
        if self._files and 0 <= queue_offset - self._base_of(self._files[-1]) < self._units_a_file:
            return self._files[-1]
        files = (*self._files, *self._left_out)
        return next((file for file in files if 0 <= queue_offset - self._base_of(file) < self._units_a_file), None)

    def _end_at(self, base: int, end: int) -> None:
        state = self._state
        state["has_files"], state["first_base"] = 1, self._base_of(self._files[0])
        state["base"], state["wrote"] = base, end - base

    def _truncate(self, end: int) -> None:
        """End the files at `end`, in bytes (MappedFileQueue.truncateDirtyFiles).

        A later file that contains `end`, because its name is no multiple of its length, remains the last file.
        """
        kept = sum(file.file_from_offset <= end for file in self._files)
        self._delete_from(kept)
        last = self._files[-1]
        self._rest = end % (self._units_a_file * _UNIT_SIZE) % _UNIT_SIZE
        if self._base_of(last) != self._state["base"] or last.file_from_offset % _UNIT_SIZE:
            base = self._base_of(last)
            self._end_at(base, base + end % (self._units_a_file * _UNIT_SIZE) // _UNIT_SIZE)

    def _delete_from(self, number: int) -> None:
        self.deleted += tuple(file.name for file in self._files[number:])
        self._files = self._files[:number]

    def _delete_last(self) -> None:
        """Delete the last file, and treat the previous file as full."""
        state = self._state
        base = int(state["base"])
        state["wrote"] = self._units_a_file
        if base == state["first_base"]:
            state["has_files"] = state["wrote"] = 0
        if self._files and self._base_of(self._files[-1]) == base:
            self._delete_from(len(self._files) - 1)
            state["base"] = self._base_of(self._files[-1]) if self._files else base
        else:
            state["base"] = base - self._units_a_file
            self._left_out = [file for file in self._left_out if self._base_of(file) != base]

    def _record_runs(self, start: int, end: int) -> Iterator[_Stretch]:
        """Divide the units [start, end) of a file into runs of one kind."""
        state = self._state
        regions = list(self._regions)
        if state["appended_from"] >= 0:
            regions.append((int(state["appended_from"]), self.max_offset))
        rest = _ON_DISK if self._file_at(start) is not None else _ZERO
        if int(state["pre_blank_end"]) > start and not self._files:
            regions.insert(0, (start, int(state["pre_blank_end"])))
        for number, (begin, behind) in enumerate(sorted(regions)):
            if behind <= start or begin >= end:
                continue
            if begin > start:
                yield _Stretch(rest, start, begin)
            is_pre_blank = number == 0 and behind == state["pre_blank_end"]
            yield _Stretch(_PRE_BLANK if is_pre_blank else _NEW, max(start, begin), min(end, behind))
            start = min(end, behind)
        if start < end:
            yield _Stretch(rest, start, end)

    def _kept_of_last_file(self, log_end: int, physical_end: int) -> _Kept | None:
        """Return the part of the last file that recovery keeps.

        None: its first unit points to the log's end or after it. The broker does not check whether it is in use.
        """
        base = int(self._state["base"])
        kept = _Kept(base, log_end)
        first = self.unit(base)
        if first is not None:
            if first[0] >= log_end:
                return None
            kept = _Kept(base + 1, self._after(*first))
        for record_run in self._record_runs(kept.end, base + self._units_a_file):
            kept = self._kept_of(record_run, kept, log_end, physical_end)
            if kept.end < record_run.end:
                break
        return kept

    def _kept_of(self, record_run: _Stretch, kept: _Kept, log_end: int, physical_end: int) -> _Kept:
        """Return `kept` plus the units of `record_run` that recovery keeps."""
        if record_run.kind == _PRE_BLANK:
            return _Kept(record_run.end, self._after(0, PRE_BLANK_SIZE))
        if record_run.kind == _NEW:
            for unit in self._odd:
                if record_run.start <= unit.queue_offset < record_run.end and not 0 <= unit.physical_offset < log_end:
                    return _Kept(unit.queue_offset, unit.end_before)
            return _Kept(record_run.end, physical_end)
        file = self._file_at(record_run.start)
        if record_run.kind == _ZERO or file is None:
            return kept
        found = self._used_on_disk(file, record_run.start, record_run.end, log_end)
        return found if found.end > record_run.start else kept

    def unit(self, queue_offset: int) -> tuple[int, int] | None:
        """Return physical offset and size of a unit; None: they were not kept."""
        record_run = next(self._record_runs(queue_offset, queue_offset + 1))
        if record_run.kind == _NEW:
            found = next((unit for unit in reversed(self._odd) if unit.queue_offset == queue_offset), None)
            return found and (found.physical_offset, found.size)
        file = self._file_at(queue_offset)
        if record_run.kind == _PRE_BLANK:
            return 0, PRE_BLANK_SIZE
        if record_run.kind == _ZERO or file is None:
            return 0, 0
        raw = file.read((queue_offset - self._base_of(file)) * _UNIT_SIZE, _UNIT_SIZE).ljust(_UNIT_SIZE, b"\0")
        physical_offset, size, _ = CQ_UNIT.struct.unpack(raw)
        return physical_offset, size

    def _used_on_disk(self, file: MappedFile, start: int, end: int, bound: int) -> _Kept:
        """Return the part of a file from unit `start` to the first bad unit.

        A unit is bad if it is not in use, or if it points to `bound` or after it. If no unit in [start, end) is bad,
        the part ends at `end`.
        """
        physical_end = NO_QUEUE
        for at, raw, count in self._reader.units(file, start, end):
            used = int(queue_simulate.used_units(raw, count, bound))
            if used:
                physical_offset, size, _ = CQ_UNIT.struct.unpack_from(raw.data, (used - 1) * _UNIT_SIZE)
                physical_end = self._after(physical_offset, size)
            if used < count:
                return _Kept(at + used, physical_end)
        return _Kept(end, physical_end)

    def _first_reaching_on_disk(self, record_run: _Stretch, bound: int) -> int | None:
        file = self._file_at(record_run.start)
        for at, raw, count in self._reader.units(file, record_run.start, record_run.end) if file else ():
            found = int(queue_simulate.first_reaching(raw, count, bound))
            if found < count:
                return at + found
        return None
