"""The parts of a store that a rebuild selects, and the queues that it builds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.store.config import store_path
from rmqctl.store.config.config_file import TOPICS_CONFIG, batch_topics
from rmqctl.store.config.topics import QueueKey
from rmqctl.store.read.known_topics import KnownTopics
from rmqctl.store.read.store_file_sizes import writes_extension

if TYPE_CHECKING:
    from rmqctl.store.read.read_only_store import ReadOnlyStore

FOLDER_NAME_MAX = 255  # bytes


class Selection(msgspec.Struct, frozen=True):
    """The parts to rebuild: queues, the index, or both."""

    queues: bool = True
    index: bool = True
    topic: str | None = None  # only its queues
    queue_id: int | None = None  # with `topic`: only this queue
    all_topics: bool = False  # also queues of deleted topics
    keys: frozenset[QueueKey] | None = None  # only these queues
    tags: bool = False  # the index has entries for TAGS (`rmqctl.store.read.index.tag_index`)

    def selects(self, key: QueueKey) -> bool:
        """Return whether a queue is selected by its topic and queueId."""
        return (
            self.topic in (None, key[0]) and self.queue_id in (None, key[1]) and (self.keys is None or key in self.keys)
        )


class WantedQueues(NamedTuple):
    """The queues that a rebuild builds."""

    selection: Selection
    known_topics: KnownTopics
    batch_topics: frozenset[str]  # those with batch consume queues
    with_ext: bool  # whether new units get extension units

    def is_wanted(self, key: QueueKey) -> bool:
        """Return whether a queue is selected, and its topic was not deleted."""
        return self.selection.selects(key) and (self.selection.all_topics or key[0] in self.known_topics)

    def is_batch(self, key: QueueKey) -> bool:
        """Return whether a wanted queue is a batch consume queue."""
        return self.is_wanted(key) and key[0] in self.batch_topics

    def builds(self, key: QueueKey) -> bool:
        """Return whether a wanted consume queue can have a folder, and is built."""
        return is_folder_name(key) and self.is_wanted(key) and key[0] not in self.batch_topics

    def parts_of(self, topic: str) -> tuple[str, ...]:
        """Return the names of the store's folders that contain the queues of a topic."""
        if topic in self.batch_topics:
            return (store_path.BATCHCONSUMEQUEUE,)
        extended = self.with_ext and not topic.startswith(LMQ_PREFIX)
        return (store_path.CONSUMEQUEUE, store_path.CONSUMEQUEUE_EXT) if extended else (store_path.CONSUMEQUEUE,)


def wanted_queues(store: ReadOnlyStore, selection: Selection) -> WantedQueues:
    """Return the queues of `store` that a rebuild of `selection` builds."""
    batches = batch_topics(store.config(TOPICS_CONFIG))
    return WantedQueues(selection, KnownTopics(store), batches, writes_extension(store))


def is_folder_name(key: QueueKey) -> bool:
    """Return whether a topic and a queueId can be names of folders.

    The topic comes from a message and may contain any characters.
    """
    topic, queue_id = key
    is_name = topic not in ("", ".", "..") and not any(character in topic for character in "/\0\ufffd")
    return queue_id >= 0 and is_name and len(topic.encode()) <= FOLDER_NAME_MAX
