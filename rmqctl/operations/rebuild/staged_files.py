"""The files of a rebuild, in the staging folder."""

from __future__ import annotations

import time
from contextlib import closing
from functools import reduce
from typing import TYPE_CHECKING

from zlib_ng import zlib_ng

from rmqctl.errors import Unreadable
from rmqctl.logfile.mapped_file_queue import MappedFileQueue
from rmqctl.logfile.writable_mapped_file_queue import WritableMappedFileQueue
from rmqctl.store.config.store_path import BATCHCONSUMEQUEUE, CONSUMEQUEUE, CONSUMEQUEUE_EXT, INDEX
from rmqctl.store.read.consume_queue import BatchConsumeQueue, ConsumeQueue
from rmqctl.store.read.consume_queue_ext import ConsumeQueueExt
from rmqctl.store.read.index.index_service import IndexService
from rmqctl.store.write.batch_consume_queue_writer import BatchConsumeQueueWriter
from rmqctl.store.write.consume_queue_ext_writer import ConsumeQueueExtWriter
from rmqctl.store.write.consume_queue_writer import ConsumeQueueWriter
from rmqctl.store.write.index_writer import IndexWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from rmqctl.logfile.system.staging_storage import StagingStorage
    from rmqctl.operations.rebuild.built_queue import QueueCounts
    from rmqctl.operations.rebuild.selection import WantedQueues
    from rmqctl.store.config.file_sizes import Geometry


class StagedFiles:
    """Opens the new files of a store in `storage`, and checks them.

    The files have the sizes of `geometry`. If the rebuild already has units of a queue, its files go on behind them;
    other files in the queue's folder are deleted. Methods raise OSError.
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
