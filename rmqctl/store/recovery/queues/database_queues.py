"""Consume queues in RocksDB in a simulated recovery.

A dispatched message gets the row of its own QUEUEOFFSET, over the row that was there, and becomes the last one of its
queue (RocksDBConsumeQueueStore of 5.3.3 and 5.5.0, asked with stores of both). `simulated_queues.py` has the rules of
queues in files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.kernels import queue_simulate
from rmqctl.kernels.dispatch_scan import MULTI_DISPATCH
from rmqctl.logfile.mapped_file_queue import OFFSET_MAX
from rmqctl.store.config.store_path import CONSUMEQUEUE
from rmqctl.store.dispatch.dispatch_rules import queue_destinations

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqctl.format.columns import Rows
    from rmqctl.format.message import Message
    from rmqctl.format.profile import StartRules
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore


@dataclass
class DatabaseQueue:
    """A queue with the queue offsets [min_offset, max_offset)."""

    queue: UnitQueue | None  # its rows before the start
    said_min: tuple[int, int] | None  # physical offset and queue offset in its row `min`
    max_offset: int
    min_offset: int = 0
    runs: list[range] = field(default_factory=list)  # queue offsets that the start dispatches
    cut_from: int | None = None  # max offset before the cut; None: no row was cut
    deleted: tuple[str, ...] = ()

    def put(self, queue_offsets: Sequence[int]) -> None:
        """Put messages with these QUEUEOFFSETs, in log order."""
        for at in queue_offsets:
            if self.runs and self.runs[-1].stop == at:
                self.runs[-1] = range(self.runs[-1].start, at + 1)
            else:
                self.runs.append(range(at, at + 1))
        self.max_offset = queue_offsets[-1] + 1

    def cut(self, log_end: int, log_start: int) -> None:
        """End before the log's end, if the last row leads behind it.

        The new last row is the one that the broker's search finds (correctMaxCqOffset). A queue that begins behind the
        log's end stays as it is.
        """
        last = self._row(self.max_offset - 1)
        if last is None or last < log_end or last == OFFSET_MAX:
            return
        begins_at, first = self._min(log_start)
        if begins_at is not None and begins_at <= log_end:
            found = self._search(first, log_end, finds_first=False)
            self.cut_from, self.max_offset = self.max_offset, (first if found is None else found) + 1

    def correct_min_offset(self, log_start: int) -> None:
        """Begin at the first row that leads into the log, as the broker finds it."""
        self.min_offset = self._min(log_start)[1]

    @property
    def missing(self) -> int:
        """Return how many queue offsets from the min to the max offset have no row."""
        kept = 0
        for unit in self.queue.units(self.min_offset, self.max_offset) if self.queue else ():
            kept += not unit.is_pre_blank and not any(unit.queue_offset in run for run in self.runs)
        put = {at for run in self.runs for at in run if self.min_offset <= at < self.max_offset}
        return self.max_offset - self.min_offset - kept - len(put)

    def _min(self, log_start: int) -> tuple[int | None, int]:
        # the first physical offset (None: not known) and the min offset (correctMinCqOffset)
        at, said = self.said_min or (-1, 0)
        if not self.max_offset or at >= log_start:
            return at, said
        last = self._row(self.max_offset - 1)
        if last is not None and last < log_start:
            return log_start, self.max_offset
        found = self._search(said, log_start, finds_first=True)
        if found is not None:
            return self._row(found), found
        return (last, self.max_offset - 1) if self.max_offset - 1 != said else (None, said)

    def _row(self, queue_offset: int) -> int | None:
        """Return the physical offset in a row; OFFSET_MAX in one that this start puts."""
        if any(queue_offset in run for run in self.runs):
            return OFFSET_MAX
        unit = self.queue.find(queue_offset) if self.queue else None
        return None if unit is None or unit.is_pre_blank else unit.physical_offset

    def _search(self, low: int, wanted: int, *, finds_first: bool) -> int | None:
        # as the broker does (binarySearchInCQ), which goes on behind a row that is missing
        high, result = self.max_offset - 1, None
        while high >= low:
            middle = low + (high - low) // 2
            found = self._row(middle)
            if found == wanted:
                return middle if finds_first else result
            if found is not None and found > wanted:
                high, result = middle - 1, middle if finds_first else result
            else:
                low, result = middle + 1, result if finds_first or found is None else middle
        return result


class DatabaseQueues:
    """The queues of `store` in a simulated recovery by the rules `start`.

    The messages for `fill` must come from `builder`. Methods raise OSError if a queue cannot be read.
    """

    undispatchable = None

    def __init__(self, store: ReadOnlyStore, start: StartRules, builder: DispatchRequestBuilder) -> None:
        self._store = store
        self._start = start
        self._builder = builder
        self._queues: dict[QueueKey, DatabaseQueue] = {}
        self._end = 0

    def load(self) -> str | None:
        """Load all queues; return why the broker does not load them, or None."""
        database = self._store.path.queue_database
        try:
            self._end = database.dispatched_end if database is not None else 0
            for key, queue in self._store.queues.items():
                said_min = database.said_min(*key) if database is not None else None
                self._queues[key] = DatabaseQueue(queue, said_min, queue.max_offset)
        except OSError as error:
            return f"{CONSUMEQUEUE}: {error.strerror}"
        unread = (one.detail for one in self._store.foreign if one.code == "unreadable" and one.path == CONSUMEQUEUE)
        return next((f"{CONSUMEQUEUE}: {detail}" for detail in unread), None)

    def destroy(self) -> None:
        """Delete all queues, because the log has no file."""
        self._queues.clear()

    @property
    def end(self) -> int:
        """Return the end of the dispatched log, as the database says; 0 without.

        A dispatch sets it, also back: so an abnormal recovery that cuts the log cuts no queue.
        """
        return self._end

    def fill(self, messages: Rows) -> None:
        """Dispatch good messages (DISPATCH_COLUMNS), in log order."""
        if not len(messages):
            return
        self._end = int(messages[-1]["physical_offset"]) + int(messages[-1]["size"])
        messages = messages[queue_simulate.are_dispatched(messages)]
        for number in np.unique(messages["queue"]).tolist():
            self._queue(self._builder.keys[number]).put(messages["queue_offset"][messages["queue"] == number].tolist())
        if self._start.dispatches_to_lmq:
            for at in messages["physical_offset"][messages["traits"] & MULTI_DISPATCH != 0].tolist():
                message = self._store.commit_log.message_at(at)
                if message is not None:
                    self._put(message, 1)

    def put(self, message: Message, found_at: int) -> None:
        """Dispatch one message that the broker accepts, at physical offset `found_at`."""
        self._end = found_at + message.size
        self._put(message, 0)

    def put_nameless(self, size: int) -> None:
        """Do nothing: no broker with RocksDB passes over such a record."""
        del size

    def cut(self, log_end: int) -> None:
        """Leave out what leads behind the log's end."""
        if log_end < self._end:
            for queue in self._queues.values():
                queue.cut(log_end, self._store.commit_log.min_offset)

    def empty_file_refusal(self) -> str | None:
        """Return None: there are no files."""
        return None

    def correct_min_offsets(self, log_start: int) -> str | None:
        """Find the min offset of each queue; return None, as none fails."""
        for queue in self._queues.values():
            queue.correct_min_offset(log_start)
        return None

    def with_offsets(self) -> Iterator[tuple[QueueKey, DatabaseQueue, int, int]]:
        """Yield key, queue, min offset and max offset of each queue, sorted by key."""
        for key, queue in sorted(self._queues.items()):
            yield key, queue, queue.min_offset, queue.max_offset

    def _put(self, message: Message, first: int) -> None:
        for target in queue_destinations(message)[first:]:
            self._queue((target.topic, target.queue_id)).put([target.queue_offset])

    def _queue(self, key: QueueKey) -> DatabaseQueue:
        return self._queues.setdefault(key, DatabaseQueue(None, None, 0))
