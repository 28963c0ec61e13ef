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
    """Return, for each of the messages (DISPATCH_COLUMNS), whether it gets a unit.

    Prepared and rollback records get none. The array is bool.
    """
    kinds = messages["sys_flag"] & TRANSACTION_MASK
    found: Flags = (kinds != TransactionType.PREPARED) & (kinds != TransactionType.ROLLBACK)
    return found


def batch_units(rows: Rows, message_at: Callable[[int], Message | None]) -> Rows:
    """Return the batch consume queue units for `rows`, one for each message.

    `rows` are DISPATCH_COLUMNS, the units BATCH_UNITS. `message_at` decodes the message at a physical offset.
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
