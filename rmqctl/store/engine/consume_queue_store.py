"""The consume queues of a store, open for writing.

A queue is created when its first message is dispatched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.errors import NeedsRecovery
from rmqctl.logfile.mapped_file_queue import MappedFileQueue
from rmqctl.logfile.writable_mapped_file_queue import WritableMappedFileQueue
from rmqctl.store.config import store_path
from rmqctl.store.config.config_file import TOPICS_CONFIG, batch_topics
from rmqctl.store.read.consume_queue import BatchConsumeQueue, ConsumeQueue
from rmqctl.store.read.consume_queue_ext import ConsumeQueueExt
from rmqctl.store.read.store_file_sizes import writes_extension
from rmqctl.store.serve.message_reader import QueueEnd
from rmqctl.store.write.batch_consume_queue_writer import BatchConsumeQueueWriter
from rmqctl.store.write.consume_queue_ext_writer import ConsumeQueueExtWriter, end_of_units
from rmqctl.store.write.consume_queue_writer import ConsumeQueueWriter

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.logfile.system.writable_storage import WritableStorage
    from rmqctl.store.config.file_sizes import Geometry
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

SEE_VERIFY = "`rmqctl verify` shows what is wrong"


def check_queue(store: ReadOnlyStore, key: QueueKey, log_end: int, batch_topics: frozenset[str]) -> int:
    """Return the max physical offset of a queue that can be opened for writing.

    It is 0 for a queue without a unit. Raises NeedsRecovery if the queue cannot be opened: its last record must end at
    or before the log's end `log_end`, all its files must have the right length, and queues of `batch_topics`, and no
    others, must be batch consume queues.
    """
    queue, root = store.queues[key], str(store.path.root)
    last = queue.last()
    if last is not None and last.end > log_end:
        raise NeedsRecovery(f"queue {key[0]}/{key[1]} points after the log's end {log_end}", path=root, hint=SEE_VERIFY)
    if isinstance(queue, BatchConsumeQueue) != (key[0] in batch_topics):
        what = (
            f"queue {key[0]}/{key[1]} is not of the queue.type that config/{TOPICS_CONFIG} says: 5.x does not load it"
        )
        raise NeedsRecovery(what, path=root)
    _check_lengths(queue.queue)
    return last.end if last is not None else 0


def _check_lengths(queue: MappedFileQueue) -> None:
    """Raise NeedsRecovery: a broker does not load a file of a wrong length."""
    for damage in queue.anomalies:
        if damage.code == "file-length":
            raise NeedsRecovery(f"{damage.code}: {damage.detail}", path=damage.path, hint=SEE_VERIFY)


class ConsumeQueueStore:
    """The consume queues of the store `before`, which are open for writing.

    The log of the store ends at the physical offset `log_end`. New files get the sizes in `geometry`. `offsets` has the
    next queue offset of each existing queue.

    Methods raise OSError. Opening raises NeedsRecovery if

    - the record of a unit ends after the log's end;
    - a queue file has a wrong length;
    - the type of a queue differs from queue.type in config/topics.json;
    - a queue unit refers to a missing unit of consumequeue_ext.
    """

    def __init__(self, storage: WritableStorage, before: ReadOnlyStore, geometry: Geometry, log_end: int) -> None:
        self._storage = storage
        self._before = before
        self._geometry = geometry
        self._with_ext = writes_extension(before)
        self.batch_topics = batch_topics(before.config(TOPICS_CONFIG))
        self._queues: dict[QueueKey, ConsumeQueueWriter | BatchConsumeQueueWriter] = {}
        self.offsets: dict[QueueKey, int] = {}
        self.gap_at: int | None = None  # the physical offset that gap units of new queues lead to
        for key, queue in before.queues.items():
            max_physical_offset = check_queue(before, key, log_end, self.batch_topics)
            self.offsets[key] = queue.max_offset
            if isinstance(queue, (ConsumeQueue, BatchConsumeQueue)) and queue.queue.files:
                self._queues[key] = self._gone_on_with(key, queue, max_physical_offset)

    @property
    def max_physical_offset(self) -> int:
        """Return the physical offset after the last record that has a queue unit, or 0."""
        return max([writer.max_physical_offset for writer in self._queues.values()], default=0)

    def recover_topic_queue_table(self) -> None:
        """Set the next queue offsets to the current ends of the queues.

        Dispatch all messages of the log first.
        """
        self.offsets.update({key: writer.max_offset for key, writer in self._queues.items()})

    def find_or_create(self, key: QueueKey) -> ConsumeQueueWriter | BatchConsumeQueueWriter:
        """Return the queue of (topic, queueId); create it if it is missing."""
        if key not in self._queues:
            self._queues[key] = self._new_batch_queue(key) if key[0] in self.batch_topics else self._new_queue(key)
        return self._queues[key]

    def end_of(self, key: QueueKey) -> QueueEnd | None:
        """Return where a queue ends; None if the queue does not exist."""
        writer = self._queues.get(key)
        last = None if writer is None else writer.queue.last
        return None if writer is None or last is None else QueueEnd(writer.max_offset, last.end)

    def flush(self) -> None:
        """Flush all units to disk."""
        for writer in list(self._queues.values()):
            writer.flush()

    def close(self) -> None:
        """Close all files."""
        for writer in self._queues.values():
            writer.close()

    def _new_queue(self, key: QueueKey) -> ConsumeQueueWriter:
        folder, size = self._folder(store_path.CONSUMEQUEUE, key), self._geometry.consumequeue_file_size
        made = ConsumeQueueWriter(WritableMappedFileQueue(self._storage, [folder], size), ext=self._extension(key))
        made.gap_at = self.gap_at
        return made

    def _new_batch_queue(self, key: QueueKey) -> BatchConsumeQueueWriter:
        folder, size = self._folder(store_path.BATCHCONSUMEQUEUE, key), self._geometry.batchconsumequeue_file_size
        return BatchConsumeQueueWriter(WritableMappedFileQueue(self._storage, [folder], size))

    def _gone_on_with(
        self, key: QueueKey, queue: ConsumeQueue | BatchConsumeQueue, max_physical_offset: int
    ) -> ConsumeQueueWriter | BatchConsumeQueueWriter:
        folder = queue.queue.files[0].path.parent
        files = WritableMappedFileQueue(self._storage, [folder], queue.queue.file_size, queue.queue, queue.used_end)
        if isinstance(queue, ConsumeQueue):
            return ConsumeQueueWriter(files, max_physical_offset, self._extension(key, queue))
        return BatchConsumeQueueWriter(files, max_physical_offset, queue.max_offset)

    def _extension(self, key: QueueKey, queue: ConsumeQueue | None = None) -> ConsumeQueueExtWriter | None:
        """`queue` is None for a new queue."""
        if not self._with_ext:
            return None
        folder, size = self._folder(store_path.CONSUMEQUEUE_EXT, key), self._geometry.consumequeue_ext_file_size
        if queue is None:
            return ConsumeQueueExtWriter(WritableMappedFileQueue(self._storage, [folder], size))
        found = self._before.extensions.get(key) or ConsumeQueueExt(MappedFileQueue(self._storage, [folder]))
        _check_lengths(found.queue)
        end = end_of_units(found, queue)
        if end is None:
            what = f"units of queue {key[0]}/{key[1]} have addresses that lead to no unit of its extension"
            raise NeedsRecovery(what, path=str(self._before.path.root), hint=SEE_VERIFY)
        return ConsumeQueueExtWriter(
            WritableMappedFileQueue(self._storage, [folder], found.queue.file_size or size, found.queue, end)
        )

    def _folder(self, part: str, key: QueueKey) -> Path:
        return self._before.path.part(part) / key[0] / str(key[1])
