"""Which files of queues, their extensions and the index go when the log begins later: RocketMQ's CleanConsumeQueueService.

A queue's leading files go whose last unit points in front of the log, never its last one (MappedFileQueue.deleteExpiredFileByOffset);
then files of its extension that end before what the first unit left has there (ConsumeQueueExt.truncateByMinAddress); of the index leading
files whose endPhyOffset is in front of the log, never the last one (IndexService.deleteExpiredFile). One that stays keeps those behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.format.cq_unit import ext_offset, is_ext_address
from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.store.config import TOPICS_CONFIG, table
from rmqctl.store.consume_queue import ConsumeQueue
from rmqctl.store.expired_log import LAST_STAYS, ONE_BEFORE_STAYS
from rmqctl.store.expiry_plan import FileFate, QueueRise
from rmqctl.store.system_topics import SYSTEM_PREFIXES, SYSTEM_TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.consume_queue import UnitQueue
    from rmqctl.store.expiry_plan import FileKind
    from rmqctl.store.read_only_store import QueueKey, ReadOnlyStore

IN_FRONT, STILL_THERE = "in front of the log", "which the log has"


class ExpiredQueues:
    """What goes besides the log, when that begins at `new_min_offset` instead of `min_offset` (physical).

    `unused_topics`: the files of queues without any message left go, too, where topics.json does not have the topic; a broker's
    cleanUnusedTopic destroys queues with messages as well. After `look`, `fates` has queues and extensions by name, then the index.
    """

    def __init__(self, store: ReadOnlyStore, min_offset: int, new_min_offset: int, *, unused_topics: bool) -> None:
        self._store = store
        self._min_offset = min_offset
        self._new_min_offset = new_min_offset
        self._known_topics = table(store.config(TOPICS_CONFIG), "topicConfigTable") if unused_topics else {}
        self.fates: list[FileFate] = []
        self.rises: list[QueueRise] = []
        self.warnings: list[str] = []
        if unused_topics and not self._known_topics:
            self.warnings.append(f"{TOPICS_CONFIG} names no topic: which are unused is not known, and none is taken for it")

    def look(self) -> None:
        """Raises Unreadable, OSError where the index cannot be read. A queue that cannot be read stays, with a warning."""
        unreadable = sorted(self._store.unreadable_folders) if self._store.queues else []
        self.warnings += [f"folder {name} of queues cannot be read: what is in it stays" for name in unreadable]
        for key, queue in sorted(self._store.queues.items()):
            try:
                self._look_at(key, queue)
            except OSError as error:
                self.warnings.append(f"queue {key[0]} {key[1]} stays as it is, it cannot be read: {error.strerror}")
        self._look_at_index()

    def _look_at(self, key: QueueKey, queue: UnitQueue) -> None:
        files = queue.queue.files
        if not files:
            return
        low, high = queue.min_offset(self._min_offset), queue.min_offset(self._new_min_offset)
        kind: FileKind = "consumequeue" if isinstance(queue, ConsumeQueue) else "batchconsumequeue"
        extension = self._store.extensions.get(key)
        ext_files = extension.queue.files if extension is not None else []
        if high == queue.max_offset and self._is_unused(key[0]):
            why = f"topic {key[0]} is not in {TOPICS_CONFIG}, and its queue has no message left"
            self.fates += [self._fate(file, kind, why, goes=True) for file in files]
            self.fates += [self._fate(file, "consumequeue_ext", why, goes=True) for file in ext_files]
        else:
            self.fates += self._fates_by_offset(kind, queue)
            self.fates += self._ext_fates(ext_files, queue, high)
        if high > low:
            self.rises.append(QueueRise(*key, low, high))

    def _is_unused(self, topic: str) -> bool:
        if not self._known_topics or topic in self._known_topics or topic in SYSTEM_TOPICS:
            return False
        return not topic.startswith((*SYSTEM_PREFIXES, LMQ_PREFIX))

    def _fates_by_offset(self, kind: FileKind, queue: UnitQueue) -> Iterator[FileFate]:
        *leading, last_file = queue.queue.files
        gone = True
        for file in leading:
            if gone:
                last = int.from_bytes(file.read_exact(file.size - queue.unit_size, 8), "big", signed=True)
                gone = last < self._new_min_offset
                why = f"its last unit points to {last}, " + (IN_FRONT if gone else STILL_THERE)
            else:
                why = ONE_BEFORE_STAYS
            yield self._fate(file, kind, why, goes=gone)
        yield self._fate(last_file, kind, LAST_STAYS)

    def _ext_fates(self, files: Sequence[MappedFile], queue: UnitQueue, first: int) -> Iterator[FileFate]:
        if not files:
            return
        unit = queue.find(first)
        address = unit.tags_code if unit is not None else 0
        begin = ext_offset(address) if is_ext_address(address) and self._store.conf.consumequeue_ext_enabled is not False else 0
        for file in files:
            goes = file.end < begin
            why = f"the first unit left has its extension at {begin}" if goes else "units that are left may lead there"
            yield self._fate(file, "consumequeue_ext", why, goes=goes)

    def _look_at_index(self) -> None:
        files = self._store.index.files
        gone = True
        for index_file in files[:-1]:
            header = index_file.header() if gone else None
            if header is not None:
                gone = header.end_phy_offset < self._new_min_offset
                why = f"its last entry points to {header.end_phy_offset}, " + (IN_FRONT if gone else STILL_THERE)
            else:
                why = "its header cannot be read" if gone else ONE_BEFORE_STAYS
                gone = False
            self.fates.append(self._fate(index_file.file, "index", why, goes=gone))
        self.fates += [self._fate(index_file.file, "index", LAST_STAYS) for index_file in files[-1:]]

    def _fate(self, file: MappedFile, kind: FileKind, why: str, *, goes: bool = False) -> FileFate:
        entry = self._store.storage.entry(file.path)
        return FileFate(file.name, kind, entry.size, entry.allocated, goes, why, entry.mtime)


def stored_bytes(store: ReadOnlyStore) -> int:
    """Bytes of log, queues and index, by the files' lengths (getMajorFileSize)."""
    sizes = [file.size for queue in store.queues.values() for file in queue.queue.files]
    sizes += [index_file.file.size for index_file in store.index.files]
    return store.commit_log.size + sum(sizes)
