"""Compare many messages with their units in consume queues at once.

`match` reads rows of DISPATCH_COLUMNS in log order, and has a window of successive units for each queue. If the unit of
a message is not in it, `match` stops, so that the caller can move the window. Each message gets a verdict, such as
CONFIRMED or MISSING. Successive confirmed units become one run [start, end) of queue offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.format.columns import Bytes, Numbers, Row, Rows


import numpy as np

from rmqctl.format.columns import row_type
from rmqctl.format.cq_unit import CQ_UNIT, DELAY_UNIT_MS, EXT_ADDRESS_MAX
from rmqctl.format.sys_flag import TRANSACTION_MASK, TransactionType
from rmqctl.kernels.compile import difference, i32, i64
from rmqctl.kernels.dispatch_scan import DELAYED, DISPATCH_COLUMNS, MULTI_DISPATCH
from rmqctl.kernels.kernel import inline_kernel, kernel_or_plain

# the state of a queue, by its number; offsets in units. `kind` is PLAIN, ABSENT, ODD or IGNORED. `pool[row]` has the
# window, which begins at window_start.
QUEUE_STATES = row_type(
    "i4 kind seen scheduled row", "i8 first end window_start window_end run_start run_end first_seen"
)
PLAIN, ABSENT, ODD, IGNORED = range(4)
RUNS = row_type("i4 queue", "i8 start end")
# verdicts; ASK: only the one-record code can decide; ASK_AGAIN: like ASK, and the queue had messages before
CONFIRMED, MISSING, ELSEWHERE, WRONG_TAGS, ASK, ASK_AGAIN, NOT_ASKED = range(7)

_UNIT = CQ_UNIT.size
_SIZE, _TAGS = CQ_UNIT.offset("size"), CQ_UNIT.offset("tagsCode")
_PREPARED, _ROLLBACK, _MASK = int(TransactionType.PREPARED), int(TransactionType.ROLLBACK), TRANSACTION_MASK
_EXT_ADDRESS_MAX = EXT_ADDRESS_MAX
_DELAYED, _MULTI = DELAYED, MULTI_DISPATCH
_DELAY_UNIT_MS = np.uint64(DELAY_UNIT_MS)


@inline_kernel
def _right_tags(message: Row, code: int, scheduled: bool) -> bool:
    if not scheduled:
        return bool(code == message.tags_code)
    if code <= message.store_timestamp:
        return False
    return bool(difference(code, message.store_timestamp) % _DELAY_UNIT_MS == 0)


@inline_kernel
def _confirm(state: Row, queue: int, offset: int, runs: Rows, used: int) -> int:
    if state.run_end != offset or state.run_start == state.run_end:
        if state.run_end > state.run_start:
            runs[used].queue = queue
            runs[used].start = state.run_start
            runs[used].end = state.run_end
            used += 1
        state.run_start = offset
    state.run_end = offset + 1
    return used


@inline_kernel
def _compare(message: Row, state: Row, units: Rows) -> int:
    at = (message.queue_offset - state.window_start) * _UNIT
    physical_offset = i64(units, at)
    size = i32(units, at + _SIZE)
    if physical_offset < 0 or size <= 0:
        return MISSING
    if physical_offset != message.physical_offset:
        return ELSEWHERE
    code = i64(units, at + _TAGS)
    if code <= _EXT_ADDRESS_MAX or size != message.size:
        return ASK
    return CONFIRMED if _right_tags(message, code, state.scheduled and message.traits & _DELAYED) else WRONG_TAGS


@kernel_or_plain
def match(
    messages: Rows, row: int, states: Rows, pool: Bytes, verdicts: Numbers, runs: Rows, runs_used: int
) -> tuple[int, int]:
    """Compare messages with their units, from row `row` on, and fill `verdicts`.

    Returns the row at which the kernel stopped, and the number of used elements of `runs`. It stops before a message
    whose unit is not in the window of its queue. `verdicts` is uint8; `messages` are rows of DISPATCH_COLUMNS, `states`
    of QUEUE_STATES, and `runs` of RUNS, with room for one run for each message. `pool` (uint8) has, for each queue, a
    row with the bytes of the window.
    """
    while row < len(messages):
        message = messages[row]
        state = states[message.queue]
        offset = message.queue_offset
        verdict = MISSING
        if message.sys_flag & _MASK in (_PREPARED, _ROLLBACK):
            verdict = NOT_ASKED
        elif message.traits & _MULTI:
            verdict = ASK
        elif state.kind == IGNORED:
            verdict = NOT_ASKED
        elif state.kind == ODD or (offset == 0 and state.seen):
            verdict = ASK
        elif state.kind == PLAIN and state.first <= offset < state.end:
            if not state.window_start <= offset < state.window_end:
                return row, runs_used
            verdict = _compare(message, state, pool[state.row])
            if verdict not in (MISSING, ELSEWHERE):
                runs_used = _confirm(state, message.queue, offset, runs, runs_used)
        verdicts[row] = ASK_AGAIN if verdict == ASK and state.seen else verdict
        if not state.seen and verdict != NOT_ASKED:
            state.seen = 1
            state.first_seen = message.physical_offset
        row += 1
    return row, runs_used


def warm_up() -> None:
    """Compile or load each kernel of this module, by a call with empty input."""
    messages, states, runs = (np.empty(0, columns) for columns in (DISPATCH_COLUMNS, QUEUE_STATES, RUNS))
    match(messages, 0, states, np.zeros((0, _UNIT), np.uint8), np.empty(0, np.uint8), runs, 0)
