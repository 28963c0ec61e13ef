"""The rules of dispatch: the units that a message gets in queues.

Those for a message's own queue come from RocketMQ's class ConsumeQueue.
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
    """The unit that dispatch makes for a message in one queue."""

    topic: str
    queue_id: int
    queue_offset: int
    tags_code: int
    scheduled: bool = False  # the unit has a delivery time instead of `tags_code`


def queue_destinations(message: Message) -> list[DispatchTarget]:
    """Return the units that a message gets: in its own queue, then in light queues.

    A prepared or rollback record gets none.
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
    """Return the units that a message gets in light queues (LMQ).

    They have the tagsCode of its `own` unit, which can be a delivery time.
    """
    return [
        own._replace(
            topic=name, queue_id=0 if name.startswith(properties.LMQ_PREFIX) else message.queue_id, queue_offset=offset
        )
        for name, offset in light_offsets(message)
    ]


def batch_size(message: Message) -> int:
    """Return how many queue offsets a message has in a batch consume queue.

    For an inner batch, its property INNER_NUM says so; if that is not valid, and for any other message, it is 1.
    """
    number = message.properties.get(properties.INNER_NUM, "1")
    return int(number) if is_offset(number) else 1


def batch_of(message: Message) -> tuple[int, int]:
    """Return the first queue offset of a batch, and its number of queue offsets.

    They come from the record's properties INNER_BASE and INNER_NUM (CommitLog.setBatchSizeIfNeeded). If one is not
    valid, and for a single message, they are the record's queue offset and 1.
    """
    base, number = (message.properties.get(name, "") for name in (properties.INNER_BASE, properties.INNER_NUM))
    if not (is_offset(base) and is_offset(number) and int(number) <= INNER_NUM_MAX):
        return message.queue_offset, 1
    return int(base), int(number)


def right_tags_code(target: DispatchTarget, store_timestamp: int, code: int) -> bool:
    """Return whether `code` is a right tagsCode for the unit `target`.

    It is the hash of TAGS, and for a scheduled message the store time plus a delay in whole seconds: any, because the
    broker's configuration sets the delays (messageDelayLevel).
    """
    if not target.scheduled:
        return code == target.tags_code
    delay = code - store_timestamp
    return delay > 0 and delay % DELAY_UNIT_MS == 0
