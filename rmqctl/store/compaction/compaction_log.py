"""The folder compaction/ of 5.1 and later: the messages of compacted topics.

Consumers of a topic with cleanup.policy=COMPACTION read only from here. A broker copies each message that has KEYS into
compactionLog/TOPIC/QUEUEID/, with its place there as PHYSICALOFFSET: the copy stays when the commit log expires.
compactionCq/TOPIC/QUEUEID/ has a file of the same name for each of these files, with a batch unit a record.

From time to time, the broker writes all files but the last anew, with the newest message of each key alone, and none
for a key whose newest message has no body: the names then have gaps. position-checkpoint (JSON) has the queue offset
up to which a queue is compacted.
"""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqctl.format.cq_unit import BATCH_CQ_UNIT, CqUnit
from rmqctl.format.message import Damage, Message
from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.logfile.mapped_file_queue import JAVA_INT_MAX, LINK_TEXT, is_file_name
from rmqctl.logfile.system.storage import Kind
from rmqctl.logfile.system.zeros import is_zeros
from rmqctl.store.config.store_path import COMPACTION
from rmqctl.store.read.file_scan import FileScan, end_position

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmqctl.logfile.system.storage import Entry
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

LOG, UNITS = f"{COMPACTION}/compactionLog", f"{COMPACTION}/compactionCq"
POSITIONS = "position-checkpoint"
BLOCK = 4096 * BATCH_CQ_UNIT.size  # bytes
NO_QUEUE = -1


@dataclass
class CompactionQueue:
    """The files of one queue in compactionLog and compactionCq, by their names.

    `others` are files that a broker takes for files of the queue, although their names are no offsets. Folders of
    compactionLog/TOPIC that are named by no queueId are in `others` of a queue NO_QUEUE.
    """

    topic: str
    queue_id: int
    log: dict[str, MappedFile] = field(default_factory=dict)
    units: dict[str, MappedFile] = field(default_factory=dict)
    others: list[Entry] = field(default_factory=list)

    def close(self) -> None:
        """Close the descriptors of all files."""
        for file in (*self.log.values(), *self.units.values()):
            file.close()


def compaction_queues(store: ReadOnlyStore) -> list[CompactionQueue]:
    """Return the queues in compaction/, sorted.

    Raises OSError, also if a folder is a link out of the store.
    """
    found: dict[QueueKey, CompactionQueue] = {}
    for part in (LOG, UNITS):
        for topic in _folders(store, store.path.root / part):
            for folder in _folders(store, topic.path):
                is_queue_id = folder.name.isascii() and folder.name.isdecimal() and int(folder.name) <= JAVA_INT_MAX
                key = topic.name, int(folder.name) if is_queue_id else NO_QUEUE
                queue = found.setdefault(key, CompactionQueue(*key))
                if is_queue_id:
                    _add(store, folder.path, queue.log if part == LOG else queue.units, queue)
                elif part == LOG:
                    queue.others.append(folder)
    return [found[key] for key in sorted(found)]


def usual_size(files: list[MappedFile]) -> int:
    """Return the most frequent length of files, in bytes; 0 without files."""
    sizes = Counter(file.size for file in files)
    return max(sizes, key=lambda size: (size > 0, sizes[size], size), default=0)


def records(file: MappedFile) -> Iterator[Message | Damage]:
    """Yield the records of a file of compactionLog, and the damage between them."""
    for item in FileScan(file, 0).items(end_position(file)):
        if isinstance(item, Message):
            yield item
        elif isinstance(item, Damage) and item.code != "bytes-behind-end":  # written over
            yield item._replace(path=file.name)


def slots(file: MappedFile) -> Iterator[tuple[int, CqUnit]]:
    """Yield the units in use of a file of compactionCq, with their slots.

    A broker reads them up to the first slot that is not in use. Raises OSError.
    """
    end = 0
    while end < file.size:
        start = file.next_data(end) // BATCH_CQ_UNIT.size * BATCH_CQ_UNIT.size  # after the hole of a sparse file
        end = start + BLOCK
        block = file.read(start, min(BLOCK, file.size - start))
        whole = b"" if is_zeros(block) else block[: len(block) // BATCH_CQ_UNIT.size * BATCH_CQ_UNIT.size]
        for slot, values in enumerate(BATCH_CQ_UNIT.struct.iter_unpack(whole), start // BATCH_CQ_UNIT.size):
            physical_offset, size, tags_code, _, base, count, _, _ = values
            if physical_offset >= 0 and size > 0 and base >= 0 and count > 0:
                yield slot, CqUnit(base, physical_offset, size, tags_code, count)


def _listed(store: ReadOnlyStore, folder: Path) -> list[Entry]:
    entries = store.storage.listing(folder)
    for entry in (store.storage.entry(folder), *entries):
        if entry.kind is Kind.LINK_OUT:
            raise OSError(errno.EINVAL, LINK_TEXT, str(entry.path))
    return entries


def _folders(store: ReadOnlyStore, folder: Path) -> list[Entry]:
    return [entry for entry in _listed(store, folder) if entry.kind is Kind.DIRECTORY]


def _add(store: ReadOnlyStore, folder: Path, files: dict[str, MappedFile], queue: CompactionQueue) -> None:
    for entry in _listed(store, folder):
        if entry.kind is Kind.FILE and is_file_name(entry.name):
            files[entry.name] = MappedFile(store.storage, entry.path, int(entry.name), entry.size)
        elif entry.kind is not Kind.DIRECTORY:  # those of a compaction that goes on
            queue.others.append(entry)
