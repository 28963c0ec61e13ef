"""The queue offsets that selected messages get in their new store."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING

from rmqctl.errors import BadRequest
from rmqctl.format import properties
from rmqctl.format.cq_unit import PLACES_MAX
from rmqctl.store.dispatch.dispatch_rules import batch_of, queue_destinations
from rmqctl.store.dispatch.light_queues import gets_no_unit, java_split

if TYPE_CHECKING:
    from collections.abc import Collection

    from rmqctl.format.message import Message
    from rmqctl.store.config.topics import QueueKey

GAPS_MAX = 5_000_000  # queue offsets without a message in all queues together: each takes 20 bytes
_PAIR_END, _NAME_END = properties.PROPERTY_SEPARATOR.encode(), properties.NAME_VALUE_SEPARATOR.encode()


class QueuePlaces:
    """The old and the new queue offsets of one queue's messages, in log order."""

    def __init__(self) -> None:
        self._olds, self._news = array("q"), array("q")
        self.old_end = self.end = 0  # after the last message

    @property
    def first(self) -> int:
        """Return the new queue offset of the first message."""
        return self._news[0]

    def add(self, old: int, number: int, *, keep: bool) -> int:
        """Add a message that takes `number` offsets, and return its new offset."""
        new = old if keep else self.end
        self._olds.append(old)
        self._news.append(new)
        self.old_end, self.end = old + number, new + number
        return new

    def translated(self, old: int) -> int:
        """Return the new offset of a group that has reached `old`."""
        at = bisect_right(self._olds, old) - 1
        if at < 0:
            return self.first
        behind = self._news[at + 1] if at + 1 < len(self._news) else self.end
        return min(self._news[at] + old - self._olds[at], behind)


class Places:
    """Gives messages their places, in log order.

    They are counted from 0, or with `keep` those that the messages have. `batch_topics` have batch consume queues.
    `gaps` counts the queue offsets between two messages of a queue that no message has.
    """

    def __init__(self, batch_topics: Collection[str], *, keep: bool) -> None:
        self.queues: dict[QueueKey, QueuePlaces] = {}
        self.gaps = 0
        self._batch_topics = batch_topics
        self._keep = keep

    def of(self, message: Message) -> Message:
        """Return the message with its new queue offsets.

        Raises BadRequest if its old ones cannot be kept.
        """
        targets = queue_destinations(message)
        if not targets:
            return message  # prepared or rollback: in no queue
        own, *lights = targets
        is_batch = own.topic in self._batch_topics
        old, number = batch_of(message) if is_batch else (own.queue_offset, 1)
        new = self._add((own.topic, own.queue_id), old, number, has_gaps=not is_batch)
        offsets = {}
        for light in lights:
            key = light.topic, light.queue_id
            known = self.queues.get(key)
            is_copy = known is not None and gets_no_unit(message.topic, light.queue_offset, known.old_end)
            offsets[light.topic] = (
                known.translated(light.queue_offset)
                if known is not None and is_copy
                else self._add(key, light.queue_offset, 1)
            )
        if self._keep:
            return message
        raw, found = message.properties_bytes, message.properties
        names = java_split(found.get(properties.INNER_MULTI_DISPATCH, ""))
        if lights and all(name in offsets for name in names):
            numbers = properties.LMQ_SEPARATOR.join(str(offsets[name]) for name in names)
            raw = _with(raw, properties.INNER_MULTI_QUEUE_OFFSET, numbers)
        if is_batch and properties.INNER_BASE in found:
            raw = _with(raw, properties.INNER_BASE, str(new))
        return message._replace(queue_offset=new, properties_bytes=raw)

    def _add(self, key: QueueKey, old: int, number: int, *, has_gaps: bool = True) -> int:
        places = self.queues.get(key)
        if self._keep:
            end = old if places is None else places.end
            self.gaps += old - end if has_gaps else 0
            if not end <= old < PLACES_MAX or self.gaps > GAPS_MAX:
                place = f"queue {key[0]}/{key[1]} goes on with queue offset {old} after {end - 1}"
                raise BadRequest(f"{place}: queue offsets cannot be kept", hint="leave out --keep-offsets")
        if places is None:
            places = self.queues[key] = QueuePlaces()
        return places.add(old, number, keep=self._keep)


def _with(raw: bytes, name: str, value: str) -> bytes:
    wanted = name.encode()
    pairs = (pair.partition(_NAME_END) for pair in raw.split(_PAIR_END))
    return _PAIR_END.join(
        head + separator + (value.encode() if head == wanted else old) for head, separator, old in pairs
    )
