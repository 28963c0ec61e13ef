"""Compare the queues in files with those in RocksDB, in a store with both.

A broker reads those in RocksDB with combineCQPreferCQType=defaultRocksDB. Then, it does not start if a queue ends
elsewhere there than in files, or it serves only what the database has, from its row `min` on (the real 5.5.0). A start
compares them before its own writer of the database is done: on a busy machine, it can refuse, or leave a `min` that
hides all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqctl.forensics.finding import Finding
from rmqctl.format.cq_unit import CQ_UNIT
from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.store.config.store_path import CONSUMEQUEUE, Layout
from rmqctl.store.read.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore
    from rmqctl.store.recovery.data_loss import QueueOutcome
    from rmqctl.store.rocksdb.queue_files import QueueFiles

DIFFERS = "queue-database-differs"  # the code of a Finding
_WITHOUT_TAGS = 12  # bytes: in a unit with an address in consumequeue_ext, the tags code is another


def audit_queue_database(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield a finding for each queue with messages in the log that differs.

    Without a database, the broker may never have written one: that matters if it reads it.
    """
    if store.path.layout is not Layout.COMBINED or not store.path.reads_databases or store.path.is_refilled:
        return
    folder = store.path.queue_database_folder
    try:
        database = store.path.queue_database
        if database is None and not (store.conf.reads_queue_database or store.path.database_files):
            return
        only_light = database is not None and database.has_only(LMQ_PREFIX)  # 5.5.1 can write only those twice
        for queue in store.queues.values():
            if isinstance(queue, ConsumeQueue) and not (only_light and not queue.topic.startswith(LMQ_PREFIX)):
                yield from _compared(store, queue, database, f"{folder}/{queue.topic}/{queue.queue_id}")
            queue.queue.close()
    except OSError as error:
        yield Finding("unreadable", folder, None, f"cannot be read: {error.strerror}")


def _compared(store: ReadOnlyStore, queue: ConsumeQueue, database: QueueFiles | None, path: str) -> Iterator[Finding]:
    key, width = (queue.topic, queue.queue_id), _WITHOUT_TAGS if store.extensions else CQ_UNIT.size
    low, high = queue.min_and_max(store.commit_log.min_offset)
    end = database.end(*key) if database is not None else 0
    _, begin = (database.said_min(*key) if database is not None else None) or (0, 0)
    count, first = max(end - high, 0), high
    for at, data in queue.blocks(low, high):
        units = len(data) // CQ_UNIT.size
        in_database = database.units(*key, at, at + units) if database is not None else bytes(len(data))
        ours, theirs = (np.frombuffer(raw, np.uint8).reshape(units, -1)[:, :width] for raw in (data, in_database))
        differ = np.flatnonzero((ours != theirs).any(axis=1) | (np.arange(at, at + units) < begin))
        if len(differ):
            count, first = count + len(differ), min(first, at + int(differ[0]))
    if count:
        what = f"{count} of {max(high, end) - low} units are not the same in RocksDB, which has {begin} to {end},"
        detail = f"{what} as in {CONSUMEQUEUE}/, which ends at {high}; the first at queue offset {first}"
        yield Finding(DIFFERS, path, None, detail, topic=key[0], queue_id=key[1], queue_offset=first, count=count)


def database_has(store: ReadOnlyStore, queues: Iterable[QueueOutcome], lost: Collection[QueueKey]) -> bool:
    """Return whether the database has the `lost` queues, and else what files have.

    Raises OSError.
    """
    if any((one.topic, one.queue_id) not in lost for one in audit_queue_database(store)):
        return False
    return all(_has(store, queue) for queue in queues if (queue.topic, queue.queue_id) in lost)


def _has(store: ReadOnlyStore, queue: QueueOutcome) -> bool:
    place, database, first = (queue.topic, queue.queue_id), store.path.queue_database, queue.min_offset
    if database is None or database.end(*place) != queue.max_offset:
        return False
    if (database.said_min(*place) or (0, 0))[1] > first:
        return False
    for number, (at, size, _) in enumerate(CQ_UNIT.struct.iter_unpack(database.units(*place, first, queue.max_offset))):
        message = store.commit_log.message_at(at)
        if message is None or (message.topic, message.queue_id) != place:
            return False
        if (message.queue_offset, message.size) != (first + number, size):
            return False
    return True
