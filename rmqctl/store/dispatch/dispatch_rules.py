"""The rules of dispatch: the units that a message gets in queues.

These are the rules of ConsumeQueue and LMQ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format import properties
from rmqctl.format.cq_unit import DELAY_UNIT_MS
from rmqctl.format.properties import hash_code
from rmqctl.format.sys_flag import TransactionType, transaction_type
from rmqctl.store.config.topics import SCHEDULE_TOPIC
from rmqctl.store.dispatch.light_queues import is_offset, light_offsets

if TYPE_CHECKING:
    from rmqctl.format.message import Message

INNER_NUM_MAX = 2**15 - 1


class DispatchTarget(NamedTuple):
    """The unit that a message gets in one queue.

    `queue_offset` is the place of the unit in the queue. If `scheduled` is True, the unit's tagsCode is a delivery time
    instead of `tags_code`.
    """

    topic: str
    queue_id: int
    queue_offset: int
    tags_code: int
    scheduled: bool = False


def queue_destinations(message: Message) -> list[DispatchTarget]:
    """Return the units that dispatch makes for a message.

    The first unit is in the message's own queue. All other units are in LMQ queues. A prepared or rollback record has
    no units.
    """
    if transaction_type(message.sys_flag) in (TransactionType.PREPARED, TransactionType.ROLLBACK):
        return []
    tags = message.properties.get(properties.TAGS)
    scheduled = message.topic == SCHEDULE_TOPIC and properties.DELAY in message.properties
    own = DispatchTarget(
        message.topic, message.queue_id, message.queue_offset, hash_code(tags) if tags else 0, scheduled
    )
    return [own, *light_destinations(message, own)]


def light_destinations(message: Message, own: DispatchTarget) -> list[DispatchTarget]:
    """Return the units of a message in light queues (LMQ).

    Each of these units has the same tagsCode as `own`, the unit in the message's own queue. The tagsCode of `own` is
    copied even if this tagsCode is a delivery time.
    """
    return [
        own._replace(
            topic=name, queue_id=0 if name.startswith(properties.LMQ_PREFIX) else message.queue_id, queue_offset=offset
        )
        for name, offset in light_offsets(message)
    ]


def batch_size(message: Message) -> int:
    """Return how many queue offsets a message has in a batch consume queue.

    For an inner batch, the number is the property INNER_NUM. For any other message, or if INNER_NUM is not valid, the
    number is 1.
    """
    number = message.properties.get(properties.INNER_NUM, "1")
    return int(number) if is_offset(number) else 1


def batch_of(message: Message) -> tuple[int, int]:
    """Return the first queue offset of a record, and the number of its offsets.

    The record is in a batch consume queue. The values are the properties INNER_BASE and INNER_NUM
    (CommitLog.setBatchSizeIfNeeded). If one of these properties is not valid, the function returns the record's queue
    offset and the number 1.
    """
    base, number = (message.properties.get(name, "") for name in (properties.INNER_BASE, properties.INNER_NUM))
    if not (is_offset(base) and is_offset(number) and int(number) <= INNER_NUM_MAX):
        return message.queue_offset, 1
    return int(base), int(number)


def right_tags_code(target: DispatchTarget, store_timestamp: int, code: int) -> bool:
    """Return whether `code` is the tagsCode that dispatch writes.

    The right tagsCode is the hash of TAGS. For a scheduled message, the right tagsCode is the store time plus a delay
    of whole seconds. The function accepts any delay of whole seconds, because the broker's configuration sets the
    delays (messageDelayLevel).
    """
    if not target.scheduled:
        return code == target.tags_code
    delay = code - store_timestamp
    return delay > 0 and delay % DELAY_UNIT_MS == 0
