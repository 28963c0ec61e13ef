"""Consume queues and index, rebuilt from the log in a separate folder.

`rmqctl.operations.rebuild.rebuild_plan` plans how the new files replace the old files of the store. The log is read
once, and once more if a queue is disordered (`rmqctl.operations.rebuild.places`). Several threads can scan it
(`RepairedLog`); the calling thread places the units (`QueueBuilder`), and one more thread writes the index entries
(`IndexBuilder`). Each new file is written once, from its first byte to its last (`StagedFiles`). The memory use does
not depend on the size of the log, except for some bytes for each message of a disordered queue.

A rebuilt queue begins with its first message that still exists: expired messages get no unit. A queue without messages
in the log stays unchanged if it is empty, or if its last unit points before the log's start, or to damage. If
topics.json lists topics, all others count as deleted. A rebuild creates no queues for them, and removes their queues
only if the topic is named: an entry of topics.json can be lost.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING

from zlib_ng import zlib_ng

from rmqctl.errors import Unreadable
from rmqctl.forensics.audit.index_audit import IndexAudit
from rmqctl.forensics.audit.index_findings import IndexFindings
from rmqctl.format.message import Damage
from rmqctl.kernels import cq_unit_build, dispatch_scan, index_build, scan
from rmqctl.kernels.warm_up import warm_up
from rmqctl.logfile.mapped_file_queue import MappedFileQueue
from rmqctl.logfile.system.staging_storage import StagingStorage
from rmqctl.logfile.writable_mapped_file_queue import WritableMappedFileQueue
from rmqctl.operations.placeholder.blocks import PlaceholderBlocks
from rmqctl.operations.rebuild import interrupted
from rmqctl.operations.rebuild.batch_queue_builder import BatchQueueBuilder
from rmqctl.operations.rebuild.built_queue import BuiltBatchQueue, BuiltQueue, QueueCounts, close_built
from rmqctl.operations.rebuild.index_builder import IndexBuilder, IndexCounts
from rmqctl.operations.rebuild.interrupted import REBUILD_FILE, Interrupted
from rmqctl.operations.rebuild.places.placed_queues import PlacedQueues
from rmqctl.operations.rebuild.queue_builder import QueueBuilder
from rmqctl.operations.rebuild.repaired_log import LogCounts, RepairedLog
from rmqctl.operations.rebuild.selection import wanted_queues
from rmqctl.operations.rebuild.strays import Stray, Strays
from rmqctl.store.config.store_path import BATCHCONSUMEQUEUE, CONSUMEQUEUE, CONSUMEQUEUE_EXT, INDEX
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.consume_queue import BatchConsumeQueue, ConsumeQueue
from rmqctl.store.read.consume_queue_ext import ConsumeQueueExt
from rmqctl.store.read.index.index_service import IndexService
from rmqctl.store.read.store_file_sizes import geometry_of_store, queue_file_size
from rmqctl.store.read.version_guess import signs_of_5
from rmqctl.store.write.batch_consume_queue_writer import BatchConsumeQueueWriter
from rmqctl.store.write.consume_queue_ext_writer import ConsumeQueueExtWriter
from rmqctl.store.write.consume_queue_writer import ConsumeQueueWriter
from rmqctl.store.write.index_writer import IndexWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from rmqctl.forensics.finding import Finding
    from rmqctl.format.message import Blank
    from rmqctl.operations.rebuild.planned_store import BuiltUnits
    from rmqctl.operations.rebuild.selection import Selection, WantedQueues
    from rmqctl.store.config.file_sizes import Geometry
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns
    from rmqctl.store.read.file_scan import RecordRun
    from rmqctl.store.read.read_only_store import ReadOnlyStore

NO_PLACEHOLDERS = PlaceholderBlocks()


class StagedFiles:
    """Opens the new files of a store in `storage`, and checks them.

    They have the sizes of `geometry`. If the rebuild already has units of a queue, its files go on behind them; other
    files in the queue's folder are deleted. Methods raise OSError.
    """

    def __init__(self, storage: StagingStorage, geometry: Geometry, wanted: WantedQueues) -> None:
        self.storage = storage
        self._geometry = geometry
        self._wanted = wanted
        self._sizes = {
            CONSUMEQUEUE: geometry.consumequeue_file_size,
            CONSUMEQUEUE_EXT: geometry.consumequeue_ext_file_size,
            BATCHCONSUMEQUEUE: geometry.batchconsumequeue_file_size,
        }

    def queue_writer(self, counts: QueueCounts) -> ConsumeQueueWriter:
        """Return the writer of a consume queue, and of its extension."""
        queue, ext = self._files(CONSUMEQUEUE, counts, lambda files: ConsumeQueue(*counts.key, files).used_end), None
        if CONSUMEQUEUE_EXT in self._wanted.parts_of(counts.topic):
            ext = ConsumeQueueExtWriter(self._files(CONSUMEQUEUE_EXT, counts, lambda files: ConsumeQueueExt(files).end))
        return ConsumeQueueWriter(queue, counts.end, ext)

    def batch_writer(self, counts: QueueCounts) -> BatchConsumeQueueWriter:
        """Return the writer of a batch consume queue."""
        queue = self._files(BATCHCONSUMEQUEUE, counts, lambda files: BatchConsumeQueue(*counts.key, files).used_end)
        return BatchConsumeQueueWriter(queue, counts.end, counts.max_offset)

    def index_writer(self) -> IndexWriter:
        """Return the writer of the index."""
        folder = self.storage.root / INDEX
        self.storage.make_folder(folder)
        sizes = self._geometry
        return IndexWriter(self.storage, folder, sizes.index_slots, sizes.index_entries, made_at=_made_at)

    def check(self, queues: Iterable[QueueCounts]) -> None:
        """Check that consume queues have the written bytes. Raises Unreadable."""
        for counts in queues:
            folder = self._folder(CONSUMEQUEUE, counts)
            with closing(MappedFileQueue(self.storage, [folder], self._sizes[CONSUMEQUEUE])) as files:
                queue = ConsumeQueue(*counts.key, files)
                blocks = queue.blocks(counts.min_offset, counts.max_offset)
                crc = reduce(lambda crc, block: zlib_ng.crc32(block[1], crc), blocks, 0)
                if files.anomalies or (queue.max_offset, crc) != (counts.max_offset, counts.crc):
                    raise _not_as_made(self.storage.display(folder))

    def check_index(self, entries: int) -> None:
        """Check that the index has this number of entries. Raises Unreadable."""
        with closing(self.index()) as index:
            headers = [file.header() for file in index.files]
        if sum(header.index_count - 1 for header in headers if header is not None) != entries:
            raise _not_as_made(INDEX)

    def index(self) -> IndexService:
        """Return the reader of the index."""
        return IndexService(self.storage, self.storage.root / INDEX, self._geometry.index_slots)

    def _files(
        self, part: str, counts: QueueCounts, used_end: Callable[[MappedFileQueue], int]
    ) -> WritableMappedFileQueue:
        folder, size = self._folder(part, counts), self._sizes[part]
        if not counts.units:
            for entry in self.storage.listing(folder):
                self.storage.unlink(entry.path)
        with closing(MappedFileQueue(self.storage, [folder], size)) as there:
            end = used_end(there)
        return WritableMappedFileQueue(self.storage, [folder], size, there, end)

    def _folder(self, part: str, counts: QueueCounts) -> Path:
        return self.storage.root / part / counts.topic / str(counts.queue_id)


def _not_as_made(what: str) -> Unreadable:
    return Unreadable(
        "a file does not have the bytes that were written",
        path=what,
        hint="nothing was changed; the disk may be failing",
    )


def _made_at(store_timestamp: int) -> int:
    # a message's store time may be in the future
    return min(max(store_timestamp, 0), time.time_ns() // 1_000_000)


@dataclass
class Rebuilt:
    """The result of a rebuild."""

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

    The new files are written to the folder `staging`; if it is None, messages are only counted, and units compared.
    The log is read up to the physical offset `end` of a record (None: all of it), with `threads` threads; once more
    if a queue is disordered that is not in `disordered`. `placeholders` replace damaged records, and those at the
    physical offsets `erased` get no keys. `units` keeps the units of the disordered queues. New units are compared with
    the existing queues, and with `compares_index`, the existing index with the log. Methods raise OSError.
    """

    def __init__(
        self,
        store: ReadOnlyStore,
        selection: Selection,
        staging: Path | None,
        *,
        threads: int = 1,
        end: int | None = None,
        placeholders: PlaceholderBlocks = NO_PLACEHOLDERS,
        units: BuiltUnits | None = None,
        disordered: Collection[QueueKey] = (),
        compares_index: bool = False,
        erased: Collection[int] = (),
    ) -> None:
        builder = DispatchRequestBuilder(with_keys=selection.index, with_tags=selection.tags)
        self.log = RepairedLog(store, builder, end, placeholders, threads, erased)
        self.selection = selection
        self.geometry = geometry_of_store(store)
        self.wanted = wanted_queues(store, selection)
        self.result = Rebuilt(LogCounts(self.log.range.start), IndexCounts())
        self._store = store
        self._units = units
        storage = StagingStorage(staging, beneath=store.path.root) if staging is not None else None
        self.staged = StagedFiles(storage, self.geometry, self.wanted) if storage is not None else None
        self._compares_index = compares_index and selection.index
        self._audit: IndexAudit | None = None
        self._queues = QueueBuilder(self.log, self.wanted.builds, self._open_queue)
        self._queues.disorder(filter(self.wanted.builds, disordered))
        self._placed = self._placed_queues()
        self._batches = BatchQueueBuilder(self.log, self.wanted.is_batch, self._open_batch_queue)
        writer = self.staged.index_writer() if self.staged is not None and selection.index else None
        self._index = IndexBuilder(writer, self.result.index, self.geometry.index_entries - 1)

    @staticmethod
    def warm_up(size: int | None = None) -> None:
        """Compile or load the kernels, unless the store is small.

        `size` is in bytes. The first compilation takes some seconds.
        """
        warm_up(scan, dispatch_scan, cq_unit_build, index_build, size=size)

    def run(self, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Read the log, and build the queues and the index from it.

        Returns False if `is_over` stopped it before its end; it can then be continued.
        """
        self.warm_up(self._store.allocated)
        if self._compares_index and self._store.index.files:
            self._audit = IndexAudit(self._store, self.log.builder)
        started = time.perf_counter()
        with self._index:
            for item in self.log.items(self.result.log.position):
                self._see(item)
                if is_over():
                    break
            self._index.flush_soon()
            self._queues.flush()
            self._index.wait()
        finished = not is_over() and self._place(is_over)
        self.result.seconds = time.perf_counter() - started
        if finished:
            self._finish()
        elif self.staged is not None:
            state = self._interrupted()
            self._close_files()
            interrupted.save(state, self.staged.storage.root, self._store.path.root)
        return finished

    def go_on(self) -> int:
        """Load the state of an interrupted rebuild; return how many queues it has.

        `run` then continues it. Raises BadRequest if it cannot be continued.
        """
        if self.staged is None:
            raise ValueError("nothing is written")
        found = interrupted.load(self.staged.storage, self.log, self.wanted, self._identity())
        self.result.log, self.result.index, self._queues.left_out = found.log, found.index, found.left_out
        self.log.lost.add(*found.lost)
        self._queues.disorder((topic, queue_id) for topic, queue_id in found.disordered)
        self._placed = None  # it would lack the messages before the position
        for counts in found.queues:
            self._queues.go_on_with(self._open_queue(counts))
        for counts in found.batch_queues:
            self._batches.go_on_with(self._open_batch_queue(counts))
        self._index.counts = found.index
        if self._index.writer is not None:
            with closing(self.staged.index()) as index:
                if index.files:
                    self._index.writer.go_on_with(index.files[-1])
        self.staged.storage.unlink(self.staged.storage.root / REBUILD_FILE)
        return len(found.queues) + len(found.batch_queues)

    def check(self) -> None:
        """Check that the rebuilt files exist and are unchanged. Raises Unreadable."""
        if self.staged is None:
            raise ValueError("nothing is written")
        self.staged.check(counts for counts in self.result.queues if counts.topic not in self.wanted.batch_topics)
        if self.selection.index:
            self.staged.check_index(self.result.index.entries)

    def files_are_right(self, key: QueueKey) -> bool:
        """Return whether a queue's files have names and lengths that brokers accept.

        False if the queue does not exist.
        """
        queue = self._store.queues.get(key)
        if queue is None:
            return False
        size = queue_file_size(self.geometry, queue)
        return not queue.queue.anomalies and all(file.size_on_disk == size for file in queue.queue.files)

    def _see(self, item: Blank | Damage | RecordRun) -> None:
        for described in self.log.described(item):
            self._put(described)
            if not isinstance(item, Damage):
                self.log.lose_fillers(described.messages)
        if self._placed is not None:
            self._placed.put(item)
        if isinstance(item, Damage):
            self.log.lose(item, self.result.log)
        self.result.log.position = max(self.result.log.position, item.end)

    def _put(self, described: DispatchColumns) -> None:
        self.result.log.messages += len(described.messages)
        if self._audit is not None:
            self._audit.on_messages(described)
        if self.selection.queues:
            self._queues.put(described)
            self._batches.put(described)
        if self.selection.index:
            self._index.put(described)

    def _placed_queues(self, known: Collection[QueueKey] = ()) -> PlacedQueues | None:
        """Return the receiver of the messages of disordered, not `known` queues."""
        keys = [key for key in self._queues.disordered() if key not in known]
        return PlacedQueues(self.log, keys, leaves_topics_out=bool(signs_of_5(self._store))) if keys else None

    def _place(self, is_over: Callable[[], bool]) -> bool:
        """Build the disordered queues, if need be from a second pass over the log.

        Returns False if `is_over` stopped it.
        """
        self._queues.disorder_moved()
        others = self._placed_queues(self._placed.keys if self._placed is not None else ())
        if others is not None:
            for item in self.log.items(self.log.range.start):
                others.put(item)
                if is_over():
                    return False
        for placed in filter(None, (self._placed, others)):
            for queue in placed.build(partial(self._open_queue, units=self._units)):
                self._queues.queues[queue.counts.key] = queue
                self.result.placed.append(queue.counts.key)
        return True

    def _finish(self) -> None:
        if self._audit is not None:
            self.result.index_findings = IndexFindings(self._store, [self._audit.finish()]).findings
        strays = Strays(self.log)
        for queue in self._queues.queues.values():
            strays.keep(queue)
        self._close_files()
        built = {queue.counts.key: queue.counts for queue in self._built()}
        for counts in built.values():
            stray = strays.made(counts, lambda key: key in built or not self.selection.selects(key))
            if stray is None:
                self.result.queues.append(counts)
            else:
                self.result.strays.append(stray)
        self.result.queues.sort(key=lambda counts: counts.key)
        known, left_out = self.wanted.known_topics, sorted(self._queues.left_out.items())
        self.result.left_out = {topic: count for topic, count in left_out if topic not in known}
        if self.selection.queues:
            self._sort_others(strays)

    def _sort_others(self, strays: Strays) -> None:
        # queues of a topic that topics.json does not list stay unless the topic is named: the entry may be lost, and
        # the queues are then the only trace of the topic
        made = {counts.key for counts in self.result.queues}
        for key, queue in self._store.queues.items():
            if key in made or not self.selection.selects(key):
                continue
            last = queue.last()
            if not self.wanted.is_wanted(key):
                stays = self.selection.topic is None
            elif last is None:
                stays = queue.used_end == queue.queue.min_offset
            else:
                expired = last.physical_offset < self.log.range.start
                stays = expired or self.log.lost.has(last.physical_offset) or strays.fills(key, last, made)
            (self.result.unchanged if stays else self.result.removed).append(key)

    def _built(self) -> list[BuiltQueue | BuiltBatchQueue]:
        return [*self._queues.queues.values(), *self._batches.queues.values()]

    def _close_files(self) -> None:
        for queue in self._built():
            close_built(queue)
        self._index.close()

    def _interrupted(self) -> Interrupted:
        return Interrupted(
            self._identity(),
            self.result.log,
            [queue.counts for queue in self._queues.queues.values()],
            [queue.counts for queue in self._batches.queues.values()],
            self.result.index,
            self._queues.left_out,
            self.log.lost.to_list(),
            self._queues.disordered(),
        )

    def _identity(self) -> str:
        files = [(file.name, file.size, file.last_modified_timestamp) for file in self._store.commit_log.queue.files]
        topics = (sorted(self.wanted.known_topics.names), sorted(self.wanted.batch_topics))
        settings = self.selection, self.geometry, self.wanted.with_ext, topics
        return repr((*settings, self.log.range.start, self.log.end, files))

    def _open_queue(self, counts: QueueCounts, units: BuiltUnits | None = None) -> BuiltQueue:
        writer = self.staged.queue_writer(counts) if self.staged is not None else None
        extension = self._store.extensions.get(counts.key) if self.wanted.with_ext else None
        return BuiltQueue(counts, self._store.queues.get(counts.key), writer, extension, self.log.range, units)

    def _open_batch_queue(self, counts: QueueCounts) -> BuiltBatchQueue:
        return BuiltBatchQueue(counts, self.staged.batch_writer(counts) if self.staged is not None else None)
