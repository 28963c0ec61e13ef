"""Find the messages that get a unit, and make batch consume queue units."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.format.columns import BATCH_UNITS
from rmqctl.format.cq_unit import NOT_COMPACTED
from rmqctl.format.sys_flag import TRANSACTION_MASK, TransactionType
from rmqctl.store.dispatch.dispatch_rules import batch_of

if TYPE_CHECKING:
    from rmqctl.format.columns import Flags, Rows
    from rmqctl.format.message import Message


def have_units(messages: Rows) -> Flags:
    """Return, for each message, whether the message gets a unit in its queue.

    `messages` is an array of DISPATCH_COLUMNS. The result is a bool array. Prepared and rollback records get no queue
    unit.
    """
    kinds = messages["sys_flag"] & TRANSACTION_MASK
    found: Flags = (kinds != TransactionType.PREPARED) & (kinds != TransactionType.ROLLBACK)
    return found


def batch_units(rows: Rows, message_at: Callable[[int], Message | None]) -> Rows:
    """Return the batch consume queue units for `rows`, one for each message.

    `rows` is a numpy array of DISPATCH_COLUMNS. The result is a numpy array of BATCH_UNITS. `message_at` decodes the
    message at a physical offset.
    """
    units = np.zeros(len(rows), BATCH_UNITS)
    units["physicalOffset"], units["size"], units["tagsCode"] = rows["physical_offset"], rows["size"], rows["tags_code"]
    units["storeTime"], units["compactedOffset"] = rows["store_timestamp"], NOT_COMPACTED
    units["baseOffset"], units["count"] = rows["queue_offset"], 1
    for unit in units:
        message = message_at(int(unit["physicalOffset"]))
        if message is not None:
            unit["baseOffset"], unit["count"] = batch_of(message)
    return units
