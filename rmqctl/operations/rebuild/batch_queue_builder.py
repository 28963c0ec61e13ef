"""Batch consume queues (5.x, queue.type=BatchCQ), rebuilt from the log.

Records are read one by one, because their number of messages is in the properties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqctl.operations.rebuild.built_queue import BuiltBatchQueue, QueueCounts
from rmqctl.store.dispatch.units import batch_units, have_units
from rmqctl.store.read.consume_queue import BatchConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.format.columns import Row, Rows
    from rmqctl.operations.rebuild.repaired_log import RepairedLog
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns


class BatchQueueBuilder:
    """Builds the queues for which `is_wanted` returns True.

    `open_queue` returns the receiver of a queue's units. Methods raise OSError.
    """

    def __init__(
        self,
        log: RepairedLog,
        is_wanted: Callable[[QueueKey], bool],
        open_queue: Callable[[QueueCounts], BuiltBatchQueue],
    ) -> None:
        self.queues: dict[QueueKey, BuiltBatchQueue] = {}
        self._before = log.store
        self._keys = log.builder.keys
        self._is_wanted = is_wanted
        self._open_queue = open_queue
        self._wanted: list[bool] = []

    def put(self, described: DispatchColumns) -> None:
        """Add units for the next messages of the log, in log order."""
        self._wanted += map(self._is_wanted, self._keys[len(self._wanted) :])
        if not any(self._wanted):
            return
        messages = described.messages
        has_unit = have_units(messages)
        for number in np.unique(messages["queue"][np.array(self._wanted)[messages["queue"]] & has_unit]).tolist():
            self._put(self._keys[number], messages[(messages["queue"] == number) & has_unit])

    def go_on_with(self, queue: BuiltBatchQueue) -> None:
        """Continue a queue of an interrupted rebuild."""
        self.queues[queue.counts.key] = queue

    def _put(self, key: QueueKey, rows: Rows) -> None:
        units = batch_units(rows, self._before.commit_log.message_at)
        queue = self.queues.get(key)
        misnumbered = self._renumber(key, units, queue.counts.max_offset if queue is not None else None)
        anew = np.flatnonzero(units["baseOffset"] == 0)
        units = units[anew[-1] if len(anew) else 0 :]
        if queue is None or len(anew):
            base = int(units[0]["baseOffset"])
            counts = QueueCounts(*key, min_offset=base, max_offset=base)
            if queue is not None:
                counts.anew = queue.counts.anew + 1
            if queue is not None and key not in self._before.queues:
                counts.earlier = queue.counts.units + queue.counts.earlier
                counts.earlier_bytes = queue.counts.bytes + queue.counts.earlier_bytes
            queue = self.queues[key] = self._open_queue(counts)
        queue.counts.misnumbered += misnumbered
        self._append(queue, units)

    def _renumber(self, key: QueueKey, units: Rows, end: int | None) -> int:
        """Correct wrong queue offsets of units, and return how many.

        `end` is the queue offset after the queue's last unit (None: it has none yet). A queue offset is wrong if the
        units before and after show another one. No checksum covers QUEUEOFFSET: uncorrected, one damaged bit in it
        would change all later queue offsets.
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

        It is usually the one in the batch. The next two batches can show that this is too high. One that seems too low
        may be right, because the next batches may be lost.
        """
        base = int(unit["baseOffset"])
        if len(after) < 2 or int(after[1]["baseOffset"]) != int(after[0]["baseOffset"]) + int(after[0]["count"]):
            return base
        expected = int(after[0]["baseOffset"]) - int(unit["count"])
        return expected if base > expected or base < 0 or self._shown(key, unit) == expected else base

    def _shown(self, key: QueueKey, built: Row) -> int:
        # the first queue offset of a batch in the existing queue, or else its own
        before, at = self._before.queues.get(key), int(built["physicalOffset"])
        if isinstance(before, BatchConsumeQueue):
            unit = before.first_where(lambda unit: unit.physical_offset >= at)
            if unit is not None and unit.physical_offset == at:
                return unit.queue_offset
        return int(built["baseOffset"])

    def _append(self, queue: BuiltBatchQueue, units: Rows) -> None:
        before = self._before.queues.get(queue.counts.key)
        if isinstance(before, BatchConsumeQueue):
            columns = (units[name].tolist() for name in ("baseOffset", "physicalOffset", "size", "count"))
            for base, *expected in zip(*columns, strict=True):
                old = before.find(base)
                if old is not None and [old.physical_offset, old.size, old.batch_size] == expected:
                    queue.counts.same += old.batch_size
        if queue.writer is not None:
            queue.writer.put(units)
        last = units[-1]
        queue.counts.add(units, int(last["baseOffset"]) + int(last["count"]), int(last["storeTime"]))
