"""All queues in a simulated recovery.

They are loaded, cut and filled by the broker's rules; nothing is written. The content of a new unit is not kept, unless
its record has a wrong PHYSICALOFFSET.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import takewhile
from operator import itemgetter
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.format.cq_unit import BATCH_CQ_UNIT, CQ_UNIT
from rmqctl.kernels import queue_simulate
from rmqctl.kernels.dispatch_scan import MULTI_DISPATCH, NO_PROPERTIES
from rmqctl.logfile.mapped_file_queue import OFFSET_MAX
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config import store_path
from rmqctl.store.config.config_file import TOPICS_CONFIG, batch_topics
from rmqctl.store.config.file_sizes import geometry_of_conf
from rmqctl.store.dispatch.dispatch_rules import queue_destinations
from rmqctl.store.dispatch.light_queues import is_left_out_topic, undispatchable_offset
from rmqctl.store.read.consume_queue import BatchConsumeQueue
from rmqctl.store.recovery import rules
from rmqctl.store.recovery.queues.simulated_batch_queue import RecoveredBatchQueue
from rmqctl.store.recovery.queues.simulated_queue import (
    FillTable,
    RecoveredQueue,
    SmallQueues,
    begin_at_first_unit,
    max_offsets,
)
from rmqctl.store.recovery.rules import NO_QUEUE, FolderEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rmqctl.format.columns import Numbers, Rows
    from rmqctl.format.message import Message
    from rmqctl.format.profile import StartRules
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.logfile.system.storage import Storage
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore

_NO_ROW = -1


class BuiltSpan(NamedTuple):
    """A rebuilt queue with the queue offsets [min_offset, max_offset)."""

    min_offset: int
    max_offset: int
    physical_end: int  # where the last unit's record ends


class Undispatchable(NamedTuple):
    """The first message that the broker cannot dispatch, and why."""

    physical_offset: int
    why: str


BuiltSpans = Mapping["QueueKey", BuiltSpan]
NOTHING_BUILT: BuiltSpans = {}


class RecoveredQueues:
    """The queues of `store` in a simulated recovery, and the rebuilt queues `built`.

    They follow the rules `start`. The messages for `fill` must come from `builder`. Methods raise OSError if a queue
    cannot be read.
    """

    def __init__(
        self,
        store: ReadOnlyStore,
        start: StartRules,
        builder: DispatchRequestBuilder,
        built: BuiltSpans = NOTHING_BUILT,
    ) -> None:
        self._store = store
        self._built = built
        self._start = start
        self._builder = builder
        self._batch_topics = batch_topics(store.config(TOPICS_CONFIG)) if start.has_batch_queues else frozenset()
        self._file_size = store.conf.consumequeue_file_size or _usual_size(store)
        self._units_a_file = max(self._file_size // CQ_UNIT.size, 1)
        self._queues: dict[QueueKey, RecoveredQueue | RecoveredBatchQueue] = {}
        self._rows: dict[QueueKey, int] = {}
        self._table = FillTable(start, self._units_a_file)
        self._row_of_number = np.zeros(0, np.int32)
        self._one_by_one = (MULTI_DISPATCH if start.dispatches_to_lmq else 0) | (
            NO_PROPERTIES if start.needs_properties else 0
        )
        self.undispatchable: Undispatchable | None = None

    def load(self) -> str | None:
        """Load and recover all queues; return why the broker does not load them, or None."""
        small = SmallQueues(self._table)
        for key, queue in self._store.queues.items():
            is_batch = isinstance(queue, BatchConsumeQueue)
            if is_batch and not self._start.has_batch_queues:
                continue
            refusal = rules.queue_type_refusal(
                key[0], is_batch_folder=is_batch, is_batch_topic=key[0] in self._batch_topics, rules=self._start
            )
            refusal = refusal or self._folder_refusal(key, queue, is_batch=is_batch)
            if refusal:
                return refusal
            files = self._loaded_files(key, queue)
            recovered = self._add(key, queue, files)
            if is_batch or not small.add(self._rows[key], files):
                recovered.recover()
        small.recover()
        for key, span in self._built.items():
            queue_built = self._add(key, None)
            if isinstance(queue_built, RecoveredQueue) and span.max_offset > span.min_offset:
                queue_built.become(span.min_offset, span.max_offset, span.physical_end)
        if not self._store.conflicting_queues:
            return None
        topic = self._store.conflicting_queues[0][0]  # its plain queues were of the right type
        return rules.queue_type_refusal(topic, is_batch_folder=True, is_batch_topic=False, rules=self._start)

    def destroy(self) -> None:
        """Delete all queues, because the log has no file."""
        for queue in self._queues.values():
            queue.destroy()

    @property
    def end(self) -> int:
        """Return the largest max physical offset of all queues; NO_QUEUE without a unit."""
        plain = self._table.rows["max_physical_offset"][: len(self._rows)]
        batch = (queue.max_physical_offset for queue in self._queues.values() if isinstance(queue, RecoveredBatchQueue))
        return max(NO_QUEUE, int(plain.max(initial=NO_QUEUE)) - self._start.repeats_by_start, *batch)

    def fill(self, messages: Rows) -> None:
        """Dispatch good messages (DISPATCH_COLUMNS), in log order."""
        self._know_queues_of(messages)
        messages = _with_java_offsets(messages)
        row = 0
        while row < len(messages):
            states, traits = self._table.rows, self._one_by_one
            row = queue_simulate.fill(messages, row, self._row_of_number, states, self._units_a_file, traits)
            if row < len(messages):
                message = self._store.commit_log.message_at(int(messages[row]["physical_offset"]))
                if message is not None:
                    self._put(message, is_odd=False)
                row += 1

    def put(self, message: Message, found_at: int) -> None:
        """Dispatch one message that the broker accepts, at physical offset `found_at`.

        The stored `message.physical_offset` may be wrong.
        """
        if message.physical_offset == found_at:
            self.fill(self._builder.of(message).messages)
        else:
            self._put(message, is_odd=True)

    def put_nameless(self, size: int) -> None:
        """Dispatch a record of `size` bytes that brokers up to 4.3.1 pass over.

        It gets a unit for physical offset 0 in queue 0 of the topic without a name; only the first one does.
        """
        key = ("", 0)
        if key not in self._queues:
            queue = self._add(key, None)
            if isinstance(queue, RecoveredQueue):
                queue.put(0, size, 0, is_odd=True)

    def cut(self, log_end: int) -> None:
        """Remove all units that point to the log's end or after it."""
        unchanged = queue_simulate.are_before(self._table.rows, log_end).tolist()
        for key, queue in self._queues.items():
            if not unchanged[self._rows[key]]:
                queue.cut(log_end)

    def empty_file_refusal(self) -> str | None:
        """Return why a broker that dispatches nothing before fails at an empty file."""
        for queue in self._queues.values():
            if isinstance(queue, RecoveredQueue) and (why := rules.empty_last_file_refusal(queue, self._start)):
                return f"{queue.name}: {why}"
        return None

    def correct_min_offsets(self, log_start: int) -> str | None:
        """Find the min offset of each queue, or return why a broker finds none."""
        known = begin_at_first_unit(self._table.rows, log_start, self._start).tolist()
        for key, queue in self._queues.items():
            refusal = None if known[self._rows[key]] else queue.correct_min_offset(log_start, self._start)
            if refusal:
                return f"{queue.name}: {refusal}"
        return None

    def with_offsets(self) -> Iterator[tuple[QueueKey, RecoveredQueue | RecoveredBatchQueue, int, int]]:
        """Yield key, queue, min offset and max offset of each queue, sorted by key."""
        low, high = self._table.rows["min_offset"].tolist(), max_offsets(self._table.rows).tolist()
        for key, queue in sorted(self._queues.items(), key=itemgetter(0)):
            if isinstance(queue, RecoveredBatchQueue):
                yield key, queue, queue.min_offset, queue.max_offset
            else:
                yield key, queue, low[self._rows[key]], high[self._rows[key]]

    def _put(self, message: Message, *, is_odd: bool) -> None:
        targets, start = queue_destinations(message), self._start
        to_lmq = start.dispatches_to_lmq and (start.light_queues_for_all_topics or not is_left_out_topic(message.topic))
        if targets and self.undispatchable is None:
            self.undispatchable = self._undispatchable(message, to_lmq=to_lmq)
        for target in targets if to_lmq else targets[:1]:
            key = (target.topic, message.queue_id if start.light_queues_by_id else target.queue_id)
            queue = self._queues.get(key) or self._add(key, None)
            if isinstance(queue, RecoveredBatchQueue):
                queue.put(message)
            else:
                place = int(_java_places(np.array([target.queue_offset]))[0])
                queue.put(message.physical_offset, message.size, place, is_odd=is_odd)

    def _undispatchable(self, message: Message, *, to_lmq: bool) -> Undispatchable | None:
        offset = undispatchable_offset(message) if to_lmq else None
        if offset is not None:
            what = f"INNER_MULTI_QUEUE_OFFSET has {offset!r}, which is no number"
        elif self._start.needs_properties and not message.properties_bytes:
            what = "it has no properties, at which 4.9.3 fails with enableMultiDispatch"
        else:
            return None
        why = f"the message at {message.physical_offset} cannot be dispatched: {what}"
        return Undispatchable(message.physical_offset, why)

    def _know_queues_of(self, messages: Rows) -> None:
        if len(self._row_of_number) < len(self._builder.queues):
            more = np.full(len(self._builder.queues), _NO_ROW, np.int32)
            self._row_of_number = np.concatenate((self._row_of_number, more))
        numbers = messages["queue"][queue_simulate.are_dispatched(messages)]
        for number in np.unique(numbers[self._row_of_number[numbers] == _NO_ROW]).tolist():
            key = self._builder.keys[number]
            if key not in self._queues:
                self._add(key, None)
            self._row_of_number[number] = self._rows[key]

    def _loaded_files(self, key: QueueKey, queue: UnitQueue) -> Sequence[MappedFile]:
        files = queue.queue.files
        if not self._start.stops_loading_at_wrong_length:
            return [file for file in files if file.size]
        if queue.queue.foreign:
            folder = self._store.path.part(store_path.CONSUMEQUEUE) / key[0] / str(key[1])
            until = rules.loads_until(folder_entries(self._store.storage, folder), self._file_size, self._start)
            files = [file for file in files if until is None or PurePath(file.name).name < until]
        return list(takewhile(lambda file: file.size_on_disk == self._file_size, files))

    def _add(
        self, key: QueueKey, queue: UnitQueue | None, files: Sequence[MappedFile] = ()
    ) -> RecoveredQueue | RecoveredBatchQueue:
        """`queue` is None for a queue without a folder."""
        row = self._rows[key] = len(self._rows)
        self._table.extend_to(row)
        if queue.unit_size != CQ_UNIT.size if queue else key[0] in self._batch_topics:
            self._table.rows[row]["is_batch"] = 1
            usual = geometry_of_conf(self._store.conf).batchconsumequeue_file_size
            size = queue.queue.file_size if files and queue else usual
            self._queues[key] = RecoveredBatchQueue(*key, files, max(size // BATCH_CQ_UNIT.size, 1))
        else:
            left_out = queue.queue.files[len(files) :] if queue and self._start.stops_loading_at_wrong_length else []
            if not files and not left_out:
                state = self._table.rows[row]
                state["leads_from"], state["leads_to"] = OFFSET_MAX, 1
            self._queues[key] = RecoveredQueue(*key, files, self._table, row, left_out)
        return self._queues[key]

    def _folder_refusal(self, key: QueueKey, queue: UnitQueue, *, is_batch: bool) -> str | None:
        conf = self._store.conf
        ext_size = conf.consumequeue_ext_file_size if conf.consumequeue_ext_enabled and not is_batch else None
        if ext_size and (refusal := self._refusal_of(store_path.CONSUMEQUEUE_EXT, key, ext_size)):
            return refusal
        size = queue.queue.file_size if is_batch else self._file_size
        lengths_are_right = all(file.size_on_disk == size for file in queue.queue.files)
        if not queue.queue.foreign and not queue.queue.anomalies and lengths_are_right:
            return None
        return self._refusal_of(store_path.BATCHCONSUMEQUEUE if is_batch else store_path.CONSUMEQUEUE, key, size)

    def _refusal_of(self, part: str, key: QueueKey, size: int) -> str | None:
        folder = self._store.path.part(part) / key[0] / str(key[1])
        refusal = rules.load_refusal(folder_entries(self._store.storage, folder), size, self._start)
        return refusal and f"{part}/{key[0]}/{key[1]}: {refusal}"


def _with_java_offsets(messages: Rows) -> Rows:
    """Return messages whose queue offsets are those that a broker puts them at."""
    places = _java_places(messages["queue_offset"])
    if (places == messages["queue_offset"]).all():
        return messages
    changed = messages.copy()
    changed["queue_offset"] = places
    return changed


def _java_places(queue_offsets: Numbers) -> Numbers:
    """Return where Java puts queue offsets: times 20, they may overflow."""
    places: Numbers = queue_offsets * np.int64(CQ_UNIT.size) // CQ_UNIT.size
    return places


def folder_entries(storage: Storage, folder: Path) -> list[FolderEntry]:
    """Return the entries of a folder, for `rules.load_refusal`."""
    return [FolderEntry(entry.name, entry.size, entry.kind is Kind.DIRECTORY) for entry in storage.listing(folder)]


def _usual_size(store: ReadOnlyStore) -> int:
    """Return the most common file length of consume queues; of several, the largest."""
    plain = [queue for queue in store.queues.values() if not isinstance(queue, BatchConsumeQueue)]
    sizes = Counter(file.size for queue in plain for file in queue.queue.files if file.size)
    return max(sizes, key=lambda size: (sizes[size], size), default=geometry_of_conf(store.conf).consumequeue_file_size)
