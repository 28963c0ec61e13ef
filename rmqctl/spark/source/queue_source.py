"""`rocketmq-queues`: the units of all consume queues, one row for each unit.

`rmqctl queue STORE TOPIC QUEUEID -o jsonl` lists the same for one queue. LMQ queues and the batch consume queues of 5.x
are included. The rows of a queue begin with the unit of the first message that the log still has. If a unit points into
the extension (consumequeue_ext), the row has the tagsCode from there.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmqctl.errors import Unreadable
from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import EXT_ADDRESS_MAX
from rmqctl.logfile.mapped_file_queue import MappedFileQueue
from rmqctl.logfile.system.remote_storage import root_path, root_text, storage_of
from rmqctl.spark.scan.json_option import from_json
from rmqctl.spark.source.message_schema import arrow_schema, record_batch
from rmqctl.spark.source.source_stores import broker_of, stores_of
from rmqctl.store.config.store_path import BATCHCONSUMEQUEUE, CONSUMEQUEUE, CONSUMEQUEUE_EXT, Layout, StorePath
from rmqctl.store.read.commit_log import UNREADABLE
from rmqctl.store.read.consume_queue import BatchConsumeQueue, ConsumeQueue
from rmqctl.store.read.consume_queue_ext import ConsumeQueueExt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rmqctl.logfile.system.storage import Storage
    from rmqctl.store.config.broker_conf import BrokerConf
    from rmqctl.store.read.read_only_store import ReadOnlyStore

# queueOffset in units, offsets and sizes in bytes; batchSize is the number of queue offsets that the unit covers
QUEUE_COLUMNS = {
    "broker": "string", "store": "string", "topic": "string", "queueId": "int", "queueOffset": "bigint",
    "physicalOffset": "bigint", "size": "int", "tagsCode": "bigint", "batchSize": "int",
}  # fmt: skip
TASK_BYTES, TASK_QUEUES = 32 * 1024 * 1024, 200  # a task costs 50 ms in addition to reading


class QueueTask(NamedTuple):
    """The input of one task: some queues of the store at `root`."""

    root: str
    in_rocksdb: bool  # the queues are in a database
    min_offset: int  # physical offset where the log begins
    queues: tuple[tuple[str, int, bool], ...]  # (topic, queueId, whether it is a batch consume queue)


class QueueSource:
    """The source of `spark.read.format("rocketmq-queues")`.

    Its options are `path`, `paths`, `brokerConf` and `followLinks`, and `queues`, a JSON list of queues to read:
    [store, topic, queueId].
    """

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        self._stores = stores_of(options, ("queues",))
        self._columns = tuple(columns)
        self._only = _queues_from_json(options["queues"]) if "queues" in options else None

    def tasks(self) -> list[QueueTask]:
        """Return the tasks, each for some of the queues.

        Raises the errors of ReadOnlyStore if a store cannot be opened, and Unreadable if the folder of a queue cannot
        be read.
        """
        tasks = []
        for root in self._stores.roots:
            with self._stores.opened(root, log_only=False) as store:
                tasks += list(_tasks(root, store, self._only))
        return tasks

    def read(self, task: QueueTask) -> Iterator[Any]:
        """Yield the record batches (pyarrow) of a task.

        Raises Unreadable if a queue cannot be read.
        """
        root = root_path(task.root)
        storage = storage_of(root, follow_links=True)  # follow_links was already applied when the tasks were made
        if task.in_rocksdb:
            storage = StorePath(root, self._stores.conf, storage=storage).storage
        schema = arrow_schema(QUEUE_COLUMNS, self._columns)
        for topic, queue_id, is_batch in task.queues:
            same = {"broker": broker_of(task.root), "store": task.root, "topic": topic, "queueId": queue_id}
            try:
                for columns in _units(storage, topic, queue_id, task.min_offset, self._stores.conf, is_batch=is_batch):
                    yield record_batch(schema, columns, same, len(columns["queueOffset"]))
            except OSError as error:
                raise Unreadable(
                    f"the queue {topic}/{queue_id} cannot be read: {error.strerror}", path=task.root
                ) from error


def _queues_from_json(text: str) -> frozenset[tuple[str, str, int]]:
    def make(queues: Any) -> frozenset[tuple[str, str, int]]:
        return frozenset((store, topic, queue_id) for store, topic, queue_id in queues)

    return from_json(text, "queues", make, 'such as [["/data/rocketmq/store", "OrderPaid", 0]]')


def _tasks(root: str, store: ReadOnlyStore, only: frozenset[tuple[str, str, int]] | None) -> Iterator[QueueTask]:
    in_rocksdb = store.path.layout is Layout.ROCKSDB
    chosen: list[tuple[str, int, bool]] = []
    size = 0
    for (topic, queue_id), queue in sorted(store.queues.items()):
        if only is not None and (root, topic, queue_id) not in only:
            continue
        chosen.append((topic, queue_id, isinstance(queue, BatchConsumeQueue)))
        size += sum(file.size for file in queue.queue.files)
        if size >= TASK_BYTES or len(chosen) == TASK_QUEUES:
            yield QueueTask(root, in_rocksdb, store.commit_log.min_offset, tuple(chosen))
            chosen, size = [], 0
    if chosen:
        yield QueueTask(root, in_rocksdb, store.commit_log.min_offset, tuple(chosen))
    unread = [
        damage
        for damage in store.foreign
        if damage.code in UNREADABLE and damage.path.startswith((CONSUMEQUEUE, BATCHCONSUMEQUEUE))
    ]
    if unread:
        raise Unreadable(unread[0].detail, path=root_text(root_path(root) / unread[0].path))


def _units(
    storage: Storage, topic: str, queue_id: int, min_offset: int, conf: BrokerConf, *, is_batch: bool
) -> Iterator[dict[str, Any]]:
    """Yield the units of a queue in blocks (dicts of columns). Raises OSError."""
    place = Path(topic) / str(queue_id)
    if is_batch:
        files = MappedFileQueue(storage, [storage.root / BATCHCONSUMEQUEUE / place], conf.batchconsumequeue_file_size)
        with closing(files):
            yield _of_batches(BatchConsumeQueue(topic, queue_id, files), min_offset)
        return
    files = MappedFileQueue(storage, [storage.root / CONSUMEQUEUE / place], conf.consumequeue_file_size)
    extension = MappedFileQueue(storage, [storage.root / CONSUMEQUEUE_EXT / place], conf.consumequeue_ext_file_size)
    with closing(files), closing(extension):
        yield from _of_units(ConsumeQueue(topic, queue_id, files), min_offset, ConsumeQueueExt(extension))


def _of_units(queue: ConsumeQueue, min_offset: int, extension: ConsumeQueueExt) -> Iterator[dict[str, Any]]:
    for first, raw in queue.blocks(queue.min_offset(min_offset), queue.max_offset):
        units = np.frombuffer(raw, UNITS)
        used = np.flatnonzero((units["physicalOffset"] >= 0) & (units["size"] > 0))
        tags = units["tagsCode"][used].astype(np.int64)
        for row in np.flatnonzero(tags <= EXT_ADDRESS_MAX).tolist():
            found = extension.tags_code(int(tags[row]))
            tags[row] = tags[row] if found is None else found
        yield {
            "queueOffset": used + first,
            "physicalOffset": units["physicalOffset"][used].astype(np.int64),
            "size": units["size"][used].astype(np.int32),
            "tagsCode": tags,
            "batchSize": np.ones(len(used), np.int32),
        }


def _of_batches(queue: BatchConsumeQueue, min_offset: int) -> dict[str, Any]:
    units = list(queue.units(queue.min_offset(min_offset), queue.max_offset))
    return {
        "queueOffset": [unit.queue_offset for unit in units],
        "physicalOffset": [unit.physical_offset for unit in units],
        "size": [unit.size for unit in units],
        "tagsCode": [unit.tags_code for unit in units],
        "batchSize": [unit.batch_size for unit in units],
    }
