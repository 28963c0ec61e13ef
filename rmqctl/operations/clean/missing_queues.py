"""Find queues that have messages in the log, but no folder.

`pending_messages.py` counts the units of queues, so it misses messages of a queue without a folder, and no file in
config/ lists every queue: a group may read a topic that neither topics.json nor an offset file names. Log files are
therefore searched for messages of missing queues, unless units point to all their messages (`files_without_proof`).

Messages of deleted topics are ignored: topics that neither topics.json nor an offset nor a group's subscription names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import PRE_BLANK_SIZE
from rmqctl.format.message import Blank, Message
from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.format.sys_flag import TRANSACTION_MASK, TransactionType
from rmqctl.kernels import dispatch_scan, scan
from rmqctl.kernels.warm_up import warm_up
from rmqctl.logfile.column_reader import ColumnReader
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.consume_queue import ConsumeQueue
from rmqctl.store.read.consumers.consumer_groups import ConsumerGroups
from rmqctl.store.read.file_scan import FileScan, RecordRun, end_position
from rmqctl.store.read.known_topics import KnownTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rmqctl.format.columns import Numbers
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class MissingQueue(NamedTuple):
    """A queue without a folder, and the physical offset of its first message."""

    topic: str
    queue_id: int
    physical_offset: int


def missing_queue(store: ReadOnlyStore, files: Sequence[MappedFile]) -> MissingQueue | None:
    """Return a queue with messages in `files` and without a folder, or None.

    `files` are consecutive log files. Raises OSError.
    """
    unproved = files_without_proof(store, files) if files else []
    if not unproved:
        return None
    warm_up(scan, dispatch_scan, size=store.commit_log.queue.allocated)
    known, groups = KnownTopics(store), ConsumerGroups(store)

    def is_missing(key: QueueKey) -> bool:
        return key not in store.queues and (key[0] in known or groups.is_read(key[0]))

    found = (_first_in(file, is_missing) for file in unproved)
    return next((one for one in found if one is not None), None)


def _first_in(file: MappedFile, is_missing: Callable[[QueueKey], bool]) -> MissingQueue | None:
    # prepared messages and rollback messages do not count: they have no unit in any queue
    builder = DispatchRequestBuilder(with_keys=False)
    missing: list[bool] = []
    for item in FileScan(file, 0, ColumnReader(check_bodies=False), builder.take).items(end_position(file)):
        if isinstance(item, RecordRun | Message):
            messages = (builder.of(item) if isinstance(item, Message) else item.result).messages
            missing += map(is_missing, builder.keys[len(missing) :])
            has_unit = ~np.isin(
                messages["sys_flag"] & TRANSACTION_MASK, (TransactionType.PREPARED, TransactionType.ROLLBACK)
            )
            for row in messages[has_unit & np.array(missing)[messages["queue"]]][:1]:
                return MissingQueue(*builder.keys[int(row["queue"])], int(row["physical_offset"]))
    return None


def files_without_proof(store: ReadOnlyStore, files: Sequence[MappedFile]) -> list[MappedFile]:
    """Return the log files that may have messages without a unit.

    Only units are read, not the log file. A unit covers the bytes of its message there; if units point to all messages
    of a log file, they form a chain: the first begins where the file begins, each later one where the previous one
    ends, and the last one ends at the file's blank record. At each physical offset, 1 is added for each unit that
    begins, and subtracted for each that ends. If the sum is 0 everywhere except at the first begin and the last end,
    the units are one chain. To save memory, one sum is kept for each log file: that of 64-bit hashes of the offsets.

    Units of light queues (LMQ) are left out, because each light message has a unit in the queue of its topic. Messages
    without a queue (prepared messages of 3.x), damage and deleted topics break the chain, so that queues may be
    complete without one.

    `files` are consecutive log files. Raises OSError.
    """
    chains = _Chains(files)
    for (topic, _), queue in store.queues.items():
        if not topic.startswith(LMQ_PREFIX):
            for places, sizes in _units(queue, chains.begin, chains.end):
                chains.add(places, sizes)
    return [file for number, file in enumerate(files) if not _is_whole(store, file, chains.end_of(number))]


class _Chains:
    def __init__(self, files: Sequence[MappedFile]) -> None:
        self.begin = files[0].file_from_offset
        self.end = files[-1].end
        self._borders = np.array([*(file.file_from_offset for file in files), self.end], dtype=np.int64)
        self._left_over = _hashes(self._borders[:-1])
        self._ends = self._borders[:-1].copy()

    def add(self, places: Numbers, sizes: Numbers) -> None:
        numbers = np.searchsorted(self._borders, places, side="right") - 1
        inside = (numbers >= 0) & (numbers < len(self._ends))
        numbers, places, ends = numbers[inside], places[inside], (places + sizes)[inside]
        np.subtract.at(self._left_over, numbers, _hashes(places))
        np.add.at(self._left_over, numbers, _hashes(ends))
        np.maximum.at(self._ends, numbers, ends)

    def end_of(self, number: int) -> int | None:
        # the physical offset where the unit chain of a log file ends, None without one
        end = self._ends[number : number + 1]
        return int(end[0]) if self._left_over[number] == _hashes(end)[0] else None


def _hashes(places: Numbers) -> Numbers:
    # splitmix64
    mixed = places.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _units(queue: UnitQueue, begin: int, end: int) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield (physical offsets, sizes) of a queue's units in [begin, end) of the log.

    Some units after the range may be included.
    """
    first = queue.first_where(lambda unit: unit.physical_offset >= begin)
    if first is None or first.physical_offset >= end:
        return
    if not isinstance(queue, ConsumeQueue):
        units = [(unit.physical_offset, unit.size) for unit in queue.units(first.queue_offset, queue.max_offset)]
        yield (
            np.array([place for place, _ in units], dtype=np.int64),
            np.array([size for _, size in units], dtype=np.int64),
        )
        return
    for _, data in queue.blocks(first.queue_offset, queue.max_offset):
        units_here = np.frombuffer(data, UNITS)
        places, sizes = units_here["physicalOffset"].astype(np.int64), units_here["size"].astype(np.int64)
        used = (sizes > 0) & (sizes != PRE_BLANK_SIZE)
        yield places[used], sizes[used]
        if places[-1] >= end:
            return


def _is_whole(store: ReadOnlyStore, file: MappedFile, end: int | None) -> bool:
    # the unit chain ends at the physical offset `end`; a blank may follow
    if end is None or end >= file.end:
        return end == file.end
    rest = store.commit_log.at(end)
    return isinstance(rest, Blank) and rest.end == file.end
