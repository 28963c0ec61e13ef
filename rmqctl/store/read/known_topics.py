"""The topics that exist in a store.

A topic that is missing in topics.json normally counts as deleted. It exists if a consumer group has an offset in it:
then, should it be deleted, its remaining queue does no harm.

The brokers' own topics always exist, although some of 4.x are in no file, for example RMQ_SYS_TRANS_OP_HALF_TOPIC,
whose queue a broker of 4.9.7 needs and rebuilds from the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.store.config.topics import PERM_READ, READ_NUMS, is_broker_topic, is_listed
from rmqctl.store.read.consumers.consumer_offsets import consumer_offsets

if TYPE_CHECKING:
    from rmqctl.store.read.read_only_store import ReadOnlyStore


READ_QUEUES_MAX = 16_384  # of a topic in topics.json; no broker has so many


def read_queue_ids(store: ReadOnlyStore, topic: str) -> range:
    """Return the queueIds that a broker gives to the consumers of a topic.

    They are 0 to readQueueNums - 1 (topics.json); such a queue may have no files.
    """
    listed = store.listed_topics.get(topic)
    count = listed.get(READ_NUMS) if isinstance(listed, dict) else None
    return range(min(count, READ_QUEUES_MAX) if isinstance(count, int) else 0)


def why_unreadable(store: ReadOnlyStore, topic: str, queue_id: int) -> str:
    """Return why no consumer can read a queue, or "" if consumers can.

    The rule is PullMessageProcessor's, 4.1.0 to 5.5.1. It ignores what brokers read themselves.
    """
    listed = store.listed_topics
    if not listed or is_broker_topic(topic):
        return ""
    entry = listed.get(topic)
    if not isinstance(entry, dict):
        return f"{topic} is not in topics.json"
    perm, count = entry.get("perm"), entry.get(READ_NUMS)
    if isinstance(perm, int) and not perm & PERM_READ:
        return f"{topic} has perm {perm} in topics.json, which lacks the bit for reading ({PERM_READ})"
    if isinstance(count, int) and queue_id >= count:
        return f"{topic} has {READ_NUMS} {count} in topics.json, and queueIds count from 0"
    return ""


class KnownTopics:
    """The topics of a store that were not deleted.

    They are those of topics.json, those in which groups have offsets, and the brokers' own. If topics.json does not
    exist or is not valid, every topic counts as existing.
    """

    def __init__(self, store: ReadOnlyStore) -> None:
        listed = store.listed_topics
        in_use = (known.topic for known in consumer_offsets(store)) if listed else ()
        self.names = frozenset([*listed, *in_use])

    def __contains__(self, topic: str) -> bool:
        """Return True if a topic exists, and False if it was deleted."""
        return is_listed(topic, self.names)
