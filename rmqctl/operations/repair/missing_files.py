"""Count messages that have units, but no bytes in any log file.

They were lost before the repair.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from rmqctl.format.properties import LMQ_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore
    from rmqctl.store.recovery.data_loss import QueueOutcome

OFFSET_END = 2**63


def missing_records(store: ReadOnlyStore, outcomes: Iterable[QueueOutcome]) -> dict[QueueKey, int]:
    """Count the lost messages of each queue that are in no log file.

    `outcomes` has the number of lost messages of each queue. Raises OSError.
    """
    files = store.commit_log.queue
    gaps = ((file.end, following.file_from_offset) for file, following in pairwise(files.files))
    holes = [(begin, end) for begin, end in (*gaps, (files.end, OFFSET_END)) if begin < end]
    lost = {(outcome.topic, outcome.queue_id): outcome.lost for outcome in outcomes if outcome.lost}
    return {
        key: min(count, sum(messages_between(store, *hole, only=key) for hole in holes)) for key, count in lost.items()
    }


def messages_between(store: ReadOnlyStore, begin: int, end: int, *, only: tuple[str, int] | None = None) -> int:
    """Count messages in [begin, end) of the log, by the units of the queues.

    `only` is the single queue to count (None: all). Light queues (LMQ) do not count, because each light message has a
    unit in the queue of its topic. Raises OSError.
    """
    queues = store.queues if only is None else {key: store.queues[key] for key in [only] if key in store.queues}
    count = 0
    for (topic, _), queue in queues.items():
        if topic.startswith(LMQ_PREFIX):
            continue
        first = queue.first_where(lambda unit: unit.physical_offset >= begin)
        after = queue.first_where(lambda unit: unit.physical_offset >= end)
        if first is not None:
            count += (queue.max_offset if after is None else after.queue_offset) - first.queue_offset
        queue.queue.close()
    return count
