"""Batch consume queues (5.x, queue.type=BatchCQ), rebuilt from the log.

The properties of a record contain the number of messages in the record, so records are read one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqctl.operations.rebuild.built_queue import QueueCounts, close_built
from rmqctl.store.dispatch.units import batch_units, have_units
from rmqctl.store.read.consume_queue import BatchConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.format.columns import Row, Rows
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns, DispatchRequestBuilder
    from rmqctl.store.read.read_only_store import ReadOnlyStore
    from rmqctl.store.write.batch_consume_queue_writer import BatchConsumeQueueWriter


class BatchQueueBuilder:
    """Builds the queues for which `is_wanted` returns True.

    `open_queue` returns the writer of a queue. If `open_queue` returns None, units are counted, but not written.
    Methods raise OSError.
    """

    def __init__(
        self,
        before: ReadOnlyStore,
        builder: DispatchRequestBuilder,
        is_wanted: Callable[[QueueKey], bool],
        open_queue: Callable[[QueueCounts], BatchConsumeQueueWriter | None],
    ) -> None:
        self.queues: dict[QueueKey, QueueCounts] = {}
        self._before = before
        self._builder = builder
        self._is_wanted = is_wanted
        self._open_queue = open_queue
        self._writers: dict[QueueKey, BatchConsumeQueueWriter | None] = {}
        self._wanted: list[bool] = []

    def put(self, described: DispatchColumns) -> None:
        """Add units for the next messages of the log. Messages must be in log order."""
        keys = self._builder.keys
        self._wanted += map(self._is_wanted, keys[len(self._wanted) :])
        if not any(self._wanted):
            return
        messages = described.messages
        has_unit = have_units(messages)
        for number in np.unique(messages["queue"][np.array(self._wanted)[messages["queue"]] & has_unit]).tolist():
            self._put(keys[number], messages[(messages["queue"] == number) & has_unit])

    def go_on_with(self, counts: QueueCounts) -> None:
        """Continue a queue of an interrupted rebuild."""
        self.queues[counts.key] = counts
        self._writers[counts.key] = self._open_queue(counts)

    def finish(self) -> None:
        """Close all files."""
        for key, writer in self._writers.items():
            if writer is not None:
                close_built(writer, self.queues[key])

    def _put(self, key: QueueKey, rows: Rows) -> None:
        units = batch_units(rows, self._before.commit_log.message_at)
        counts = self.queues.get(key)
        misnumbered = self._renumber(key, units, counts.max_offset if counts is not None else None)
        anew = np.flatnonzero(units["baseOffset"] == 0)
        if len(anew) and counts is not None:
            self.queues.pop(key)
            earlier, size = (
                (counts.units + counts.earlier, counts.bytes + counts.earlier_bytes)
                if key not in self._before.queues
                else (0, 0)
            )
            counts = QueueCounts(*key, anew=counts.anew + 1, earlier=earlier, earlier_bytes=size)
        if len(anew):
            units = units[int(anew[-1]) :]
        if key not in self.queues:
            counts = counts or QueueCounts(*key)
            counts.min_offset = int(units[0]["baseOffset"])
            self.go_on_with(counts)
        self.queues[key].misnumbered += misnumbered
        self._append(self.queues[key], units)

    def _renumber(self, key: QueueKey, units: Rows, end: int | None) -> int:
        """Correct wrong queue offsets of units. Return the number of corrections.

        `end` is the queue offset after the queue's last unit (None: the queue has no units yet). A queue offset is
        wrong if the previous unit and the next unit show another queue offset. No checksum covers QUEUEOFFSET. Without
        the correction, one damaged bit in a QUEUEOFFSET would change all later queue offsets.
        """
        found = 0
        for at, unit in enumerate(units):
            base, count = int(unit["baseOffset"]), int(unit["count"])
            expected = self._expected(key, unit, units[at + 1 : at + 3]) if end is None else end
            is_last = at + 1 == len(units)
            follows = self._shown(key, unit) + count if is_last else int(units[at + 1]["baseOffset"])
            if base != expected and expected >= 0 and follows == expected + count:
                unit["baseOffset"] = expected
                found += 1
            end = int(unit["baseOffset"]) + count
        return found

    def _expected(self, key: QueueKey, unit: Row, after: Rows) -> int:
        """Return the queue offset of the first batch of a queue.

        The result is usually the queue offset in the batch. The next two batches can show that the queue offset in the
        batch is too high. A queue offset that seems too low may be right, because the next batches may be lost.
        """
        base = int(unit["baseOffset"])
        if len(after) < 2 or int(after[1]["baseOffset"]) != int(after[0]["baseOffset"]) + int(after[0]["count"]):
            return base
        expected = int(after[0]["baseOffset"]) - int(unit["count"])
        return expected if base > expected or base < 0 or self._shown(key, unit) == expected else base

    def _shown(self, key: QueueKey, built: Row) -> int:
        """Return the first queue offset of a batch in the existing queue.

        If the existing queue has no unit for the batch, the result is the queue offset in the batch itself.
        """
        before, physical_offset = self._before.queues.get(key), int(built["physicalOffset"])
        unit = (
            before.first_where(lambda unit: unit.physical_offset >= physical_offset)
            if isinstance(before, BatchConsumeQueue)
            else None
        )
        return (
            unit.queue_offset
            if unit is not None and unit.physical_offset == physical_offset
            else int(built["baseOffset"])
        )

    def _append(self, counts: QueueCounts, units: Rows) -> None:
        before, writer = self._before.queues.get(counts.key), self._writers[counts.key]
        if isinstance(before, BatchConsumeQueue):
            for unit in units:
                old = before.find(int(unit["baseOffset"]))
                if old is not None and (old.physical_offset, old.size, old.batch_size) == (
                    unit["physicalOffset"],
                    unit["size"],
                    unit["count"],
                ):
                    counts.same += int(unit["count"])
        if writer is not None:
            writer.put(units)
        counts.bytes += int(units["size"].sum(dtype=np.int64))
        last = units[-1]
        counts.max_offset = int(last["baseOffset"]) + int(last["count"])
        counts.end = int(last["physicalOffset"]) + int(last["size"])
        counts.store_timestamp = int(last["storeTime"])
