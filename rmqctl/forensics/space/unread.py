"""The messages that consumer groups have not consumed, by log file."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.format.columns import UNITS
from rmqctl.store.read.consume_queue import ConsumeQueue
from rmqctl.store.read.consumers.consumer_groups import is_broker_group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.forensics.groups.lag import Lag
    from rmqctl.format.columns import Numbers
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class Unread(NamedTuple):
    """What one group has not consumed. Both have a number for each file of the log."""

    messages: Numbers
    bytes: Numbers  # of these messages, in the log


def unread(store: ReadOnlyStore, lag: Lag) -> dict[str, Unread]:
    """Return what each group has not consumed, without the groups of brokers.

    Queues that cannot be read are left out, and `lag` names them.
    """
    files = store.commit_log.queue.files
    begins = np.array([file.file_from_offset for file in files], np.int64)
    found: dict[str, Unread] = {}
    for row in lag.queues:
        queue = store.queues.get((row.topic, row.queue_id))
        if is_broker_group(row.group) or queue is None or (row.behind or 0) <= 0:
            continue
        of_group = found.setdefault(row.group, Unread(*np.zeros((2, len(files)), np.int64)))
        for places, messages, sizes in _units(queue, max(row.offset or 0, row.min_offset or 0), row.max_offset or 0):
            inside = (places >= store.commit_log.min_offset) & (places < store.commit_log.queue.end)
            numbers = np.searchsorted(begins, places[inside], side="right") - 1
            np.add.at(of_group.messages, numbers, messages[inside])
            np.add.at(of_group.bytes, numbers, sizes[inside])
        queue.queue.close()
    return found


def _units(queue: UnitQueue, start: int, end: int) -> Iterator[tuple[Numbers, Numbers, Numbers]]:
    """Yield physical offsets, messages and bytes of the units at [start, end)."""
    if not isinstance(queue, ConsumeQueue):
        units = [(unit.physical_offset, unit.batch_size, unit.size) for unit in queue.units(start, end)]
        places, messages, sizes = np.array(units, np.int64).reshape(-1, 3).T
        yield places, messages, sizes
        return
    for _, data in queue.blocks(start, end):
        found = np.frombuffer(data, UNITS)
        used = found[found["size"] > 0]
        yield used["physicalOffset"].astype(np.int64), np.ones(len(used), np.int64), used["size"].astype(np.int64)
