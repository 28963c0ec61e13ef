"""Write ranges of rebuilt queues, in a task.

A range is a part of a queue whose files belong to no other range. A task gets all messages of its ranges. If the
messages of a range have queue offsets without a gap, are in log order, and are not before a stray, the task writes the
units of the range. All other ranges are `ODD`. Only `QueueBuilder` can build a queue with an odd range.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import CQ_UNIT
from rmqctl.format.message import MIN_SIZE
from rmqctl.kernels.cq_unit_build import DONE, PLACE_STATES, PLAIN, place
from rmqctl.logfile.system.staging_storage import StagingStorage
from rmqctl.logfile.writable_mapped_file_queue import WritableMappedFileQueue
from rmqctl.operations.rebuild.built_queue import BuiltQueue, QueueCounts, check_built
from rmqctl.operations.rebuild.queue_builder import delays_of
from rmqctl.operations.rebuild.strays import is_stray
from rmqctl.store.config.store_path import CONSUMEQUEUE
from rmqctl.store.config.topics import SCHEDULE_TOPIC
from rmqctl.store.read.consume_queue import ConsumeQueue
from rmqctl.store.write.consume_queue_writer import ConsumeQueueWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.format.columns import Numbers, Row, Rows
    from rmqctl.operations.rebuild.in_parts.grouped_part import QueuePiece
    from rmqctl.operations.rebuild.selection import WantedQueues
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

TASKS_FOLDER = "tasks"  # below the staging folder; each run of a task has a folder in it
RangeKey = tuple[bytes, int, int]  # the topic, the queueId, and the number of the range


class RangeState(Enum):
    """The state of a range.

    The task has built a `BUILT` range. The messages of an `ODD` range need `QueueBuilder`. The queue of a `LEFT_OUT`
    range is not rebuilt, because its topic was deleted.
    """

    BUILT = "built"
    ODD = "odd"
    LEFT_OUT = "left out"


class BuiltRange(NamedTuple):
    """The range with the number `number` of a queue.

    `counts` are the counts of the range. `can_be_first` is True if the range is built, and its queue can begin with it.
    `first_physical_offset` is the physical offset of the first message. `folder` has the written files. If nothing was
    written, `folder` is None.
    """

    key: QueueKey
    number: int
    state: RangeState
    messages: int
    counts: QueueCounts
    first_physical_offset: int
    can_be_first: bool = False
    folder: str | None = None


class RangeSettings(NamedTuple):
    """The settings for the work of tasks on ranges.

    `queue_file_size` is in bytes. `log` is the range of physical offsets in the log. `staging` is the folder for new
    files; if it is None, units are compared with the existing queues, but not written.
    """

    wanted: WantedQueues
    queue_file_size: int
    log: range
    staging: str | None


class Refused(NamedTuple):
    """An error of the system that stopped a task."""

    errno: int
    strerror: str
    path: str


def refusal_of(error: OSError) -> Refused:
    """Return an OSError as a value that a task can send to the driver."""
    return Refused(error.errno or 0, error.strerror or str(error), str(error.filename or ""))


class BuiltPile(NamedTuple):
    """The ranges of a pile, or the error that stopped the task."""

    ranges: list[BuiltRange]
    refused: Refused | None = None


def build_pile(store: ReadOnlyStore, pile: int, pieces: Sequence[QueuePiece], *, settings: RangeSettings) -> BuiltPile:
    """Build the ranges of a pile in a new folder below `settings.staging`.

    `pieces` are all pieces of the pile. If Spark runs the task several times, each run has its own folder. Of a store
    with very many queues, only the queues of the pile are opened.
    """
    del pile
    try:
        storage = None if settings.staging is None else own_folder(settings.staging, store)
        built = _Ranges(store, settings, storage)
        ranges = [built.build(key, rows) for key, rows in sorted(_messages_of(pieces).items())]
    except OSError as error:
        return BuiltPile([], refusal_of(error))
    return BuiltPile(ranges)


def own_folder(staging: str, store: ReadOnlyStore) -> StagingStorage:
    """Make a new folder for one run of a task, below `staging`.

    The driver has made TASKS_FOLDER. Several tasks cannot make one folder at the same time. If the driver has ended,
    TASKS_FOLDER is missing, and a late task must not make it again. Raises OSError.
    """
    folder = Path(staging) / TASKS_FOLDER / uuid.uuid4().hex
    StagingStorage(Path(staging), beneath=store.path.root).add_folder(folder)
    return StagingStorage(folder, beneath=store.path.root)


def _messages_of(pieces: Sequence[QueuePiece]) -> dict[RangeKey, Rows]:
    """Return the messages of each range, in log order."""
    found: defaultdict[RangeKey, list[Rows]] = defaultdict(list)
    for piece in sorted(pieces, key=lambda piece: piece.split):
        for topic, queue_id, number, rows in piece.ranges:
            found[topic, queue_id, number].append(rows)
    return {key: np.concatenate(parts) for key, parts in found.items()}


class _Ranges:
    """Builds the ranges of a pile."""

    def __init__(self, store: ReadOnlyStore, settings: RangeSettings, storage: StagingStorage | None) -> None:
        self._store = store
        self._settings = settings
        self._storage = storage
        self._folders = 0
        self._delay_of = delays_of(store)

    def build(self, range_key: RangeKey, rows: Rows) -> BuiltRange:
        """Build a range from its messages. Raises OSError."""
        topic, queue_id, number = range_key
        key = topic.decode("utf-8", "replace"), queue_id
        first = int(rows[0]["queue_offset"])
        physical_offset = int(rows[0]["physical_offset"])
        counts = QueueCounts(*key, min_offset=first, max_offset=first)
        found = BuiltRange(key, number, RangeState.ODD, len(rows), counts, physical_offset)
        wanted = self._settings.wanted
        if not wanted.builds(key):
            is_odd = first < 0 or key[0] in wanted.batch_topics
            return found._replace(state=RangeState.ODD if is_odd else RangeState.LEFT_OUT)
        if not _is_in_order(rows) or not 0 <= first * MIN_SIZE <= physical_offset:
            return found
        if self._is_before_stray(key, rows[-1]):
            return found
        can_be_first = self._can_be_first(key, first)
        return found._replace(state=RangeState.BUILT, can_be_first=can_be_first, folder=self._put(counts, rows))

    def _is_before_stray(self, key: QueueKey, last: Row) -> bool:
        """Return whether the existing queue has a stray after `last`."""
        before = self._store.queue(*key)
        unit = before.find(int(last["queue_offset"]) + 1) if isinstance(before, ConsumeQueue) else None
        if unit is None or not int(last["physical_offset"]) < unit.physical_offset < self._settings.log.stop:
            return False
        record = self._store.commit_log.message_at(unit.physical_offset)
        return record is not None and is_stray(self._store, key, unit, record)

    def _can_be_first(self, key: QueueKey, first: int) -> bool:
        """Return whether a queue surely begins at the queue offset `first`.

        Otherwise, only `QueueBuilder` can decide where the queue begins.
        """
        log_begin = self._store.commit_log.min_offset
        before = self._store.queue(*key)
        return first == 0 or (
            log_begin > 0 and (not isinstance(before, ConsumeQueue) or before.min_offset(log_begin) >= first)
        )

    def _put(self, counts: QueueCounts, rows: Rows) -> str | None:
        """Put the units of all messages into the files of the range, and check them.

        Each range has its own folder, because a pile can have several ranges of one queue. Return the folder, or None
        if nothing is written.
        """
        storage = None
        if self._storage is not None:
            self._folders += 1
            storage = StagingStorage(self._storage.root / str(self._folders), beneath=self._store.path.root)
            self._storage.add_folder(storage.root)
        writer, file_size = None, self._settings.queue_file_size
        if storage is not None:
            folder = storage.root / CONSUMEQUEUE / counts.topic / str(counts.queue_id)
            writer = ConsumeQueueWriter(WritableMappedFileQueue(storage, [folder], file_size))
        queue = BuiltQueue(counts, self._store.queue(*counts.key), writer, log=self._settings.log)
        queue.put(*self._units(counts, rows))
        queue.finish()
        if storage is None:
            return None
        check_built(storage, counts, file_size)
        return str(storage.root)

    def _units(self, counts: QueueCounts, rows: Rows) -> tuple[Rows, Numbers]:
        """Return the units of messages, and the store times (ms) of the messages."""
        rows["queue"] = 0
        states = np.zeros(1, PLACE_STATES)
        states["kind"], states["next"] = PLAIN, counts.min_offset
        states["delay"] = self._delay_of(counts.queue_id) if counts.topic == SCHEDULE_TOPIC else -1
        units, times = np.zeros(len(rows) * CQ_UNIT.size, np.uint8), np.zeros(len(rows), np.int64)
        reached, why = place(rows, 0, states, units, times, len(rows))
        if (reached, why) != (len(rows), DONE):
            raise ValueError("the messages of a range are not in order")
        found: Rows = units.view(UNITS)
        return found, times


def _is_in_order(rows: Rows) -> bool:
    """Return whether messages follow each other in the queue, and in the log."""
    return bool((np.diff(rows["queue_offset"]) == 1).all() and (np.diff(rows["physical_offset"]) > 0).all())
