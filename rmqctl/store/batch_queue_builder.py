"""Batch consume queues (5.x, queue.type=BatchCQ) made anew from the log.

How many messages a record stands for, its properties say: records are read one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rmqctl.store.built_queue import QueueCounts, close_built
from rmqctl.store.consume_queue import BatchConsumeQueue
from rmqctl.store.dispatch import batch_units, have_units

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.store.batch_consume_queue_writer import BatchConsumeQueueWriter
    from rmqctl.store.dispatch_columns import Describer, DispatchColumns
    from rmqctl.store.read_only_store import QueueKey, ReadOnlyStore


class BatchQueueBuilder:
    """Makes the queues that `is_wanted`; `open_queue` gives a writer for one (None: only counted). Methods raise OSError."""

    def __init__(
        self,
        before: ReadOnlyStore,
        describer: Describer,
        is_wanted: Callable[[QueueKey], bool],
        open_queue: Callable[[QueueCounts], BatchConsumeQueueWriter | None],
    ) -> None:
        self.queues: dict[QueueKey, QueueCounts] = {}
        self._before = before
        self._describer = describer
        self._is_wanted = is_wanted
        self._open_queue = open_queue
        self._writers: dict[QueueKey, BatchConsumeQueueWriter | None] = {}
        self._wanted: list[bool] = []

    def put(self, described: DispatchColumns) -> None:
        """Messages of the log, in log order."""
        known = self._describer.queues
        self._wanted += [self._is_wanted((topic.decode("utf-8", "replace"), queue_id)) for topic, queue_id in known[len(self._wanted) :]]
        if not any(self._wanted):
            return
        messages = described.messages
        has_unit = have_units(messages)
        for number in np.unique(messages["queue"][np.array(self._wanted)[messages["queue"]] & has_unit]).tolist():
            topic, queue_id = known[number]
            self._put((topic.decode("utf-8", "replace"), queue_id), messages[(messages["queue"] == number) & has_unit])

    def go_on_with(self, counts: QueueCounts) -> None:
        """A queue that was begun before."""
        self.queues[counts.key] = counts
        self._writers[counts.key] = self._open_queue(counts)

    def finish(self) -> None:
        """Close all files."""
        for key, writer in self._writers.items():
            if writer is not None:
                close_built(writer, self.queues[key])

    def _put(self, key: QueueKey, rows: Any) -> None:
        units = batch_units(rows, self._before.commit_log.message_at)
        counts = self.queues.get(key)
        anew = np.flatnonzero(units["baseOffset"] == 0)
        if len(anew) and counts is not None:
            self.queues.pop(key)
            counts = QueueCounts(*key, anew=counts.anew + 1)
        if len(anew):
            units = units[int(anew[-1]) :]
        if key not in self.queues:
            counts = counts or QueueCounts(*key)
            counts.min_offset = int(units[0]["baseOffset"])
            self.go_on_with(counts)
        self._append(self.queues[key], units)

    def _append(self, counts: QueueCounts, units: Any) -> None:
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
        last = units[-1]
        counts.max_offset = int(last["baseOffset"]) + int(last["count"])
        counts.end = int(last["physicalOffset"]) + int(last["size"])
        counts.store_timestamp = int(last["storeTime"])
