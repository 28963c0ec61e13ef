"""Find, for each queue, the queue offset range of its messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.format.columns import Rows


import numpy as np

from rmqctl.format.columns import row_type
from rmqctl.format.sys_flag import TRANSACTION_MASK, TransactionType
from rmqctl.kernels.compile import total
from rmqctl.kernels.dispatch_scan import DISPATCH_COLUMNS, MULTI_DISPATCH
from rmqctl.kernels.kernel import kernel_or_plain

# of a queue, by its number: queue offsets [first, end), the number of messages, the last message's physical offset
QUEUE_SPANS = row_type("i8 first end count last_at")
_PREPARED, _ROLLBACK, _MASK = int(TransactionType.PREPARED), int(TransactionType.ROLLBACK), TRANSACTION_MASK


@kernel_or_plain
def add_messages(messages: Rows, spans: Rows) -> int:
    """Extend the queue offset range of each queue by its messages, in log order.

    Returns the number of messages that name LMQ queues. `messages` are rows of DISPATCH_COLUMNS, `spans` rows of
    QUEUE_SPANS. Prepared and rollback records are skipped, because they are in no queue. A message with queue offset 0
    begins a new range, because its topic was deleted and created again.
    """
    named = 0
    for i in range(len(messages)):
        message = messages[i]
        kind = message.sys_flag & _MASK
        if kind in (_PREPARED, _ROLLBACK):
            continue
        span = spans[message.queue]
        if span.count == 0 or message.queue_offset == 0:
            span.first = message.queue_offset
        span.end = total(message.queue_offset, 1)
        span.count += 1
        span.last_at = message.physical_offset
        if message.traits & MULTI_DISPATCH:
            named += 1
    return named


def warm_up() -> None:
    """Compile or load the kernel of this module, by a call with empty input."""
    add_messages(np.zeros(0, DISPATCH_COLUMNS), np.zeros(0, QUEUE_SPANS))
