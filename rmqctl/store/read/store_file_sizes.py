"""The file sizes of a store, found from its files."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rmqctl.format.cq_unit import is_ext_address
from rmqctl.store.config.file_sizes import Geometry, geometry_of_conf
from rmqctl.store.read.consume_queue import BatchConsumeQueue, ConsumeQueue

if TYPE_CHECKING:
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.index.index_service import IndexFile
    from rmqctl.store.read.read_only_store import ReadOnlyStore


def geometry_of_store(store: ReadOnlyStore) -> Geometry:
    """Return the file sizes of a store, found from its files.

    For a type without files, the size is that of broker.conf or the broker's default.
    """
    usual = geometry_of_conf(store.conf)
    used = [queue for queue in store.queues.values() if queue.queue.files]
    sizes = [queue.queue.file_size for queue in used if isinstance(queue, ConsumeQueue)]
    batch_sizes = [queue.queue.file_size for queue in used if isinstance(queue, BatchConsumeQueue)]
    slots, entries = index_shape(store) or (usual.index_slots, usual.index_entries)
    ext_sizes = [extension.queue.file_size for extension in store.extensions.values() if extension.queue.files]
    return Geometry(
        commitlog_file_size=store.commit_log.queue.file_size or usual.commitlog_file_size,
        consumequeue_file_size=_most_common(sizes, usual.consumequeue_file_size),
        index_slots=slots,
        index_entries=entries,
        consumequeue_ext_file_size=_most_common(ext_sizes, usual.consumequeue_ext_file_size),
        batchconsumequeue_file_size=_most_common(batch_sizes, usual.batchconsumequeue_file_size),
    )


def queue_file_size(geometry: Geometry, queue: UnitQueue) -> int:
    """Return the size, in bytes, that the files of a queue of this type have."""
    return geometry.consumequeue_file_size if isinstance(queue, ConsumeQueue) else geometry.batchconsumequeue_file_size


def _most_common(sizes: list[int], default: int) -> int:
    """Return the most common size; of several, the first."""
    return Counter(sizes).most_common(1)[0][0] if sizes else default


def index_shape(store: ReadOnlyStore) -> tuple[int, int] | None:
    """Return the most common (number of slots, number of entries) of index files.

    The number of entries is the capacity. None if no file is long enough. Raises OSError.
    """
    shapes = [(file.slots, file.capacity) for file in store.index.files if is_long_enough(file)]
    return max(shapes, key=lambda shape: (shapes.count(shape), shape), default=None)


def is_long_enough(file: IndexFile) -> bool:
    """Return whether an index file has a header, and room for its entries."""
    header = file.header()
    return header is not None and header.index_count <= file.capacity


def writes_extension(store: ReadOnlyStore) -> bool:
    """Return whether new queue units get extension units (enableConsumeQueueExt).

    If broker.conf does not say, they do if one of the queues' last units has the address of an extension unit.
    """
    if store.conf.consumequeue_ext_enabled is not None:
        return store.conf.consumequeue_ext_enabled
    lasts = [store.queues[key].last() for key in store.extensions if key in store.queues]
    return any(last is not None and is_ext_address(last.tags_code) for last in lasts)
