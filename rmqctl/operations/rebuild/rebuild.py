"""Consume queues and index, rebuilt from the log in a separate folder.

`rmqctl.operations.rebuild.rebuild_plan` plans how the new files replace the old files of the store. The log is read
once, and once more if a queue is disordered (`rmqctl.operations.rebuild.places`). Several threads can scan the log. The
calling thread places the units (`QueueBuilder`), and one more thread writes the index entries (`IndexBuilder`). Each
new file is written once, from its first byte to its last byte. The memory use does not depend on the size of the log,
but of a disordered queue, a rebuild keeps some bytes for each run of messages. Like a broker's dispatch, a rebuild
without placeholders does not check message bodies.

Like a broker, a rebuild dispatches records with a wrong body CRC, a wrong property CRC or torn properties. A
rebuilt queue begins with its first message that still exists. Expired messages get no unit. An empty queue without
messages in the log stays unchanged. A queue without messages in the log stays unchanged if its last unit points before
the log's start, or to damage. If topics.json lists topics, all other topics count as deleted. A rebuild creates no
queues for deleted topics, and removes their queues only if the topic is named: an entry of topics.json can be lost.

An interrupted rebuild writes its progress to REBUILD_FILE. An interrupted rebuild can be continued if the log has not
changed.
"""

from __future__ import annotations

import time
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from rmqctl.errors import BadRequest, Unreadable
from rmqctl.forensics.audit.index_audit import IndexAudit
from rmqctl.format.cq_unit import PLACES_MAX
from rmqctl.format.message import BAD_BODY_CRC, Damage, Message
from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.format.sys_flag import TRANSACTION_MASK, TransactionType
from rmqctl.kernels import cq_unit_build, dispatch_scan, index_build, scan
from rmqctl.kernels.dispatch_scan import MULTI_DISPATCH
from rmqctl.kernels.warm_up import warm_up
from rmqctl.logfile.mapped_file_queue import OFFSET_MAX, MappedFileQueue
from rmqctl.logfile.system.staging_storage import StagingStorage
from rmqctl.logfile.system.storage import Kind, tree_of
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.logfile.writable_mapped_file_queue import WritableMappedFileQueue
from rmqctl.operations.placeholder.blocks import PlaceholderBlocks
from rmqctl.operations.rebuild.batch_queue_builder import BatchQueueBuilder
from rmqctl.operations.rebuild.built_queue import BuiltQueue, QueueCounts, check_built, keep_nothing, not_as_made
from rmqctl.operations.rebuild.index_builder import IndexBuilder
from rmqctl.operations.rebuild.places.placed_queues import LostRanges, PlacedQueues
from rmqctl.operations.rebuild.queue_builder import QueueBuilder, delays_of
from rmqctl.operations.rebuild.selection import is_folder_name, wanted_queues
from rmqctl.operations.rebuild.strays import Stray, Strays, one_bit_off
from rmqctl.store.config import store_path
from rmqctl.store.config.json_file import read_json
from rmqctl.store.config.topics import QueueKey
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder, NotPassed
from rmqctl.store.read.commit_log import FILE_OVERLAP, ScanSummary
from rmqctl.store.read.consume_queue import BatchConsumeQueue, ConsumeQueue
from rmqctl.store.read.consume_queue_ext import ConsumeQueueExt
from rmqctl.store.read.file_scan import RecordRun
from rmqctl.store.read.index.index_service import IndexService
from rmqctl.store.read.store_file_sizes import geometry_of_store, writes_extension
from rmqctl.store.read.version_guess import signs_of_5
from rmqctl.store.write.batch_consume_queue_writer import BatchConsumeQueueWriter
from rmqctl.store.write.consume_queue_ext_writer import ConsumeQueueExtWriter
from rmqctl.store.write.consume_queue_writer import ConsumeQueueWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rmqctl.forensics.finding import Finding
    from rmqctl.format.columns import Rows
    from rmqctl.format.cq_unit import CqUnit
    from rmqctl.operations.rebuild.planned.built_units import BuiltUnits
    from rmqctl.operations.rebuild.selection import Selection
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns
    from rmqctl.store.read.file_scan import ScanItem
    from rmqctl.store.read.read_only_store import ReadOnlyStore

REBUILD_FILE = "rebuild.json"
BEGIN_ANEW_HINT = "run it without --resume: it begins at the start of the log"
# damage that brokers dispatch: start() of 4.x checks no bodies, and no broker checks the other two
DISPATCHED = frozenset({BAD_BODY_CRC, "bad-property-crc", "torn-properties"})
NO_PLACEHOLDERS = PlaceholderBlocks()


class LogCounts(msgspec.Struct):
    """The progress of a rebuild."""

    position: int  # physical offset
    messages: int = 0  # that were read
    damages: int = 0  # damaged places from which no message can be dispatched


class IndexCounts(msgspec.Struct):
    """The number of index entries, and two end timestamps of index files (ms)."""

    entries: int = 0
    full_until: int = 0  # of the last full index file, or 0
    end_timestamp: int = 0  # of the last index file


class _Suspended(msgspec.Struct):
    """The content of REBUILD_FILE."""

    of: str  # the identity of the interrupted rebuild (`Rebuild._of`)
    log: LogCounts
    queues: list[QueueCounts]
    batch_queues: list[QueueCounts]
    index: IndexCounts
    left_out: dict[str, int]
    lost: list[tuple[int, int]]
    disordered: list[QueueKey]


@dataclass
class Rebuilt:
    """The result of a rebuild."""

    begin: int  # physical offset
    log: LogCounts
    index: IndexCounts
    queues: list[QueueCounts] = field(default_factory=list)  # by topic and queueId
    left_out: dict[str, int] = field(default_factory=dict)  # messages of each deleted topic
    unchanged: list[QueueKey] = field(default_factory=list)
    removed: list[QueueKey] = field(default_factory=list)
    placed: list[QueueKey] = field(default_factory=list)  # disordered queues
    strays: list[Stray] = field(default_factory=list)  # no queue is created for these
    index_findings: list[Finding] | None = None  # of the existing index, if it was compared with the log
    seconds: float = 0.0  # for reading the log
    built_here: str = ""  # why the driver did the work of Spark's tasks


class Rebuild:
    """Rebuilds the selected queues and the index of `store` from its log.

    The new files are written to the folder `staging`. If `staging` is None, the rebuild writes no files, but counts
    messages and compares units. `begin` and `end` are physical offsets of records. By default, the rebuild reads the
    whole log, with `threads` threads. `placeholders` replace damaged records. `units` keeps the units of the
    disordered queues. New units are compared with the existing queues, and with `compares_index`, the existing index
    with the log. Methods raise OSError.
    """

    def __init__(
        self,
        store: ReadOnlyStore,
        selection: Selection,
        staging: Path | None,
        *,
        threads: int = 1,
        begin: int | None = None,
        end: int | None = None,
        placeholders: PlaceholderBlocks = NO_PLACEHOLDERS,
        units: BuiltUnits | None = None,
        compares_index: bool = False,
    ) -> None:
        start = store.commit_log.min_offset if begin is None else begin
        self.result = Rebuilt(start, LogCounts(start), IndexCounts())
        self.geometry = geometry_of_store(store)
        self.selection = selection
        self._store = store
        self._units = units
        self.staging = StagingStorage(staging, beneath=store.path.root) if staging is not None else None
        self._threads = threads
        self._end = end
        self._placeholders = placeholders
        self._with_ext = writes_extension(store)
        self._goes_on_from = start
        self.wanted = wanted_queues(store, selection)
        self.builder = DispatchRequestBuilder(with_keys=selection.index, with_tags=selection.tags)
        self._compares_index = compares_index and selection.index
        self._audit: IndexAudit | None = None
        self._lost = LostRanges()
        self._strays = Strays(store, self._message_at, self.log_range.stop)
        self._delay_of = delays_of(store)
        self._queues = QueueBuilder(
            store, self.builder, self.wanted.builds, self._open_queue, self._delay_of, self._message_at
        )
        self._batches = BatchQueueBuilder(store, self.builder, self.wanted.is_batch, self._open_batch_queue)
        self._not_passed = NotPassed()
        self._index = self._open_index() if selection.index and staging is not None else None

    @staticmethod
    def warm_up(size: int | None = None) -> None:
        """Compile or load the kernels, unless `size` says that the store is small.

        `size` is in bytes. The first compilation takes some seconds.
        """
        warm_up(scan, dispatch_scan, cq_unit_build, index_build, size=size)

    def run(self, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Read the log, and build the queues and the index from the log.

        Returns False if `is_over` stopped the rebuild before its end. A stopped rebuild can be continued.
        """
        self.warm_up(self._store.allocated)
        if self._compares_index and self._store.index.files:
            self._audit = IndexAudit(self._store, self.builder)
        started = time.perf_counter()
        self._goes_on_from = self.result.log.position
        with self._index or nullcontext():
            for item in self._scan(self._goes_on_from):
                if item.end > self._goes_on_from:
                    self._see(item)
                if is_over():
                    break
            if self._index is not None:
                self._index.flush_soon()
            self._queues.flush()
            if self._index is not None:
                self._index.flush()
        finished = not is_over() and self._place(is_over)
        self.result.seconds = time.perf_counter() - started
        if finished:
            self._finish()
        elif self.staging is not None:
            self._suspend(self.staging)
        return finished

    def go_on(self) -> int:
        """Load the state of an interrupted rebuild; return how many queues it has.

        After `go_on`, `run` continues the interrupted rebuild. Raises BadRequest if the interrupted rebuild cannot be
        continued.
        """
        if self.staging is None:
            raise ValueError("nothing is written")
        if any(damage.code == FILE_OVERLAP for damage in self._store.commit_log.queue.anomalies):
            what = (
                "files of the log overlap: the position of the interrupted rebuild does not show what it read of both"
            )
            raise BadRequest(what, path=str(self._store.path.root), hint=BEGIN_ANEW_HINT)
        path = self.staging.root / REBUILD_FILE
        if self.staging.entry(path).kind is not Kind.FILE:
            what = (
                "nothing to resume: the interrupted rebuild was killed before it recorded how far it came; the "
                "store is not changed"
            )
            raise BadRequest(what, path=str(self._store.path.root), hint=BEGIN_ANEW_HINT)
        try:
            found = read_json(self.staging, path, _Suspended, "what the interrupted rebuild left")
        except Unreadable as error:
            raise BadRequest(error.what, path=error.path, hint=BEGIN_ANEW_HINT) from error
        if found.of != self._of():
            what = "the log, or what is to be rebuilt, is not what it was when the rebuild was interrupted"
            raise BadRequest(what, path=str(self._store.path.root), hint=BEGIN_ANEW_HINT)
        if not self._is_of_ours(found):
            what = "what the interrupted rebuild left is not as rmqctl writes it; the store is not changed"
            raise BadRequest(what, path=str(path), hint=BEGIN_ANEW_HINT)
        self.result.log, self._queues.left_out = found.log, found.left_out
        self.result.index = found.index
        self._lost.go_on_with(found.lost)
        for topic, queue_id in found.disordered:
            self._queues.disorder(self.builder.number(topic.encode(), queue_id))
        for counts in found.queues:
            self._queues.go_on_with(self._open_queue(counts))
        for counts in found.batch_queues:
            self._batches.go_on_with(counts)
        if self._index is not None:
            with closing(self._index_service(self.staging)) as index:
                if index.files:
                    self._index.go_on_with(index.files[-1])
        self.staging.unlink(path)
        return len(found.queues) + len(found.batch_queues)

    def _is_of_ours(self, found: _Suspended) -> bool:
        """Return whether `found` is valid content of REBUILD_FILE for this rebuild.

        Another program may have written REBUILD_FILE, because the file is in the store. The names in REBUILD_FILE
        become paths of folders, and the numbers become positions in files. Therefore the names and numbers in
        REBUILD_FILE must be checked.
        """
        plain, batches = [counts.key for counts in found.queues], [counts.key for counts in found.batch_queues]
        disordered = [(topic, queue_id) for topic, queue_id in found.disordered]
        of_queues = (
            all(map(self.wanted.builds, (*plain, *disordered)))
            and all(map(self.wanted.is_batch, batches))
            and all(map(is_folder_name, batches))
        )
        counted = [*found.queues, *found.batch_queues]
        in_order = all(0 <= counts.min_offset <= counts.max_offset < PLACES_MAX for counts in counted)
        numbers = [
            *chain.from_iterable(map(msgspec.structs.astuple, [*counted, found.log, found.index])),
            *chain(*found.lost),
        ]
        fit = all(-2 <= number <= OFFSET_MAX for number in numbers if isinstance(number, int))
        in_log = found.log.position in range(self.log_range.start, self.log_range.stop + 1)
        are_apart = len({*plain, *batches, *disordered}) == len(counted) + len(disordered)
        return of_queues and are_apart and in_order and fit and in_log

    def check(self) -> None:
        """Check that the rebuilt files exist and are unchanged. Raises Unreadable."""
        if self.staging is None:
            raise ValueError("nothing is written")
        for counts in self.result.queues:
            if counts.topic not in self.wanted.batch_topics:
                check_built(self.staging, counts, self.geometry.consumequeue_file_size)
        if self._index is not None:
            with closing(self._index_service(self.staging)) as index:
                headers = [file.header() for file in index.files]
            if sum(header.index_count - 1 for header in headers if header is not None) != self.result.index.entries:
                raise not_as_made(store_path.INDEX)

    @cached_property
    def log_range(self) -> range:
        """Return the range of physical offsets from which the queues are rebuilt."""
        return range(self.result.begin, self._store.commit_log.queue.end if self._end is None else self._end)

    def files_are_right(self, key: QueueKey) -> bool:
        """Return whether a queue's files have names and lengths that brokers accept.

        The result is False if the queue does not exist.
        """
        queue = self._store.queues.get(key)
        if queue is None:
            return False
        batch = isinstance(queue, BatchConsumeQueue)
        size = self.geometry.batchconsumequeue_file_size if batch else self.geometry.consumequeue_file_size
        return not queue.queue.anomalies and all(file.size_on_disk == size for file in queue.queue.files)

    def parts_of(self, topic: str) -> tuple[str, ...]:
        """Return the names of the store's folders that contain the queues of a topic."""
        if topic in self.wanted.batch_topics:
            return (store_path.BATCHCONSUMEQUEUE,)
        extended = self._with_ext and not topic.startswith(LMQ_PREFIX)
        return (store_path.CONSUMEQUEUE, store_path.CONSUMEQUEUE_EXT) if extended else (store_path.CONSUMEQUEUE,)

    def _scan(self, start: int) -> Iterator[ScanItem | RecordRun]:
        return self._store.commit_log.scan_columns(
            ScanSummary(),
            self.builder.take,
            threads=self._threads,
            start=start,
            stop=self._end,
            check_bodies=bool(self._placeholders),
        )

    def _see(self, item: ScanItem | RecordRun) -> None:
        """Process the next item of the log."""
        log = self.result.log
        for described in self._described(item, self._goes_on_from):
            self._put(described)
            if not isinstance(item, Damage):
                self._lose_fillers(described.messages)
        if isinstance(item, Damage):
            self._see_damage(item)
        log.position = max(log.position, item.end)

    def _described(self, item: ScanItem | RecordRun, start: int) -> Iterator[DispatchColumns]:
        """Yield the messages of an item, as they will be after the repair.

        `start` is a physical offset.
        """
        if isinstance(item, RecordRun):
            messages = item.result.messages
            yield item.result._replace(messages=messages[int(messages["physical_offset"].searchsorted(start)) :])
        elif isinstance(item, Damage) and (blocks := self._placeholders.of_damage(item.physical_offset)) is not None:
            for block in blocks if item.code != FILE_OVERLAP else ():  # it begins where damage may begin, too
                described = self.builder.take(block.columns())
                if len(described.messages):
                    yield described
        elif (message := dispatched_message(item)) is not None:
            yield self.builder.of(message)

    def _see_damage(self, damage: Damage) -> None:
        """Count a damaged range from which messages may be lost.

        An overlap of two log files is none, nor is damage that brokers dispatch, or that one placeholder replaces.
        """
        blocks = self._placeholders.of_damage(damage.physical_offset)
        if blocks is None:
            if dispatched_message(damage) is not None:
                return
            self.result.log.damages += 1
        elif [block.size for block in blocks] == [damage.size] and blocks[0].is_one_message:
            return
        begin = max(damage.physical_offset, self.result.log.position)
        if damage.code != FILE_OVERLAP and begin < damage.end:
            self._lost.add(begin, damage.end - begin)

    def _lose_fillers(self, messages: Rows) -> None:
        """Count the fillers of `recover --keep-going`, which are rollback records."""
        fillers = (messages["sys_flag"] & TRANSACTION_MASK == TransactionType.ROLLBACK) & (
            messages["traits"] & MULTI_DISPATCH == 0
        )
        for row in messages[fillers]:
            self._lost.add(int(row["physical_offset"]), int(row["size"]))

    def _place(self, is_over: Callable[[], bool]) -> bool:
        """Build the disordered queues, from a second pass over the log.

        Returns False if `is_over` stopped it.
        """
        keys = self._queues.disordered(self.log_range)
        if not keys:
            return True
        placed = PlacedQueues(
            self._store,
            self.builder,
            keys,
            self._lost,
            self._delay_of,
            self._message_at,
            leaves_topics_out=bool(signs_of_5(self._store)),
        )
        for item in self._scan(self.result.begin):
            for described in self._described(item, self.result.begin):
                placed.put(described)
            if is_over():
                return False
        for queue in placed.build(self._open_placed):
            self._queues.queues[queue.counts.key] = queue
            self.result.placed.append(queue.counts.key)
        return True

    def _message_at(self, physical_offset: int) -> Message | None:
        """Return the message at a physical offset, as it will be after the repair."""
        return self._placeholders.message_at(physical_offset) or self._store.commit_log.message_at(physical_offset)

    def _put(self, described: DispatchColumns) -> None:
        self.result.log.messages += len(described.messages)
        if self._audit is not None:
            self._audit.on_messages(described)
        if self.selection.queues:
            self._queues.put(described)
            self._batches.put(described)
        if self.selection.index:
            self._put_index(described)

    def _put_index(self, described: DispatchColumns) -> None:
        described = self._not_passed.take(described)
        if len(described.messages):
            self._count_entries(described.messages)
            if self._index is not None:
                self._index.put(described)

    def _count_entries(self, messages: Rows) -> None:
        index, in_a_file = self.result.index, self.geometry.index_entries - 1
        counts, before = messages["hashes_count"], index.entries
        index.entries += int(counts.sum())
        if index.entries == before:
            return
        full = (index.entries - 1) // in_a_file * in_a_file
        if 0 < full == before:
            index.full_until = index.end_timestamp
        elif full > before:
            index.full_until = int(messages["store_timestamp"][np.searchsorted(before + np.cumsum(counts), full)])
        last = len(messages) - 1 if counts[-1] else np.flatnonzero(counts)[-1]
        index.end_timestamp = int(messages["store_timestamp"][last])

    def _finish(self) -> None:
        if self._audit is not None:
            self._audit.finish()
            self.result.index_findings = self._audit.findings
        for queue in self._queues.queues.values():
            self._strays.keep(queue)
        self._close_files()
        built = [queue.counts for queue in self._queues.queues.values()] + list(self._batches.queues.values())
        with_messages = {counts.key for counts in built}
        kept = (counts for counts in built if not self._is_stray(counts, with_messages))
        self.result.queues = sorted(kept, key=lambda counts: counts.key)
        known, left_out = self.wanted.known_topics, sorted(self._queues.left_out.items())
        self.result.left_out = {topic: count for topic, count in left_out if topic not in known}
        if self.selection.queues:
            self._judge_others({counts.key for counts in self.result.queues})

    def _is_stray(self, counts: QueueCounts, with_messages: set[QueueKey]) -> bool:
        """Return whether one record with a flipped bit created the queue.

        The flipped bit is in the record's topic or queueId. A unit of another queue points to the record. The other
        queue must stay: it is in `with_messages`, is not rebuilt, or has this unit alone.
        """
        if (
            counts.key in self._store.queues
            or counts.units - counts.repeated - counts.kept != 1
            or not self._store.queues
        ):
            return False
        last = counts.max_offset - 1
        for key in one_bit_off(counts.key):
            unit = self._store.unit(*key, last) if key in self._store.queues else None
            if unit is None or unit.physical_offset + unit.size != counts.end:
                continue
            if key in with_messages or not self.selection.selects(key) or self._is_lone(key, unit):
                self.result.strays.append(Stray(counts.key, key, unit.physical_offset))
                return True
        return False

    def _is_stray_unit(self, key: QueueKey, unit: CqUnit, made: set[QueueKey]) -> bool:
        """Return whether a unit points to a stray.

        The result is False if the queue that the record names is in `made`.
        """
        stray = self._strays.at(key, unit)
        return stray is not None and (stray.topic, stray.queue_id) not in made

    def _is_lone(self, key: QueueKey, unit: CqUnit) -> bool:
        """Return whether an existing queue has no unit but `unit`."""
        queue = self._store.queues[key]
        return queue.min_offset(self.result.begin) == unit.queue_offset == queue.max_offset - 1

    def _judge_others(self, made: set[QueueKey]) -> None:
        """Decide which queues stay unchanged, and which queues are deleted.

        The queues of a topic that topics.json does not list stay unless the topic is named: the entry may be lost, and
        the queues are then the only trace of the topic.
        """
        for key, queue in self._store.queues.items():
            if key in made or not self.selection.selects(key):
                continue
            last = queue.last()
            is_empty = last is None and queue.used_end == queue.queue.min_offset
            alone_knows = last is not None and (
                last.physical_offset < self.result.begin
                or self._lost.has(last.physical_offset)
                or (self._is_lone(key, last) and self._is_stray_unit(key, last, made))
            )
            is_named = self.selection.topic is not None
            stays = is_empty or alone_knows if self.wanted.is_wanted(key) else not is_named
            (self.result.unchanged if stays else self.result.removed).append(key)

    def _close_files(self) -> None:
        for queue in self._queues.queues.values():
            queue.finish()
        self._batches.finish()
        if self._index is not None:
            self._index.close()

    def _suspend(self, storage: StagingStorage) -> None:
        """Flush everything to disk, then write the progress to REBUILD_FILE."""
        disordered = self._queues.disordered(range(0))
        self._close_files()
        on_disk = WritableStorage(storage.root, beneath=self._store.path.root)
        for path, stamp in tree_of(on_disk, storage.root):
            if stamp.kind is Kind.FILE:
                on_disk.sync_file(path)
            else:
                on_disk.sync_folder(path)
        plain, batches = [queue.counts for queue in self._queues.queues.values()], list(self._batches.queues.values())
        said = _Suspended(
            self._of(),
            self.result.log,
            plain,
            batches,
            self.result.index,
            self._queues.left_out,
            self._lost.to_list(),
            disordered,
        )
        on_disk.replace_file(storage.root / REBUILD_FILE, msgspec.json.encode(said))

    def _of(self) -> str:
        """Return the identity of this rebuild: the log files and the settings.

        An interrupted rebuild can continue only if the identity has not changed.
        """
        files = [(file.name, file.size, file.last_modified_timestamp) for file in self._store.commit_log.queue.files]
        topics = (sorted(self.wanted.known_topics.names), sorted(self.wanted.batch_topics))
        return repr((self.selection, self.geometry, self._with_ext, topics, self.result.begin, self._end, files))

    def _open_queue(self, counts: QueueCounts, keep: Callable[[int, Rows], None] = keep_nothing) -> BuiltQueue:
        writer = self._writer(counts, self.staging) if self.staging is not None else None
        extension = self._store.extensions.get(counts.key) if self._with_ext else None
        return BuiltQueue(counts, self._store.queues.get(counts.key), writer, extension, self.log_range, keep)

    def _open_placed(self, counts: QueueCounts) -> BuiltQueue:
        return self._open_queue(counts, self._units.begin(counts.key) if self._units is not None else keep_nothing)

    def _writer(self, counts: QueueCounts, storage: StagingStorage) -> ConsumeQueueWriter:
        size = self.geometry.consumequeue_file_size
        there = self._files(storage, store_path.CONSUMEQUEUE, counts, size)
        with closing(there):
            end = ConsumeQueue(counts.topic, counts.queue_id, there).used_end
        ext = None
        if store_path.CONSUMEQUEUE_EXT in self.parts_of(counts.topic):
            ext_size = self.geometry.consumequeue_ext_file_size
            units = self._files(storage, store_path.CONSUMEQUEUE_EXT, counts, ext_size)
            folder = self._folder(storage, store_path.CONSUMEQUEUE_EXT, counts)
            with closing(units):
                ext_end = ConsumeQueueExt(units).end
            ext = ConsumeQueueExtWriter(WritableMappedFileQueue(storage, [folder], ext_size, units, ext_end))
        folder = self._folder(storage, store_path.CONSUMEQUEUE, counts)
        return ConsumeQueueWriter(WritableMappedFileQueue(storage, [folder], size, there, end), counts.end, ext)

    def _open_batch_queue(self, counts: QueueCounts) -> BatchConsumeQueueWriter | None:
        if self.staging is None:
            return None
        size = self.geometry.batchconsumequeue_file_size
        there = self._files(self.staging, store_path.BATCHCONSUMEQUEUE, counts, size)
        with closing(there):
            end = BatchConsumeQueue(counts.topic, counts.queue_id, there).used_end
        folder = self._folder(self.staging, store_path.BATCHCONSUMEQUEUE, counts)
        return BatchConsumeQueueWriter(
            WritableMappedFileQueue(self.staging, [folder], size, there, end), counts.end, counts.max_offset
        )

    def _files(self, storage: StagingStorage, part: str, counts: QueueCounts, size: int) -> MappedFileQueue:
        """Return the files that a queue has in the staging folder.

        If the rebuild has no units of the queue yet, old files in the queue's folder are deleted first.
        """
        folder = self._folder(storage, part, counts)
        if not counts.units:
            for entry in storage.listing(folder):
                storage.unlink(entry.path)
        return MappedFileQueue(storage, [folder], size)

    def _folder(self, storage: StagingStorage, part: str, counts: QueueCounts) -> Path:
        return storage.root / part / counts.topic / str(counts.queue_id)

    def _open_index(self) -> IndexBuilder | None:
        if self.staging is None:
            return None
        folder = self.staging.root / store_path.INDEX
        self.staging.make_folder(folder)
        slots, entries = self.geometry.index_slots, self.geometry.index_entries
        return IndexBuilder(self.staging, folder, slots, entries)

    def _index_service(self, storage: StagingStorage) -> IndexService:
        return IndexService(storage, storage.root / store_path.INDEX, self.geometry.index_slots)


def dispatched_message(item: ScanItem) -> Message | None:
    """Return the message of an item that brokers dispatch, or None."""
    if isinstance(item, Damage):
        return item.message_in_its_place if item.code in DISPATCHED else None
    return item if isinstance(item, Message) else None
