"""Consume queues in RocksDB in a simulated recovery.

A dispatched message gets the row of its own QUEUEOFFSET, over the row that was there, and becomes the last one of its
queue (RocksDBConsumeQueueStore of 5.3.3 and 5.5.0, asked with stores of both). `simulated_queues.py` has the rules of
queues in files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import PRE_BLANK_SIZE
from rmqctl.kernels import queue_simulate
from rmqctl.kernels.dispatch_scan import MULTI_DISPATCH
from rmqctl.logfile.mapped_file_queue import OFFSET_MAX
from rmqctl.store.config.store_path import CONSUMEQUEUE
from rmqctl.store.dispatch.dispatch_rules import queue_destinations
from rmqctl.store.read.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.columns import Flags, Numbers, Rows
    from rmqctl.format.message import Message
    from rmqctl.format.profile import StartRules
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
    from rmqctl.store.read.read_only_store import ReadOnlyStore


@dataclass
class DatabaseQueue:
    """A queue with the queue offsets [min_offset, max_offset)."""

    queue: ConsumeQueue | None  # its rows before the start
    said_min: tuple[int, int] | None  # physical offset and queue offset in its row `min`
    max_offset: int
    min_offset: int = 0
    puts: list[Numbers] = field(default_factory=lambda: [np.zeros((1, 2), np.int64)])
    """Runs [start, end) of queue offsets that the start dispatches."""
    cut_from: int | None = None  # max offset before the cut; None: no row was cut
    deleted: tuple[str, ...] = ()

    def put(self, queue_offsets: Numbers) -> None:
        """Put messages with these QUEUEOFFSETs, in log order."""
        jumps = np.flatnonzero(np.diff(queue_offsets) != 1) + 1
        first, last = queue_offsets[np.append(0, jumps)], queue_offsets[np.append(jumps, 0) - 1]
        self.puts.append(np.stack((first, last + 1), axis=1))
        self.max_offset = int(queue_offsets[-1]) + 1

    @property
    def runs(self) -> Numbers:
        """Return the runs [start, end) of `puts`, sorted and apart."""
        if len(self.puts) > 1:
            runs = np.concatenate(self.puts)
            runs = runs[np.argsort(runs[:, 0])]
            ends = np.maximum.accumulate(runs[:, 1])
            begins = np.append(True, runs[1:, 0] > ends[:-1])
            self.puts = [np.stack((runs[begins, 0], ends[np.append(begins[1:], True)]), axis=1)]
        return self.puts[0]

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

    def behind(self, log_end: int) -> int:
        """Return how many rows led behind the log's end before the start."""
        found = self.queue and self.queue.first_where(lambda unit: unit.physical_offset >= log_end)
        return self.queue.max_offset - found.queue_offset if self.queue and found else 0

    def correct_min_offset(self, log_start: int) -> None:
        """Begin at the first row that leads into the log, as the broker finds it."""
        self.min_offset = self._min(log_start)[1]

    @property
    def missing(self) -> int:
        """Return how many queue offsets from the min to the max offset have no row."""
        found = int(np.diff(self.runs.clip(self.min_offset, min(self.max_offset, OFFSET_MAX))).sum())
        for slot, data in self.queue.blocks(self.min_offset, self.max_offset) if self.queue else ():
            units = np.frombuffer(data, UNITS)
            is_blank = (units["physicalOffset"] == 0) & (units["size"] == PRE_BLANK_SIZE)
            is_row = (units["physicalOffset"] >= 0) & (units["size"] > 0) & ~is_blank
            found += int(np.count_nonzero(~self._is_put(slot + np.flatnonzero(is_row))))
        return self.max_offset - self.min_offset - found

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
        if self._is_put(np.array([queue_offset]))[0]:
            return OFFSET_MAX
        unit = self.queue.find(queue_offset) if self.queue else None
        return None if unit is None or unit.is_pre_blank else unit.physical_offset

    def _is_put(self, queue_offsets: Numbers) -> Flags:
        runs = self.runs
        at = np.searchsorted(runs[:, 0], queue_offsets, "right") - 1
        found: Flags = (at >= 0) & (queue_offsets < runs[at, 1])
        return found

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
            queues = self._store.queues.items()
            for key, queue in ((key, queue) for key, queue in queues if isinstance(queue, ConsumeQueue)):
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
            self._queue(self._builder.keys[number]).put(messages["queue_offset"][messages["queue"] == number])
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
            self._queue((target.topic, target.queue_id)).put(np.array([target.queue_offset]))

    def _queue(self, key: QueueKey) -> DatabaseQueue:
        return self._queues.setdefault(key, DatabaseQueue(None, None, 0))
