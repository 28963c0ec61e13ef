"""The topics that exist in a store.

If a store has a topics.json, a topic that is not in it was deleted.

There are two exceptions. 4.x does not write some of its own topics into any file, for example
RMQ_SYS_TRANS_OP_HALF_TOPIC; 4.9.7 rebuilds the queue of this topic from the log, and needs it. A topic in which a group
has an offset is in use, whatever topics.json says: one queue too many does no harm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.store.config.topics import is_listed
from rmqctl.store.read.consumers.consumer_offsets import consumer_offsets

if TYPE_CHECKING:
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class KnownTopics:
    """The topics of a store that were not deleted.

    These are the topics of topics.json, the topics in which groups have offsets, and the brokers' own topics. If
    topics.json is missing or bad, all topics are taken to exist.
    """

    def __init__(self, store: ReadOnlyStore) -> None:
        listed = store.listed_topics
        in_use = (known.topic for known in consumer_offsets(store)) if listed else ()
        self.names = frozenset([*listed, *in_use])

    def __contains__(self, topic: str) -> bool:
        """Return whether a topic was not deleted."""
        return is_listed(topic, self.names)
