"""The ends of queues, and the queues without files that consumers may read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.store.read.known_topics import read_queue_ids
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consumers.consumer_groups import ConsumerGroups
    from rmqctl.store.read.read_only_store import ReadOnlyStore

EMPTY_ROWS_MAX = 10_000  # pairs of a queue without files and a group without an offset


class QueueEnds(NamedTuple):
    """The min and max offset of a queue, as `rmqctl queue` lists them.

    Both are 0 for a queue without files, and None for an unreadable one.
    """

    min_offset: int | None
    max_offset: int | None

    def behind(self, offset: int | None) -> int | None:
        """Return how many messages a group with this offset has not consumed.

        Without an offset, every message of the queue counts. None if the queue cannot be read; below 0 if the offset is
        after its end.
        """
        if self.min_offset is None or self.max_offset is None:
            return None
        return self.max_offset - max(offset or 0, self.min_offset)


def ends_of(store: ReadOnlyStore, key: QueueKey) -> QueueEnds:
    """Return the min and max offset of a queue. Raises OSError."""
    queue = store.queues.get(key)
    if queue is None:
        return QueueEnds(None, None) if store.is_unread(*key) else QueueEnds(0, 0)
    return QueueEnds(*queue.min_and_max(store.commit_log.min_offset))


class EmptyQueues(NamedTuple):
    """Queues without files, which consumers may read according to topics.json.

    A queue without an offset needs one row for each group that reads it. If more than 10,000 rows are needed, `listed`
    is empty, and `unlisted` counts them.
    """

    listed: frozenset[QueueKey]
    unlisted: int


def unlisted_in_words(rows: int) -> str:
    """Say how many rows are left out, and for which queues."""
    return (
        f"{counted(rows, 'row')} of queues without files and without an offset left out (readQueueNums in topics.json)"
    )


def empty_queues(
    store: ReadOnlyStore, groups: ConsumerGroups, topics: Iterable[str], group: str | None = None
) -> EmptyQueues:
    """Return the queues without files in `topics`, for one group or all groups.

    The number of rows is limited: a topic can have thousands of queues in topics.json.
    """
    with_offset = set(groups.queues_with_offset())
    found: set[QueueKey] = set()
    rows = 0
    for topic in topics:
        readers = len(groups.groups_of(topic) if group is None else {group} & groups.groups_of(topic))
        queues = {(topic, queue_id) for queue_id in read_queue_ids(store, topic)} - store.queues.keys()
        rows += readers * len(queues - with_offset)
        if rows <= EMPTY_ROWS_MAX:
            found |= queues
    return EmptyQueues(frozenset(found), 0) if rows <= EMPTY_ROWS_MAX else EmptyQueues(frozenset(), rows)
