"""Find queues that have messages in the log, but no folder.

`pending_messages.py` counts the units of queues, so it misses messages of a queue without a folder. No file in config/
lists every queue. For example, a group may read a topic that neither topics.json nor an offset file names. Therefore
log files are searched for messages of missing queues. A log file is not searched if units point to all its messages
(`unit_coverage.py`).

Messages of deleted topics are ignored. A topic counts as deleted if neither topics.json nor an offset nor a group's
subscription names the topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.format.message import Message
from rmqctl.format.sys_flag import TRANSACTION_MASK, TransactionType
from rmqctl.kernels import dispatch_scan, scan
from rmqctl.kernels.warm_up import warm_up
from rmqctl.logfile.column_reader import ColumnReader
from rmqctl.operations.clean.unit_coverage import files_without_proof
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.consumers.consumer_groups import ConsumerGroups
from rmqctl.store.read.file_scan import FileScan, RecordRun, end_position
from rmqctl.store.read.known_topics import KnownTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.config.topics import QueueKey
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
    """Return the first missing queue that has a message in a log file, or None.

    Prepared messages and rollback messages do not count, because they have no unit in any queue.
    """
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
