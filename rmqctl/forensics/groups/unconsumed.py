"""Physical offsets of the messages that a consumer group has not consumed.

They are read from the units of queues, because a broker delivers the messages to which units point. `rmqctl lag` counts
the queue offsets of the same messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqctl.format.columns import UNITS
from rmqctl.store.read.consume_queue import ConsumeQueue
from rmqctl.store.read.consumers.consumer_groups import ConsumerGroups

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.columns import Numbers
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore


def unconsumed_places(store: ReadOnlyStore, group: str) -> Numbers:
    """Return the physical offsets of the messages that a group has not consumed.

    The array is int64, ascending. Raises BadRequest if the group is unknown, and OSError if a queue cannot be read.
    """
    groups = ConsumerGroups(store)
    groups.check_group(group)
    found: list[Numbers] = [np.empty(0, np.int64)]
    for key, queue in store.queues.items():
        for known in groups.progress(key):
            if known.group == group:
                low, high = queue.min_and_max(store.commit_log.min_offset)
                found += _places(queue, max(known.offset or 0, low), high)
                queue.queue.close()
    return np.unique(np.concatenate(found))


def _places(queue: UnitQueue, start: int, end: int) -> Iterator[Numbers]:
    """Yield the physical offsets of the units at the queue offsets [start, end)."""
    if not isinstance(queue, ConsumeQueue):
        yield np.array([unit.physical_offset for unit in queue.units(start, end)], np.int64)
        return
    for _, data in queue.blocks(start, end):
        units = np.frombuffer(data, UNITS)
        yield units["physicalOffset"][(units["size"] > 0) & (units["physicalOffset"] >= 0)].astype(np.int64)
