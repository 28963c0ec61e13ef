"""The topics that exist in a store.

In a store with a topics.json, a topic that is not in it was deleted.

4.x writes some of its own topics into no file, RMQ_SYS_TRANS_OP_HALF_TOPIC for one: 4.9.7 makes that queue again from
the log, and needs it. A topic that a group has an offset in is in use, whatever topics.json says: a queue too many does
no harm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.store.config.topics import is_listed
from rmqctl.store.read.consumers.consumer_offsets import consumer_offsets

if TYPE_CHECKING:
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class KnownTopics:
    """The topics of topics.json, of the groups' offsets, and the brokers' own.

    Without a good topics.json all topics.
    """

    def __init__(self, store: ReadOnlyStore) -> None:
        listed = store.listed_topics
        in_use = (known.topic for known in consumer_offsets(store)) if listed else ()
        self.names = frozenset([*listed, *in_use])

    def __contains__(self, topic: str) -> bool:
        """Return whether a topic was not deleted."""
        return is_listed(topic, self.names)
