"""Fill and recover consume queues as a broker does, many messages at once.

`fill` moves the end of a queue as ConsumeQueue.putMessagePositionInfo does, but writes nothing: for each queue, it
needs the numbers in FILL_STATES, but no units. The kernels `recover`, `used_units` and `first_reaching` read raw units
of 20 bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.format.columns import Bytes, Flags, Numbers, Row, Rows


import numpy as np

from rmqctl.format.columns import row_type
from rmqctl.format.cq_unit import CQ_UNIT
from rmqctl.format.sys_flag import TRANSACTION_MASK, TransactionType
from rmqctl.kernels.compile import i32, i64, total
from rmqctl.kernels.dispatch_scan import DISPATCH_COLUMNS
from rmqctl.kernels.kernel import inline_kernel, kernel_or_plain

# the state of a queue, in units; only max_physical_offset is a physical offset, after the record of the last unit. The
# last file begins at `base`, and `wrote` of its units are in use. Units [appended_from, base + wrote) are new (-1: no
# unit is new). New pre-blank units, if any, end at pre_blank_end. All units on the disk point to physical offsets in
# [leads_from, leads_to): an empty range if there is none; if leads_to is 0, it is not known where they point, or new
# units do not simply point to their records. With by_start, max_physical_offset is one byte after the *start* of that
# record. With keeps_repeats, a queue offset before the queue's end gets a unit at the end.
FILL_STATES = row_type(
    "i8 max_physical_offset first_base base wrote min_offset appended_from pre_blank_end leads_from leads_to",
    "i4 has_files is_batch by_start keeps_repeats",
)

_UNIT = CQ_UNIT.size
_SIZE = CQ_UNIT.offset("size")
_PREPARED, _ROLLBACK, _MASK = int(TransactionType.PREPARED), int(TransactionType.ROLLBACK), TRANSACTION_MASK


@inline_kernel
def _put(state: Row, physical_offset: int, size: int, queue_offset: int, units_a_file: int) -> None:
    physical_end = total(physical_offset, 1 if state.by_start else size)
    if physical_end <= state.max_physical_offset:
        return
    if not state.has_files:
        state.has_files = 1
        in_file = queue_offset % units_a_file
        state.base = total(queue_offset, -in_file)
        state.first_base = state.base
        state.wrote = 0
        state.appended_from = -1
        state.pre_blank_end = queue_offset
        if queue_offset != 0:
            state.min_offset = queue_offset
            state.wrote = in_file
            if in_file:
                state.leads_to = 0  # pre-blanks point to 0
    elif state.wrote == units_a_file:
        state.base = total(state.base, units_a_file)
        state.wrote = 0
    if queue_offset != 0 and queue_offset < total(state.base, state.wrote) and not state.keeps_repeats:
        return
    state.max_physical_offset = physical_end
    if state.appended_from < 0:
        state.appended_from = total(state.base, state.wrote)
    state.wrote += 1


@kernel_or_plain
def fill(messages: Rows, row: int, queues: Numbers, states: Rows, units_a_file: int, one_by_one: int) -> int:
    """Dispatch messages, from row `row` on, by changing the states of their queues.

    Returns the row at which the kernel stopped: before a message of a batch queue, or with one of the traits
    `one_by_one`. `messages` are rows of DISPATCH_COLUMNS, `states` rows of FILL_STATES; that of queue number n is
    `states[queues[n]]`.
    """
    while row < len(messages):
        message = messages[row]
        kind = message.sys_flag & _MASK
        if kind not in (_PREPARED, _ROLLBACK):
            state = states[queues[message.queue]]
            if state.is_batch or message.traits & one_by_one:
                return row
            _put(state, message.physical_offset, message.size, message.queue_offset, units_a_file)
        row += 1
    return row


def are_dispatched(messages: Rows) -> Flags:
    """Return, for each message, whether `fill` dispatches it.

    `messages` are rows of DISPATCH_COLUMNS. Those of open or rolled-back transactions are not dispatched.
    """
    kind = messages["sys_flag"] & _MASK
    found: Flags = (kind != _PREPARED) & (kind != _ROLLBACK)
    return found


@kernel_or_plain
def fill_one(state: Row, physical_offset: int, size: int, queue_offset: int, units_a_file: int) -> None:
    """Put one unit into a queue; the queue's state is the only row of `state`."""
    _put(state[0], physical_offset, size, queue_offset, units_a_file)


@kernel_or_plain
def recover(raw: Bytes, ends: Numbers, rows: Numbers, bases: Numbers, states: Rows) -> None:
    """Recover consume queues that have one file each, as ConsumeQueue.recover does.

    The state of queue number n is row `rows[n]` of `states` (FILL_STATES); its file begins at the queue offset
    `bases[n]`. `raw` (uint8) has the units of all queues, queue by queue; those of queue n end before `ends[n]`.
    """
    at = 0
    for number in range(len(rows)):
        state = states[rows[number]]
        state.has_files, state.first_base, state.base, state.wrote = 1, bases[number], bases[number], 0
        while at < ends[number]:
            physical_offset, size = i64(raw, at), i32(raw, at + _SIZE)
            if physical_offset < 0 or size <= 0:
                break
            state.leads_from = min(state.leads_from, physical_offset) if state.wrote else physical_offset
            state.leads_to = max(state.leads_to, total(physical_offset, 1))
            state.max_physical_offset = total(physical_offset, 1 if state.by_start else size)
            state.wrote += 1
            at += _UNIT
        at = ends[number]


def are_before(states: Rows, log_end: int) -> Flags:
    """Return, for each queue, whether a truncation at `log_end` keeps all units.

    That is so if all are on the disk, or all are new, and each points to an offset before `log_end`, and its last file
    has a unit. `states` are rows of FILL_STATES.
    """
    are_known: Flags = (states["leads_to"] > 0) & (states["leads_to"] <= log_end) & (states["wrote"] > 0)
    are_new = (states["leads_from"] >= states["leads_to"]) & (states["max_physical_offset"] <= log_end)
    return are_known & ((states["appended_from"] < 0) | are_new)


def are_from(states: Rows, log_start: int) -> Flags:
    """Return, for each queue, whether all units point to `log_start` or later.

    Units that are not on the disk are not examined. `states` are rows of FILL_STATES.
    """
    found: Flags = (states["leads_to"] > 0) & (states["leads_from"] >= log_start)
    return found


@kernel_or_plain
def used_units(raw: Bytes, count: int, bound: int) -> int:
    """Count the used units at the start of `raw` that point before `bound`.

    Counting stops at `count`, or at the first unit that is unused, or points to `bound` or beyond. `raw` is uint8;
    `bound` is a physical offset.
    """
    for unit in range(count):
        at = unit * _UNIT
        physical_offset = i64(raw, at)
        if physical_offset < 0 or physical_offset >= bound or i32(raw, at + _SIZE) <= 0:
            return unit
    return count


@kernel_or_plain
def first_reaching(raw: Bytes, count: int, bound: int) -> int:
    """Return the number of the first unit that points to `bound` or beyond.

    If there is none, return `count`, the number of units in `raw` (uint8), used or unused. `bound` is a physical
    offset.
    """
    for unit in range(count):
        if i64(raw, unit * _UNIT) >= bound:
            return unit
    return count


def warm_up() -> None:
    """Compile or load each kernel of this module, by a call with empty input."""
    none = np.zeros(0, np.uint8)
    states = np.zeros(1, FILL_STATES)
    fill(np.empty(0, DISPATCH_COLUMNS), 0, np.zeros(0, np.int32), states, 1, 0)
    fill_one(states, 0, 0, 0, 1)
    numbers = np.zeros(0, np.int64)
    recover(none, numbers, numbers, numbers, states)
    used_units(none, 0, 0)
    first_reaching(none, 0, 0)
