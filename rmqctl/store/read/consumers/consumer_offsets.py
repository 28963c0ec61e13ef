"""The queue offsets that consumer groups and delay levels have reached.

A broker stores them in config/consumerOffset.json, config/lmqConsumerOffset.json and config/delayOffset.json.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.store.config.config_file import DELAY_OFFSETS_CONFIG, OFFSETS_CONFIG, table
from rmqctl.store.config.topics import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from rmqctl.store.config.broker_conf import BrokerConf
    from rmqctl.store.read.read_only_store import ReadOnlyStore

CONSUMER_OFFSET, DELAY_OFFSET = OFFSETS_CONFIG, DELAY_OFFSETS_CONFIG
LMQ_CONSUMER_OFFSET = "lmqConsumerOffset.json"
OFFSET_FILES = (CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET)


class StoredOffset(NamedTuple):
    """The queue offset that a consumer group or delay level has reached."""

    owner: str  # name of the group or of the delay level
    topic: str
    queue_id: int
    offset: int  # in units
    source: str  # name of its config file


def offset_files(conf: BrokerConf) -> tuple[str, ...]:
    """Return the files of config/ where such a broker keeps the offsets of groups.

    A broker of 4.9.3 or later with enableLmq reads and writes only lmqConsumerOffset.json (LmqConsumerOffsetManager),
    and any other broker only consumerOffset.json. Both are returned if broker.conf does not say enableLmq, because the
    store does not show it.
    """
    if conf.enable_lmq is None:
        return OFFSET_FILES
    return (LMQ_CONSUMER_OFFSET,) if conf.enable_lmq else (CONSUMER_OFFSET,)


def consumer_offsets(store: ReadOnlyStore, names: Collection[str] = ()) -> list[StoredOffset]:
    """Return the offsets in consumerOffset.json and lmqConsumerOffset.json.

    `names` are the files to read, by default those of `offset_files`.

    Their keys have the form `topic@group`. In offsetTable, the value is a map from queueIds to offsets; in
    lmqOffsetTable, it is one offset, for queue 0.
    """
    found = []
    names = names or offset_files(store.conf)
    for name in names:
        for key, offsets in table(store.config(name), "offsetTable").items():
            topic, _, group = key.partition("@")
            found += [StoredOffset(group, topic, queue_id, offset, name) for queue_id, offset in _integers(offsets)]
    light = table(store.config(LMQ_CONSUMER_OFFSET), "lmqOffsetTable") if LMQ_CONSUMER_OFFSET in names else {}
    for key, offset in light.items():
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


def delivered_delays(store: ReadOnlyStore) -> dict[int, int]:
    """Return the offset of each delay level, by the queueId of its queue."""
    return {found.queue_id: found.offset for found in delay_offsets(store)}


def _integers(offsets: object) -> Iterator[tuple[int, int]]:
    if not isinstance(offsets, dict):
        return
    for key, value in offsets.items():
        if isinstance(key, str) and key.isdecimal() and len(key) <= 10 and isinstance(value, int):
            yield int(key), value
