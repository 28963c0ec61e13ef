"""Strays: records that a flipped bit keeps from their queue.

The existing queue has a unit for a stray, and its position, size and queue offset are those of the record. But the
record names another topic or queueId, or its SYSFLAG makes it a prepared or rollback record, for which brokers write no
units. Brokers serve strays to consumers, because they look only at the unit. Therefore a rebuild keeps these units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format.sys_flag import TRANSACTION_MASK
from rmqctl.store.dispatch.dispatch_rules import queue_destinations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.cq_unit import CqUnit
    from rmqctl.format.message import Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class Stray(NamedTuple):
    """A record with one damaged bit in its topic or queueId.

    `said` is the queue that the record names. `of` is the queue whose unit points to the record.
    """

    said: QueueKey
    of: QueueKey
    physical_offset: int

    def __str__(self) -> str:
        said, of = (f"{topic}/{queue_id}" for topic, queue_id in (self.said, self.of))
        return (
            f"the record at {self.physical_offset} says that it is of queue {said}, one bit off {of}, which leads to "
            "it: its topic or queueId is damaged. It stays where it is"
        )


def is_stray(store: ReadOnlyStore, key: QueueKey, unit: CqUnit, record: Message) -> bool:
    """Return whether a unit of the existing queue `key` points to a stray.

    `record` is the record at the unit's physical offset. If `store` has the queue that the record names, the result is
    False, because the unit may be wrong. Raises OSError.
    """
    if record.size != unit.size:
        return False
    if not queue_destinations(record):
        as_stored = record._replace(sys_flag=record.sys_flag & ~TRANSACTION_MASK)
        return (*key, unit.queue_offset) in {target[:3] for target in queue_destinations(as_stored)}
    said = record.topic, record.queue_id
    return record.queue_offset == unit.queue_offset and said in one_bit_off(key) and store.queue(*said) is None


def one_bit_off(key: QueueKey) -> Iterator[QueueKey]:
    """Yield the queues whose topic or queueId differs from `key` in one bit."""
    topic, queue_id = key
    yield from ((topic, queue_id ^ 1 << bit) for bit in range(31))
    raw = topic.encode()
    for at in range(len(raw)):
        for bit in range(8):
            flipped = raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :]
            yield flipped.decode("utf-8", "replace"), queue_id
