"""The messages that SCHEDULE_TOPIC_XXXX's delay levels have not delivered.

Delay level n is queue n - 1. A broker delivers a level in the order of its queue: it stores a copy of each message in
the queue that REAL_TOPIC and REAL_QID name, and moves the level's offset in config/delayOffset.json. A copy keeps
UNIQ_KEY, born time, born host, body and reconsumeTimes.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format.cq_unit import is_ext_address
from rmqctl.format.properties import UNIQ_KEY, real_queue
from rmqctl.store.config.topics import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from rmqctl.format.cq_unit import CqUnit
    from rmqctl.format.message import Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class Undelivered(NamedTuple):
    """The messages that a delay level has not delivered."""

    waiting: tuple[int, ...]  # queue offsets, ascending
    end: int  # of the queue

    @property
    def first(self) -> int:
        """The first queue offset without a delivered copy, or the queue's end."""
        return self.waiting[0] if self.waiting else self.end

    def skipped_at(self, queue_offset: int) -> int:
        """Return how many waiting messages are before `queue_offset`."""
        return bisect_left(self.waiting, queue_offset)

    def repeated_at(self, queue_offset: int) -> int:
        """Return how many delivered messages are at `queue_offset` or later."""
        return self.end - queue_offset - (len(self.waiting) - self.skipped_at(queue_offset))


def undelivered(store: ReadOnlyStore, queue_id: int) -> Undelivered:
    """Return what a delay level has not delivered, by the messages in the log.

    A message that no broker delivers counts as delivered: it cannot be read, names no queue, or is a half message. So
    does one whose queue cannot be read, because its copy may be there. Raises OSError.
    """
    queue = store.queues.get((SCHEDULE_TOPIC, queue_id))
    if queue is None:
        return Undelivered((), 0)
    begin, end = queue.min_and_max(store.commit_log.min_offset)
    found = ((unit.queue_offset, store.commit_log.message_at(unit.physical_offset)) for unit in queue.units(begin, end))
    messages = [(offset, message) for offset, message in found if message is not None]
    copies = _copies(store, [message for _, message in messages])
    return Undelivered(tuple(offset for offset, message in messages if not _has_copy(store, message, copies)), end)


def due_ms(store: ReadOnlyStore, queue_id: int, unit: CqUnit, message: Message) -> int:
    """Return when a message of a delay level is due, in ms since 1970.

    `queue_id` is the level's queue: the one in a record may be damaged. The unit of the message has the time, unless an
    abnormal recovery of 4.9.2 to 4.9.8 wrote the hash of TAGS there.
    """
    delays = store.conf.delays_ms
    delay = delays[min(queue_id, len(delays) - 1)]
    stored = message.store_timestamp
    is_time = not is_ext_address(unit.tags_code) and stored <= unit.tags_code <= stored + max(delays)
    return unit.tags_code if is_time else stored + delay


def _copies(store: ReadOnlyStore, messages: list[Message]) -> dict[Hashable, int]:
    """Return where the last message like each delayed one is (physical offset)."""
    oldest: dict[QueueKey, int] = {}
    for message in messages:
        if (key := real_queue(message.properties)) is not None:
            oldest.setdefault(key, message.physical_offset)
    return {
        identity(copy): copy.physical_offset
        for key, after in oldest.items()
        for copy in stored_after(store, key, after)
    }


def stored_after(store: ReadOnlyStore, key: QueueKey, physical_offset: int) -> Iterator[Message]:
    """Yield the messages of a queue that are stored after a physical offset.

    Raises OSError.
    """
    queue = store.queues.get(key)
    first = None if queue is None else queue.first_where(lambda unit: unit.physical_offset > physical_offset)
    if queue is None or first is None:
        return
    for unit in queue.units(first.queue_offset, queue.max_offset):
        message = store.commit_log.message_at(unit.physical_offset)
        if message is not None:
            yield message
    queue.queue.close()


def _has_copy(store: ReadOnlyStore, message: Message, copies: dict[Hashable, int]) -> bool:
    key = real_queue(message.properties)
    is_skipped = key is None or key[0] == TRANS_HALF_TOPIC or store.is_unread(*key)
    return is_skipped or copies.get(identity(message), -1) > message.physical_offset


def identity(message: Message) -> Hashable:
    """Return what a delayed message and its copy have in common.

    A message that waits again, after a further failure of its consumer, has another reconsumeTimes.
    """
    is_waiting = message.topic in (SCHEDULE_TOPIC, TIMER_TOPIC)
    queue = real_queue(message.properties) if is_waiting else (message.topic, message.queue_id)
    key = message.properties.get(UNIQ_KEY)
    return (
        queue, key, message.born_timestamp, message.born_host, message.body_crc, message.reconsume_times,
    )  # fmt: skip
