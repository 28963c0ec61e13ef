"""RocketMQ's CommitLogDispatcher, which fills queues and index from the log.

Messages are dispatched in batches. An ordinary or commit record gets a unit in its queue, and in each of its LMQ
queues; prepared and rollback records get none. The tagsCode of a unit is the hashCode of TAGS, in SCHEDULE_TOPIC_XXXX
the time of delivery. All records except rollback are indexed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.format.columns import UNITS
from rmqctl.kernels.dispatch_scan import DELAYED, MULTI_DISPATCH
from rmqctl.store.config.topics import SCHEDULE_TOPIC
from rmqctl.store.dispatch.dispatch_rules import queue_destinations
from rmqctl.store.dispatch.light_queues import gets_no_unit
from rmqctl.store.dispatch.units import batch_units, have_units
from rmqctl.store.write.batch_consume_queue_writer import BatchConsumeQueueWriter
from rmqctl.store.write.consume_queue_writer import ConsumeQueueWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.columns import Numbers, Rows
    from rmqctl.format.message import Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns, DispatchRequestBuilder
    from rmqctl.store.dispatch.dispatch_rules import DispatchTarget
    from rmqctl.store.write.index_writer import IndexWriter

# MessageArrivingListener.arriving: topic, queueId, queue offset after the message, tagsCode, store time (ms since 1970)
MessageArrivingListener = Callable[[str, int, int, int, int], None]


class Dispatcher:
    """Adds messages to the queues and the index, and then calls `arriving`.

    Each of these gets the messages in log order. `queue_of` opens a queue. `index` is None if the index is off.
    `message_at` decodes the message at a physical offset, for fields that the columns do not have. Methods raise
    OSError.
    """

    def __init__(
        self,
        builder: DispatchRequestBuilder,
        queue_of: Callable[[QueueKey], ConsumeQueueWriter | BatchConsumeQueueWriter],
        index: IndexWriter | None,
        message_at: Callable[[int], Message | None],
        delays_ms: tuple[int, ...],
        arriving: MessageArrivingListener | None = None,
    ) -> None:
        self._builder = builder
        self._queue_of = queue_of
        self._index = index
        self._message_at = message_at
        self._delays_ms = delays_ms
        self._arriving = arriving
        self.logics_timestamp = 0

    def dispatch(self, described: DispatchColumns) -> None:
        """Dispatch messages, given in log order."""
        messages = described.messages
        rows = messages.compress(have_units(messages))  # `compress` is 10 times as fast as indexing with []
        by_queue = rows.take(np.argsort(rows["queue"], kind="stable"))
        for of_queue in np.split(by_queue, np.flatnonzero(np.diff(by_queue["queue"])) + 1) if len(rows) else ():
            self._put_units(self._builder.keys[int(of_queue["queue"][0])], of_queue)
        for row in rows[(rows["traits"] & MULTI_DISPATCH) != 0]:
            self._put_multi_dispatch(int(row["physical_offset"]))
        if len(rows):
            self.logics_timestamp = int(rows[-1]["store_timestamp"])
        if self._index is not None:
            self._index.put(described)
        if self._arriving is not None:
            self._notify(messages, self._arriving)

    def _put_units(self, key: QueueKey, rows: Rows) -> None:
        writer = self._queue_of(key)
        if isinstance(writer, BatchConsumeQueueWriter):
            writer.put(batch_units(rows, self._message_at))
            return
        units = np.empty(len(rows), UNITS)
        units["physicalOffset"], units["size"], units["tagsCode"] = (
            rows["physical_offset"],
            rows["size"],
            self._tags_codes(key, rows),
        )
        for start, end in _consecutive(rows["queue_offset"]):
            writer.put(int(rows["queue_offset"][start]), units[start:end], rows["store_timestamp"][start:end])

    def _tags_codes(self, key: QueueKey, rows: Rows) -> Numbers:
        codes = rows["tags_code"].copy()
        if key[0] == SCHEDULE_TOPIC:
            delayed = (rows["traits"] & DELAYED) != 0
            codes[delayed] = rows["store_timestamp"][delayed] + self._delay_of(key[1])
        return codes

    def _delay_of(self, queue_id: int) -> int:
        """Return the delay (ms) of a queue of SCHEDULE_TOPIC_XXXX.

        The queueId is the delay level minus 1 (ScheduleMessageService.queueId2DelayLevel).
        """
        return self._delays_ms[min(max(queue_id, 0), len(self._delays_ms) - 1)]

    def _put_multi_dispatch(self, physical_offset: int) -> None:
        message = self._message_at(physical_offset)
        if message is None:
            return
        for target in queue_destinations(message)[1:]:
            unit = np.array([(physical_offset, message.size, self._light_tags_code(target, message))], UNITS)
            writer = self._queue_of((target.topic, target.queue_id))
            if not isinstance(writer, ConsumeQueueWriter):
                continue
            begun = writer.queue.last is not None
            if begun and gets_no_unit(message.topic, target.queue_offset, writer.max_offset):
                continue
            offset = writer.max_offset if begun and writer.gap_at is None else target.queue_offset
            writer.put(offset, unit, np.array([message.store_timestamp]), extended=False)

    def _light_tags_code(self, target: DispatchTarget, message: Message) -> int:
        """Return the tagsCode of a unit in an LMQ queue.

        That of a delayed message in SCHEDULE_TOPIC_XXXX is the time of delivery.
        """
        return message.store_timestamp + self._delay_of(message.queue_id) if target.scheduled else target.tags_code

    def _notify(self, messages: Rows, arriving: MessageArrivingListener) -> None:
        """Call `arriving` for each message, and for each of its LMQ queues.

        As in ReputMessageService, messages of every kind count.
        """
        for at, row in enumerate(messages):
            key, time = self._builder.keys[int(row["queue"])], int(row["store_timestamp"])
            arriving(*key, int(row["queue_offset"]) + 1, int(self._tags_codes(key, messages[at : at + 1])[0]), time)
            message = self._message_at(int(row["physical_offset"])) if row["traits"] & MULTI_DISPATCH else None
            if message is None:
                continue
            for target in queue_destinations(message)[1:]:
                code = self._light_tags_code(target, message)
                arriving(target.topic, target.queue_id, target.queue_offset + 1, code, time)


def _consecutive(offsets: Numbers) -> Iterator[tuple[int, int]]:
    """Yield [start, end) of each range of rows whose offsets rise by 1."""
    borders = [0, *(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), len(offsets)]
    yield from pairwise(borders)
