"""Offsets up to which consumer groups and delay levels have read queues.

The offsets are in config/consumerOffset.json, lmqConsumerOffset.json and delayOffset.json.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.store.config.config_file import DELAY_OFFSETS_CONFIG, OFFSETS_CONFIG, table
from rmqctl.store.config.topics import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.store.read.read_only_store import ReadOnlyStore

CONSUMER_OFFSET, DELAY_OFFSET = OFFSETS_CONFIG, DELAY_OFFSETS_CONFIG
LMQ_CONSUMER_OFFSET = "lmqConsumerOffset.json"
OFFSET_FILES = (CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET)


class StoredOffset(NamedTuple):
    """The offset up to which a consumer group or delay level has read a queue.

    `owner` is the group or the delay level. `offset` is in units. `source` is the name of the config file.
    """

    owner: str
    topic: str
    queue_id: int
    offset: int
    source: str


def consumer_offsets(store: ReadOnlyStore) -> list[StoredOffset]:
    """Return the offsets of consumerOffset.json and lmqConsumerOffset.json.

    A key is `topic@group`. In offsetTable, the value of a key maps each queueId to an offset. In lmqOffsetTable, the
    value of a key is one offset, which belongs to queue 0.

    A broker with enableLmq keeps the offsets of all groups in lmqConsumerOffset.json, and does not read
    consumerOffset.json. If a store has both files, the offsets of both are returned, because the store does not show
    which file its broker reads.
    """
    found = []
    for name in OFFSET_FILES:
        for key, offsets in table(store.config(name), "offsetTable").items():
            topic, _, group = key.partition("@")
            found += [StoredOffset(group, topic, queue_id, offset, name) for queue_id, offset in _integers(offsets)]
    for key, offset in table(store.config(LMQ_CONSUMER_OFFSET), "lmqOffsetTable").items():
        topic, _, group = key.partition("@")
        if isinstance(offset, int):
            found.append(StoredOffset(group, topic, 0, offset, LMQ_CONSUMER_OFFSET))
    return found


def delay_offsets(store: ReadOnlyStore) -> list[StoredOffset]:
    """Return the offset of each delay level, from delayOffset.json.

    Delay level n reads queue n - 1 of SCHEDULE_TOPIC_XXXX.
    """
    levels = table(store.config(DELAY_OFFSET), "offsetTable")
    return [
        StoredOffset(f"delay level {level}", SCHEDULE_TOPIC, level - 1, offset, DELAY_OFFSET)
        for level, offset in _integers(levels)
        if level
    ]


def _integers(offsets: object) -> Iterator[tuple[int, int]]:
    if not isinstance(offsets, dict):
        return
    for key, value in offsets.items():
        if isinstance(key, str) and key.isdecimal() and len(key) <= 10 and isinstance(value, int):
            yield int(key), value
