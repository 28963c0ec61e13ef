"""Build units of consume queues from many messages at once.

The units are those of RocketMQ's ConsumeQueue.putMessagePositionInfo. `place` reads rows of DISPATCH_COLUMNS in log
order, and fills a window of units for each queue. It stops before a message that the caller must handle: its queue is
unknown, its window is full, or its queue offset is not the next of its queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.format.columns import Rows

from typing import Any

import numpy as np

from rmqctl.format.columns import row_type
from rmqctl.format.cq_unit import CQ_UNIT
from rmqctl.format.sys_flag import TRANSACTION_MASK, TransactionType
from rmqctl.kernels.compile import put_i32, put_i64, total
from rmqctl.kernels.dispatch_scan import DELAYED, DISPATCH_COLUMNS, MULTI_DISPATCH
from rmqctl.kernels.kernel import kernel_or_plain

# the state of a queue, by its number. `next` is the queue offset of its next unit. `fill` is the number of units in its
# window, and `row` is the number of the window. `delay` is the delay of its level in ms (-1: not a scheduled queue).
PLACE_STATES = row_type("i4 kind row", "i8 next fill delay")
# kinds: the caller must decide; units of 20 bytes; no units are built; the messages do not simply follow one another
UNKNOWN, PLAIN, LEFT_OUT, DISORDERED = range(4)
# why the kernel stopped
DONE, UNSETTLED, MULTI = range(3)

_UNIT = CQ_UNIT.size
_SIZE, _TAGS = CQ_UNIT.offset("size"), CQ_UNIT.offset("tagsCode")
_PREPARED, _ROLLBACK, _MASK = int(TransactionType.PREPARED), int(TransactionType.ROLLBACK), TRANSACTION_MASK
_DELAYED, _MULTI = DELAYED, MULTI_DISPATCH


@kernel_or_plain
def place(messages: Rows, row: int, states: Rows, units: Rows, times: Any, window: int) -> tuple[int, int]:
    """Build the consume queue units of messages, from row `row` on.

    Returns the row at which the kernel stopped, and why: UNSETTLED if it could not place the message of this row, MULTI
    if the message before names LMQ queues. `messages` are rows of DISPATCH_COLUMNS, `states` rows of PLACE_STATES.
    `units` (uint8) and `times` (int64, the messages' store times in ms) have a window of `window` units for each queue,
    without gaps between windows.
    """
    while row < len(messages):
        message = messages[row]
        row += 1
        if message.sys_flag & _MASK in (_PREPARED, _ROLLBACK):
            continue
        state = states[message.queue]
        if state.kind == PLAIN:
            if message.queue_offset != state.next or state.fill == window:
                return row - 1, UNSETTLED
            code = message.tags_code
            if state.delay >= 0 and message.traits & _DELAYED:
                code = total(message.store_timestamp, state.delay)
            unit = state.row * window + state.fill
            at = unit * _UNIT
            put_i64(units, at, message.physical_offset)
            put_i32(units, at + _SIZE, message.size)
            put_i64(units, at + _TAGS, code)
            times[unit] = message.store_timestamp
            state.fill += 1
            state.next = total(state.next, 1)
        elif state.kind == UNKNOWN:
            return row - 1, UNSETTLED
        if message.traits & _MULTI:
            return row, MULTI
    return row, DONE


def warm_up() -> None:
    """Compile or load each kernel of this module, by a call with empty input."""
    place(np.empty(0, DISPATCH_COLUMNS), 0, np.empty(0, PLACE_STATES), np.zeros(0, np.uint8), np.zeros(0, np.int64), 1)
