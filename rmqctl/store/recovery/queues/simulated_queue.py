"""A consume queue in a simulated recovery.

It is loaded, cut and filled by the broker's rules; nothing is written. Its state is a row of the table FILL_STATES,
which the kernel `queue_simulate` updates. It has the units on disk and new ones; the content of a new unit is not kept,
unless its record has a wrong PHYSICALOFFSET.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
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
_ON_DISK, _NEW, _PRE_BLANK = range(3)


class _OddUnit(NamedTuple):
    """A new unit whose record has a wrong PHYSICALOFFSET."""

    queue_offset: int
    physical_offset: int
    size: int
    end_before: int  # physical offset where the previous unit's record ends


class _Stretch(NamedTuple):
    """The units [start, end) of a file, which are all of the same kind."""

    kind: int
    start: int
    end: int


class FillTable:
    """The table FILL_STATES, a row for each queue, and what all queues share.

    `rows` is replaced by a longer array as the table grows: callers must not keep it.
    """

    def __init__(self, start: StartRules, units_a_file: int) -> None:
        self._start = start
        self.units_a_file = units_a_file
        self._buffer = np.empty(_UNITS_MAX * _UNIT_SIZE, np.uint8)
        self.rows = self._without_units(_ROWS_FIRST)

    def extend_to(self, number: int) -> None:
        """Add rows of queues without units until there is the row `number`."""
        if number >= len(self.rows):
            self.rows = np.concatenate((self.rows, self._without_units(max(len(self.rows), number + 1))))

    def first_unit(
        self, stop: Callable[[Bytes, int, int], int], file: MappedFile | None, start: int, end: int, bound: int
    ) -> int:
        """Return the first unit in [start, end) where the kernel `stop` stops, or `end`.

        Missing bytes of the file read as zeros. Units count from the file's start, even if its name is no multiple of
        20. Raises OSError.
        """
        step = _UNITS_FIRST
        while start < end:
            count = min(step, end - start)
            raw = self._buffer[: count * _UNIT_SIZE]
            got = file.read_into((start - _base_of(file)) * _UNIT_SIZE, raw.data) if file is not None else 0
            raw[got:] = 0
            found = int(stop(raw, count, bound))
            if found < count:
                return start + found
            start += count
            step = min(step * 8, _UNITS_MAX)
        return end

    def _without_units(self, count: int) -> Rows:
        rows = np.zeros(count, queue_simulate.FILL_STATES)
        rows["by_start"], rows["keeps_repeats"] = self._start.repeats_by_start, self._start.keeps_repeats
        rows["max_physical_offset"], rows["appended_from"] = NO_QUEUE, -1
        return rows


class SmallQueues:
    """Recovers many queues at once, which is faster; each has one file, in memory."""

    def __init__(self, table: FillTable) -> None:
        self._table = table
        self._added: list[tuple[int, int, int]] = []  # row of the table, first unit, bytes
        self._units: list[bytes] = []

    def add(self, row: int, files: Sequence[MappedFile]) -> bool:
        """Add the queue of row number `row`, or return False if that is not possible.

        Such a queue has to be recovered alone. Raises OSError.
        """
        is_one = len(files) == 1 and files[0].size and files[0].file_from_offset % _UNIT_SIZE == 0
        content = files[0].content if is_one else None
        if content is None:
            return False
        self._units.append(whole_units(content)[: self._table.units_a_file * _UNIT_SIZE])
        self._added.append((row, _base_of(files[0]), len(self._units[-1])))
        return True

    def recover(self) -> None:
        """Find the ends of the added queues."""
        rows, bases, sizes = np.array(self._added, np.int64).reshape(-1, 3).T.copy()
        raw = np.frombuffer(bytearray().join(self._units), np.uint8)
        queue_simulate.recover(raw, np.cumsum(sizes), rows, bases, self._table.rows)


def begin_at_first_unit(states: Rows, log_start: int, start: StartRules) -> Flags:
    """Correct the min offsets of queues whose units all point into the log.

    Of `states` (rows of FILL_STATES), return which then have a correct min offset. In 4.x, it becomes the queue offset
    of the first unit. In 5.x, it is correct if it is at or after the first unit (`rules.correct_min_offset`).
    """
    known = queue_simulate.are_from(states, log_start)
    if start.expired_queue_begins_at_end:
        return known & (states["min_offset"] >= states["first_base"])
    states["min_offset"][known] = states["first_base"][known]
    return known


def max_offsets(states: Rows) -> Numbers:
    """Return the position after the last unit of each queue, int64; 0 without files.

    `states` are rows of FILL_STATES.
    """
    ends: Numbers = np.where(states["has_files"] != 0, states["base"] + states["wrote"], 0)
    return ends


@dataclass(slots=True, eq=False)
class RecoveredQueue:
    """A simulated consume queue; its state is row number `_row` of `_table`.

    Queue offsets are in units, physical offsets in bytes. Methods raise OSError.
    """

    topic: str
    queue_id: int
    _files: Sequence[MappedFile]  # ascending
    _table: FillTable
    _row: int
    _left_out: Sequence[MappedFile] = ()  # of a wrong length: not loaded, but opened where a new file has its name
    deleted: tuple[str, ...] = ()  # the files that recovery deletes
    cut_from: int | None = None  # max offset before a cut that removed units, less new ones of a wrong PHYSICALOFFSET
    _odd: list[_OddUnit] = field(default_factory=list)
    _new_before_cut: tuple[int, int] = (0, 0)  # the first of these units, and the one after the last
    _rest: int = 0  # bytes after the last unit up to the write position, in a file whose name is no multiple of 20

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
        return int(state["wrote"]) if state["first_base"] == state["base"] else self._table.units_a_file

    @property
    def last_readable(self) -> int:
        """Return how many units of the last file are in use."""
        return int(self._state["wrote"])

    def recover(self) -> None:
        """Find the end in the last three files, and delete later files (recover)."""
        for file in self._files[third_from_end(len(self._files)) :]:
            base = _base_of(file)
            behind = base + self._table.units_a_file
            end = self._table.first_unit(queue_simulate.used_units, file, base, behind, OFFSET_MAX)
            self._end_at(base, end)
            if end > base:
                self._state["max_physical_offset"] = self._after(*_unit_of(file, end - 1))
            if end < behind:
                self._truncate(file.file_from_offset + (end - base) * _UNIT_SIZE)
                break
        for file in self._files:
            file.close()

    def become(self, min_offset: int, max_offset: int, physical_end: int) -> None:
        """Replace the queue by one without gaps: [min_offset, max_offset).

        The record of the last unit ends at `physical_end`.
        """
        state, units = self._state, self._table.units_a_file
        state["has_files"], state["first_base"] = 1, min_offset - min_offset % units
        state["base"] = max(max_offset - 1 - (max_offset - 1) % units, 0)
        state["wrote"], state["max_physical_offset"] = max_offset - int(state["base"]), physical_end
        state["min_offset"] = state["pre_blank_end"] = state["appended_from"] = min_offset
        if min_offset % units:
            state["leads_to"] = 0  # pre-blanks point to 0

    def put(self, physical_offset: int, size: int, queue_offset: int, *, is_odd: bool) -> None:
        """Dispatch one message, by its stored PHYSICALOFFSET.

        `is_odd` is True if the message is at another position in the log.
        """
        state, before = self._state, self.max_offset
        physical_end = int(state["max_physical_offset"]) if state["has_files"] else self._after(0, PRE_BLANK_SIZE)
        one = self._table.rows[self._row : self._row + 1]
        queue_simulate.fill_one(one, physical_offset, size, queue_offset, self._table.units_a_file)
        if is_odd and self.max_offset > before:
            self._odd.append(_OddUnit(self.max_offset - 1, physical_offset, size, physical_end))
            state["leads_to"] = 0

    def cut(self, log_end: int) -> None:
        """Cut off what points to the log's end or later (truncateDirtyLogicFiles).

        In the last file, the broker does not check whether the first unit is in use.
        """
        state, before = self._state, self.max_offset
        physical_end = int(state["max_physical_offset"])
        if state["appended_from"] >= 0:
            self._new_before_cut, state["appended_from"] = (int(state["appended_from"]), before), -1
        state["max_physical_offset"] = log_end
        state["leads_to"] = self._rest = 0
        while state["has_files"]:
            base = int(state["base"])
            first = self.unit(base)
            if first is None or first[0] < log_end:
                end = self._first_bad(base + 1, base + self._table.units_a_file, log_end)
                state["wrote"], state["max_physical_offset"] = end - base, self._record_end(end - 1, physical_end)
                break
            self._delete_last()
        behind = self.max_offset
        new_from, new_end = self._new_before_cut
        self._new_before_cut = min(new_from, behind), min(new_end, behind)
        before -= sum(unit.queue_offset >= behind for unit in self._odd)  # they point to no message
        self.cut_from = before if behind < before else None
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
        for kind, begin, behind in self._record_runs(start, end):
            if kind == _ON_DISK:
                found = self._first_on_disk(queue_simulate.first_reaching, begin, behind, bound)
            elif kind == _NEW:
                below = {unit.queue_offset for unit in self._odd if unit.physical_offset < bound}
                found = next((at for at in range(begin, behind) if at not in below), behind)
            else:
                found = begin if bound <= 0 else behind
            if found < behind:
                return found
        return None

    def unit(self, queue_offset: int) -> tuple[int, int] | None:
        """Return physical offset and size of a unit; None: they were not kept."""
        kind = next(self._record_runs(queue_offset, queue_offset + 1)).kind
        if kind == _NEW:
            return next((unit[1:3] for unit in self._odd if unit.queue_offset == queue_offset), None)
        return (0, PRE_BLANK_SIZE) if kind == _PRE_BLANK else _unit_of(self._file_at(queue_offset), queue_offset)

    @property
    def _state(self) -> Row:
        row: Row = self._table.rows[self._row]
        return row

    def _after(self, physical_offset: int, size: int) -> int:
        return physical_offset + (1 if self._state["by_start"] else size)

    def _file_at(self, queue_offset: int) -> MappedFile | None:
        """Return the last of several files with the unit."""
        files = chain(self._files[-1:], self._files, self._left_out)
        return next((file for file in files if 0 <= queue_offset - _base_of(file) < self._table.units_a_file), None)

    def _end_at(self, base: int, end: int) -> None:
        state = self._state
        state["has_files"], state["first_base"] = 1, _base_of(self._files[0])
        state["base"], state["wrote"] = base, end - base

    def _truncate(self, end: int) -> None:
        """End the files at `end`, in bytes (MappedFileQueue.truncateDirtyFiles).

        A later file that contains `end`, because its name is no multiple of its length, remains the last file.
        """
        self._delete_from(sum(file.file_from_offset <= end for file in self._files))
        last, file_size = self._files[-1], self._table.units_a_file * _UNIT_SIZE
        self._rest = end % file_size % _UNIT_SIZE
        base = _base_of(last)
        if base != self._state["base"] or last.file_from_offset % _UNIT_SIZE:
            self._end_at(base, base + end % file_size // _UNIT_SIZE)

    def _delete_from(self, number: int) -> None:
        self.deleted += tuple(file.name for file in self._files[number:])
        self._files = self._files[:number]

    def _delete_last(self) -> None:
        """Delete the last file; the previous one then counts as full."""
        state = self._state
        base = int(state["base"])
        state["wrote"] = self._table.units_a_file
        if base == state["first_base"]:
            state["has_files"] = state["wrote"] = 0
        if self._files and _base_of(self._files[-1]) == base:
            self._delete_from(len(self._files) - 1)
            state["base"] = _base_of(self._files[-1]) if self._files else base
        else:
            state["base"] = base - self._table.units_a_file
            self._left_out = [file for file in self._left_out if _base_of(file) != base]

    def _record_runs(self, start: int, end: int) -> Iterator[_Stretch]:
        """Divide the units [start, end) of a file into runs of one kind."""
        state, behind = self._state, self.max_offset
        appended_from = int(state["appended_from"]) if state["appended_from"] >= 0 else behind
        ends = [(_PRE_BLANK, 0 if self._files else int(state["pre_blank_end"]))]
        for new_from, new_end in (self._new_before_cut, (appended_from, behind)):
            ends += [(_ON_DISK, new_from), (_NEW, new_end)]
        for kind, until in (*ends, (_ON_DISK, end)):
            if start < min(until, end):
                yield _Stretch(kind, start, min(until, end))
                start = min(until, end)

    def _first_bad(self, start: int, end: int, log_end: int) -> int:
        """Return the first unit in [start, end) that the cut does not keep, or `end`."""
        for kind, begin, behind in self._record_runs(start, end):
            found = behind
            if kind == _ON_DISK:
                found = self._first_on_disk(queue_simulate.used_units, begin, behind, log_end)
            elif kind == _NEW:
                odd = (unit for unit in self._odd if begin <= unit.queue_offset < behind)
                found = next((unit.queue_offset for unit in odd if not 0 <= unit.physical_offset < log_end), behind)
            if found < behind:
                return found
        return end

    def _first_on_disk(self, stop: Callable[[Bytes, int, int], int], start: int, end: int, bound: int) -> int:
        return self._table.first_unit(stop, self._file_at(start), start, end, bound)

    def _record_end(self, queue_offset: int, end_of_last: int) -> int:
        """Return where a unit's record ends; that of the last new one at `end_of_last`."""
        unit = self.unit(queue_offset)
        if unit is not None:
            return self._after(*unit)
        return next((odd.end_before for odd in self._odd if odd.queue_offset == queue_offset + 1), end_of_last)


def _base_of(file: MappedFile) -> int:
    return file.file_from_offset // _UNIT_SIZE


def _unit_of(file: MappedFile | None, queue_offset: int) -> tuple[int, int]:
    """Return physical offset and size of a unit; missing bytes read as zeros."""
    raw = file.read((queue_offset - _base_of(file)) * _UNIT_SIZE, _UNIT_SIZE) if file is not None else b""
    physical_offset, size, _ = CQ_UNIT.struct.unpack(raw.ljust(_UNIT_SIZE, b"\0"))
    return physical_offset, size
