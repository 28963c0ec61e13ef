"""Sizes of a store's files."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format.cq_unit import BATCH_CQ_UNIT, CQ_UNIT
from rmqctl.store.consume_queue import BatchConsumeQueue, ConsumeQueue

if TYPE_CHECKING:
    from rmqctl.store.config import BrokerConf
    from rmqctl.store.index_service import IndexFile
    from rmqctl.store.read_only_store import ReadOnlyStore


class Geometry(NamedTuple):
    """Sizes of a store's files: bytes, bytes, counts. The broker's own by default."""

    commitlog_file_size: int = 1 << 30
    consumequeue_file_size: int = 300_000 * CQ_UNIT.size
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    consumequeue_ext_file_size: int = 48 * 1024 * 1024
    batchconsumequeue_file_size: int = 300_000 * BATCH_CQ_UNIT.size


def geometry_of_conf(conf: BrokerConf) -> Geometry:
    """As broker.conf says; the broker's own sizes where it says nothing."""
    usual = Geometry()
    return Geometry(
        conf.commitlog_file_size or usual.commitlog_file_size,
        conf.consumequeue_file_size or usual.consumequeue_file_size,
        conf.index_slots or usual.index_slots,
        conf.index_entries or usual.index_entries,
        conf.consumequeue_ext_file_size or usual.consumequeue_ext_file_size,
        conf.batchconsumequeue_file_size or usual.batchconsumequeue_file_size,
    )


def geometry_of_store(store: ReadOnlyStore) -> Geometry:
    """As the files show; as broker.conf says where there is none."""
    usual = geometry_of_conf(store.conf)
    used = [queue for queue in store.queues.values() if queue.queue.files]
    sizes = [queue.queue.file_size for queue in used if isinstance(queue, ConsumeQueue)]
    batch_sizes = [queue.queue.file_size for queue in used if isinstance(queue, BatchConsumeQueue)]
    slots, entries = index_shape(store) or (usual.index_slots, usual.index_entries)
    ext_sizes = [extension.queue.file_size for extension in store.extensions.values() if extension.queue.files]
    return Geometry(
        commitlog_file_size=store.commit_log.queue.file_size or usual.commitlog_file_size,
        consumequeue_file_size=max(sizes, key=sizes.count, default=usual.consumequeue_file_size),
        index_slots=slots,
        index_entries=entries,
        consumequeue_ext_file_size=max(ext_sizes, key=ext_sizes.count, default=usual.consumequeue_ext_file_size),
        batchconsumequeue_file_size=max(batch_sizes, key=batch_sizes.count, default=usual.batchconsumequeue_file_size),
    )


def index_shape(store: ReadOnlyStore) -> tuple[int, int] | None:
    """Return the slots and entries of most index files; None where no file shows them. Raises OSError.

    A file without room for the entries that its header counts was cut, so its length says nothing.
    """
    shapes = [(file.slots, file.capacity) for file in store.index.files if _is_long_enough(file)]
    return max(shapes, key=lambda shape: (shapes.count(shape), shape), default=None)


def _is_long_enough(file: IndexFile) -> bool:
    header = file.header()
    return header is not None and header.index_count <= file.capacity
