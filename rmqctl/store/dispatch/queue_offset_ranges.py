"""The range of queue offsets and the number of messages, for each queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqctl.kernels.dispatch_scan import MULTI_DISPATCH
from rmqctl.kernels.queue_offset_range import QUEUE_SPANS, add_messages
from rmqctl.store.dispatch.dispatch_rules import batch_size, queue_destinations

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.format.columns import Rows
    from rmqctl.format.message import Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder


class QueueSpans:
    """The range [first, end) of queue offsets in each queue.

    If a topic was deleted and created again, it belongs to the new topic. `message_at` decodes the message at a
    physical offset, for LMQ and for batch consume queues. `records` and `bytes` are the number and the total size of
    all messages, with or without a queue unit.
    """

    def __init__(self, builder: DispatchRequestBuilder, message_at: Callable[[int], Message | None]) -> None:
        self._builder = builder
        self._message_at = message_at
        self._spans = np.zeros(0, QUEUE_SPANS)
        self.records = 0
        self.bytes = 0

    def on_messages(self, messages: Rows) -> None:
        """Add messages (DISPATCH_COLUMNS) in log order."""
        self._make_room()
        self.records += len(messages)
        self.bytes += int(messages["size"].sum(dtype=np.int64))
        if add_messages(messages, self._spans):
            for row in messages[(messages["traits"] & MULTI_DISPATCH) != 0]:
                self._see_multi_dispatch(int(row["physical_offset"]))

    def _see_multi_dispatch(self, physical_offset: int) -> None:
        message = self._message_at(physical_offset)
        for place in queue_destinations(message)[1:] if message is not None else ():
            number = self._number((place.topic, place.queue_id))
            self._make_room()
            span = self._spans[number]
            if not span["count"] or not place.queue_offset:
                span["first"] = place.queue_offset
            span["end"], span["count"], span["last_at"] = place.queue_offset + 1, span["count"] + 1, physical_offset

    def of(self, key: QueueKey) -> tuple[int, int, int]:
        """Return a queue's first offset, end offset and number of messages, or 0, 0, 0."""
        number = self._number(key)
        self._make_room()
        span = self._spans[number]
        return int(span["first"]), int(span["end"]), int(span["count"])

    def end_of_batches(self, key: QueueKey) -> int:
        """Return the queue offset after the last batch of a batch consume queue."""
        _, end, count = self.of(key)
        last = self._message_at(int(self._spans[self._number(key)]["last_at"])) if count else None
        return end if last is None else last.queue_offset + batch_size(last)

    def counts(self) -> dict[QueueKey, int]:
        """Return the number of messages in each queue that is not empty."""
        return {
            key: count for key, count in zip(self._builder.keys, self._spans["count"].tolist(), strict=False) if count
        }

    def _number(self, key: QueueKey) -> int:
        return self._builder.number(key[0].encode("utf-8", "surrogateescape"), key[1])

    def _make_room(self) -> None:
        missing = len(self._builder.queues) - len(self._spans)
        if missing > 0:
            self._spans = np.concatenate((self._spans, np.zeros(missing, QUEUE_SPANS)))
