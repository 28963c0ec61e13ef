"""The messages that a repair or a broker's restart loses, by the same rules.

A message is lost if its record, good or damaged, is after the log's new end, or if a queue loses its unit. A unit
without a record that points after the log's new end counts as a lost message too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.format.damage_kinds import codes
from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.store.dispatch.queue_offset_ranges import QueueSpans

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmqctl.format.columns import Rows
    from rmqctl.format.message import Damage, Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder

NO_RECORDS = codes(has_record=False)


class LossCounter:
    """Counts messages after the log's new end, and units without a record.

    A damaged record that cannot be read as a message counts only by its bytes. `good` is the number of good messages.
    """

    def __init__(self, builder: DispatchRequestBuilder, message_at: Callable[[int], Message | None]) -> None:
        self._builder = builder
        self._message_at = message_at
        self._dropped = QueueSpans(builder, message_at)
        self._torn_bytes = 0
        self.good = 0

    def messages(self, messages: Rows) -> None:
        """Count good messages (rows of DISPATCH_COLUMNS)."""
        self.good += len(messages)
        self._dropped.on_messages(messages)

    def damage(self, damage: Damage) -> None:
        """Count a damaged place.

        A damaged message is lost, unless it is a copy: its wrong PHYSICALOFFSET points to the same message in the log.
        Of a copy, only the bytes count.
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
        if original is None:
            return False
        return (original.body, original.properties_bytes) == (message.body, message.properties_bytes)

    def of_queues(self, units: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
        """Return the number of messages that each queue loses.

        `units` counts the removed units of each queue that point behind the log's end.
        """
        dropped = self._dropped.counts()
        return {key: max(dropped.get(key, 0), units.get(key, 0)) for key in dropped.keys() | units.keys()}

    def total(self, units: Mapping[QueueKey, int]) -> DataLoss:
        """Return the total loss, with `units` as in `of_queues`.

        A message whose record is missing counts as 0 bytes.
        """
        dropped = self._dropped.counts()
        torn = [count - dropped.get(key, 0) for key, count in units.items() if not key[0].startswith(LMQ_PREFIX)]
        records = self._dropped.records + sum(count for count in torn if count > 0)
        return DataLoss(records, self._dropped.bytes + self._torn_bytes)


class DataLoss(NamedTuple):
    """The number of lost messages, and their bytes."""

    records: int = 0
    bytes: int = 0


QUEUE_KEYS = ("topic", "queueId", "minOffset", "maxOffset")  # in JSON, of the first fields of a queue


class QueueOutcome(NamedTuple):
    """A queue after a repair or a restart."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    lost: int = 0  # messages
    moved: int = 0  # queue offsets that will have a different message or none

    def to_json(self) -> dict[str, Any]:
        """Return the queue as a dict for JSON."""
        found: dict[str, Any] = dict(zip(QUEUE_KEYS, self, strict=False))
        more = {"lostMessages": self.lost, "moved": self.moved}
        return found | {name: count for name, count in more.items() if count}
