"""The messages that a repair or a broker's restart loses.

The losses of a repair and of a restart are counted by the same rules. A message is lost if its record, good or damaged,
is after the log's new end. A unit that points to a place after the log's new end is counted as a lost message, even if
its record does not exist any more. A message is also lost if no queue points to the message any more, even if its
record is before the log's new end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.store.dispatch.queue_offset_ranges import QueueSpans

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.format.columns import Rows
    from rmqctl.format.message import Damage, Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder

NO_RECORDS = frozenset({"bytes-behind-end", "file-length", "file-gap", "file-overlap", "no-blank", "bad-blank-size"})


class LossCounter:
    """Counts messages and units after the log's new end.

    The counter includes damaged messages, the bytes of other damage, and units whose message does not exist any more.
    `good` is the number of undamaged messages.
    """

    def __init__(self, builder: DispatchRequestBuilder, message_at: Callable[[int], Message | None]) -> None:
        self._builder = builder
        self._message_at = message_at
        self._dropped = QueueSpans(builder, message_at)
        self._torn_bytes = 0
        self._units: dict[QueueKey, int] = {}
        self.good = 0

    def messages(self, messages: Rows) -> None:
        """Count good messages (rows of DISPATCH_COLUMNS)."""
        self.good += len(messages)
        self._dropped.on_messages(messages)

    def damage(self, damage: Damage) -> None:
        """Count a damaged place.

        A damaged message is counted as a lost message, with one exception. If a damaged message has a wrong
        PHYSICALOFFSET, and the log has the same message at that offset, only the bytes are counted.
        """
        message = damage.message
        if message is not None and self._is_copy(message):
            self._torn_bytes += damage.size
        elif message is not None:
            self._dropped.on_messages(self._builder.of(message).messages)
        elif damage.code not in NO_RECORDS:
            self._torn_bytes += damage.size

    def _is_copy(self, message: Message) -> bool:
        if message.stored_physical_offset == message.physical_offset:
            return False
        original = self._message_at(message.stored_physical_offset)
        return (
            original is not None
            and original.body == message.body
            and original.properties_bytes == message.properties_bytes
        )

    def units(self, key: QueueKey, count: int) -> None:
        """Count units of a queue that will be removed."""
        self._units[key] = self._units.get(key, 0) + count

    def of_queues(self) -> dict[QueueKey, int]:
        """Return the number of messages that each queue loses."""
        dropped = self._dropped.counts()
        return {key: max(dropped.get(key, 0), self._units.get(key, 0)) for key in dropped.keys() | self._units.keys()}

    def total(self) -> DataLoss:
        """Return the total loss.

        If the store has only the unit of a message, the message is counted with 0 bytes.
        """
        dropped = self._dropped.counts()
        torn = [count - dropped.get(key, 0) for key, count in self._units.items() if not key[0].startswith(LMQ_PREFIX)]
        return DataLoss(
            self._dropped.records + sum(count for count in torn if count > 0), self._dropped.bytes + self._torn_bytes
        )


class DataLoss(NamedTuple):
    """The number of lost messages, and their bytes."""

    records: int = 0
    bytes: int = 0


class QueueOutcome(NamedTuple):
    """A queue's new min offset and max offset, and the number of its lost messages.

    `moved` is the number of queue offsets that will belong to a different message or to no message.
    """

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    lost: int = 0
    moved: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the queue as a dict for JSON."""
        found = {
            "topic": self.topic,
            "queueId": self.queue_id,
            "minOffset": self.min_offset,
            "maxOffset": self.max_offset,
        }
        return (
            found | ({"lostMessages": self.lost} if self.lost else {}) | ({"moved": self.moved} if self.moved else {})
        )
