"""How far groups and delay levels have read their queues.

The offsets are in config/consumerOffset.json, lmqConsumerOffset.json and delayOffset.json.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.store.config.config_file import table
from rmqctl.store.config.topics import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.store.read.read_only_store import ReadOnlyStore

CONSUMER_OFFSET, DELAY_OFFSET = "consumerOffset.json", "delayOffset.json"
LMQ_CONSUMER_OFFSET = "lmqConsumerOffset.json"


class StoredOffset(NamedTuple):
    """How far a consumer group, or a delay level, has read a queue, in units.

    `source` is the config file.
    """

    owner: str
    topic: str
    queue_id: int
    offset: int
    source: str


def consumer_offsets(store: ReadOnlyStore) -> list[StoredOffset]:
    """Return the offsets of consumerOffset.json and lmqConsumerOffset.json.

    The keys are `topic@group`, with queueId -> offset; lmqConsumerOffset.json has one queue for each.
    """
    found = []
    for key, offsets in table(store.config(CONSUMER_OFFSET), "offsetTable").items():
        topic, _, group = key.partition("@")
        found += [
            StoredOffset(group, topic, queue_id, offset, CONSUMER_OFFSET) for queue_id, offset in _integers(offsets)
        ]
    for key, offset in table(store.config(LMQ_CONSUMER_OFFSET), "lmqOffsetTable").items():
        topic, _, group = key.partition("@")
        if isinstance(offset, int):
            found.append(StoredOffset(group, topic, 0, offset, LMQ_CONSUMER_OFFSET))
    return found


def delay_offsets(store: ReadOnlyStore) -> list[StoredOffset]:
    """Return the offsets of delayOffset.json (delay level -> offset).

    Level n is queue n - 1.
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
