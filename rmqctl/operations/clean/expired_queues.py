"""The queue files and index files to delete after the oldest log files.

`clean` follows the rules of RocketMQ's CleanConsumeQueueService. These files are deleted:

- a queue file whose last unit points before the log, but never the last one
  (MappedFileQueue.deleteExpiredFileByOffset);
- a file of a consume queue extension if the queue's first remaining unit points behind it
  (ConsumeQueueExt.truncateByMinAddress);
- an index file whose endPhyOffset is before the log, but never the last one (IndexService.deleteExpiredFile).

If a file stays, all later files of the queue or the index stay. The content of a queue file is unknown if its last unit
is not in use, that of an index file if its header shows no entry. A broker would skip such a file and delete later
ones; `clean` stops before it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from rmqctl.format.cq_unit import ext_offset, is_ext_address
from rmqctl.logfile.system.storage import Kind
from rmqctl.operations.clean.expired_log import LAST_STAYS, ONE_BEFORE_STAYS
from rmqctl.operations.clean.plan_types import MinOffsetAdvance, fate_of
from rmqctl.store.config.config_file import TOPICS_CONFIG
from rmqctl.store.config.store_path import QUEUE_PARTS
from rmqctl.store.config.topics import is_listed
from rmqctl.store.read.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.operations.clean.plan_types import FileDecision, FileKind
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore

_UNIT_HEAD = struct.Struct(">qi")  # physicalOffset and size, in batch queues, too
IN_FRONT, STILL_THERE = "before the log", "which the log has"


class ExpiredQueues:
    """Decides which queue files and index files are deleted.

    After the deletion, the log begins at `new_min_offset` instead of `min_offset` (physical offsets). With
    `unused_topics`, queues without remaining messages are deleted if topics.json does not list the topic; a broker's
    cleanUnusedTopic also deletes queues with messages. `folders` are the folders of deleted queues and topics. `look`
    fills `decisions`: the files of each queue, directly followed by those of its extension, sorted by topic and
    queueId, and then the files of the index.
    """

    def __init__(self, store: ReadOnlyStore, min_offset: int, new_min_offset: int, *, unused_topics: bool) -> None:
        self._store = store
        self._min_offset = min_offset
        self._new_min_offset = new_min_offset
        self._known_topics = store.listed_topics if unused_topics else {}
        self.folders: list[str] = []
        self.decisions: list[FileDecision] = []
        self.rises: list[MinOffsetAdvance] = []
        self.warnings: list[str] = []
        if unused_topics and not self._known_topics:
            self.warnings.append(
                f"{TOPICS_CONFIG} names no topic: which are unused is not known, and none is taken for it"
            )

    def look(self) -> None:
        """Decide which files of queues, extensions and the index are deleted.

        A queue that cannot be read stays, and `warnings` names it. Raises Unreadable, and OSError if the index cannot
        be read.
        """
        for key, queue in sorted(self._store.queues.items()):
            try:
                self._look_at(key, queue)
            except OSError as error:
                self.warnings.append(f"queue {key[0]} {key[1]} stays as it is, it cannot be read: {error.strerror}")
        if self._known_topics:
            self._look_at_folders()
        self._look_at_index()

    def _look_at(self, key: QueueKey, queue: UnitQueue) -> None:
        files = queue.queue.files
        if not files:
            return
        low, end = queue.min_and_max(self._min_offset)
        high = low if self._new_min_offset == self._min_offset else queue.min_offset(self._new_min_offset)
        kind: FileKind = "consumequeue" if isinstance(queue, ConsumeQueue) else "batchconsumequeue"
        extension = self._store.extensions.get(key)
        ext_files = extension.queue.files if extension is not None else []
        if high == end and self._is_unused(key[0]):
            why = f"topic {key[0]} is not in {TOPICS_CONFIG}, and its queue has no message left"
            decisions = [self._decision(file, kind, why, goes=True) for file in files]
            decisions += [self._decision(file, "consumequeue_ext", why, goes=True) for file in ext_files]
        else:
            decisions = [*self._fates_by_offset(kind, queue), *self._ext_fates(ext_files, queue, high)]
        self.decisions += decisions
        if high > low:
            self.rises.append(MinOffsetAdvance(*key, low, high))

    def _is_unused(self, topic: str) -> bool:
        return not is_listed(topic, self._known_topics)

    def _look_at_folders(self) -> None:
        # a folder is deleted if all that it has is deleted; queue folders come before topic folders
        storage = self._store.storage
        going = {decision.path for decision in self.decisions if decision.goes}
        for part in QUEUE_PARTS:
            for name, kind in storage.kinds(str(self._store.path.part(part))):
                if kind is Kind.DIRECTORY and self._is_unused(name):
                    topic = self._store.path.part(part) / name
                    queues = [entry.path for entry in storage.listing(topic) if entry.kind is Kind.DIRECTORY]
                    for folder in (*queues, topic):
                        self._look_at_folder(folder, going)

    def _look_at_folder(self, folder: Path, going: set[str]) -> None:
        storage = self._store.storage
        held = {storage.display(folder / name) for name in storage.names(folder)}
        if held <= going:
            self.folders.append(storage.display(folder))
            going.add(storage.display(folder))

    def _fates_by_offset(self, kind: FileKind, queue: UnitQueue) -> Iterator[FileDecision]:
        *leading, last_file = queue.queue.files
        removed = True
        for file in leading:
            why = ONE_BEFORE_STAYS
            if removed:
                removed, why = self._verdict(file, "its last unit", _last_offset(file, queue.unit_size))
            yield self._decision(file, kind, why, goes=removed)
        yield self._decision(last_file, kind, LAST_STAYS)

    def _verdict(self, file: MappedFile, what: str, offset: int | None) -> tuple[bool, str]:
        # `offset` is the last physical offset to which the file points, or None if its content is not known
        if offset is None:
            self.warnings.append(
                f"{file.name}: {what} is empty, so it stays, and all after it; `rmqctl verify` looks closer"
            )
            return False, f"{what} is empty: what it stands for is not known"
        goes = offset < self._new_min_offset
        return goes, f"{what} points to {offset}, {IN_FRONT if goes else STILL_THERE}"

    def _ext_fates(self, files: Sequence[MappedFile], queue: UnitQueue, first: int) -> Iterator[FileDecision]:
        if not files:
            return
        unit = queue.find(first)
        address = unit.tags_code if unit is not None else 0
        begin = (
            ext_offset(address)
            if is_ext_address(address) and self._store.conf.consumequeue_ext_enabled is not False
            else 0
        )
        for file in files:
            goes = file.end < begin
            why = f"the first unit left has its extension at {begin}" if goes else "units that are left may lead there"
            yield self._decision(file, "consumequeue_ext", why, goes=goes)

    def _look_at_index(self) -> None:
        files = self._store.index.files
        removed = True
        for index_file in files[:-1]:
            why = ONE_BEFORE_STAYS
            if removed:
                header = index_file.header()
                last = header.end_phy_offset if header is not None and header.index_count > 1 else None
                removed, why = self._verdict(index_file.file, "its last entry", last)
            self.decisions.append(self._decision(index_file.file, "index", why, goes=removed))
        self.decisions += [self._decision(index_file.file, "index", LAST_STAYS) for index_file in files[-1:]]

    def _decision(self, file: MappedFile, kind: FileKind, why: str, *, goes: bool = False) -> FileDecision:
        return fate_of(self._store.storage, file, kind, why, goes=goes)


def _last_offset(file: MappedFile, unit_size: int) -> int | None:
    """Return the physical offset in the last whole unit of a queue file.

    The file may have any length. None if the unit is not in use.
    """
    position = (file.size // unit_size - 1) * unit_size
    if position < 0:
        return None
    offset, size = _UNIT_HEAD.unpack(file.read_exact(position, _UNIT_HEAD.size))
    return int(offset) if size > 0 else None


def stored_bytes(store: ReadOnlyStore) -> int:
    """Return the sum of the lengths of log, queue and index files (getMajorFileSize)."""
    sizes = [file.size for queue in store.queues.values() for file in queue.queue.files]
    sizes += [index_file.file.size for index_file in store.index.files]
    return store.commit_log.size + sum(sizes)
