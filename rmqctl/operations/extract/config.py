"""The configuration of an extract: what its queues need of the source's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqctl.format.profile import PROFILE_4_7
from rmqctl.store.config.broker_conf import DELAYS_MS, SIZE_KEYS
from rmqctl.store.config.config_file import (
    DATA_VERSION,
    DELAY_OFFSETS_CONFIG,
    GROUP_TABLE,
    GROUPS_CONFIG,
    OFFSET_TABLE,
    TOPIC_TABLE,
    TOPICS_CONFIG,
    compaction_topics,
    table,
)
from rmqctl.store.config.topics import GROUP_PREFIXES
from rmqctl.store.read.consumers.consumer_offsets import (
    LMQ_CONSUMER_OFFSET,
    OFFSET_FILES,
    consumer_offsets,
    delay_offsets,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rmqctl.format.profile import Profile
    from rmqctl.operations.extract.places import QueuePlaces
    from rmqctl.store.config.broker_conf import BrokerConf
    from rmqctl.store.config.file_sizes import Geometry
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

CLEANUP_POLICY = "cleanup.policy"
KEEP_HOURS = 87_600  # ten years: a broker would delete the extract after three days


def trimmed_topics(source: ReadOnlyStore, topics: Collection[str]) -> dict[str, Any] | None:
    """Return topics.json with `topics` alone; None if the source has no such file.

    Without cleanup.policy=COMPACTION: a broker would serve such a topic from compaction/, and not from its queues.
    """
    config = source.config(TOPICS_CONFIG)
    if not config.content:
        return None
    entries = dict(table(config, TOPIC_TABLE))
    for topic in compaction_topics(config).intersection(topics):
        attributes = entries[topic]["attributes"]
        left = {name: value for name, value in attributes.items() if name != CLEANUP_POLICY}
        entries[topic] = entries[topic] | {"attributes": left}
    return _trimmed(config.content, TOPIC_TABLE, entries, topics)


def trimmed_configs(source: ReadOnlyStore, queues: Mapping[QueueKey, QueuePlaces]) -> dict[str, dict[str, Any]]:
    """Return the other files of config/, by name.

    They have the offsets in `queues`, translated to the new ones, and the groups of these.
    """
    made: dict[str, dict[str, Any]] = {}
    groups = {
        topic.removeprefix(prefix) for topic, _ in queues for prefix in GROUP_PREFIXES if topic.startswith(prefix)
    }
    for stored in (*consumer_offsets(source, OFFSET_FILES), *delay_offsets(source)):
        places = queues.get((stored.topic, stored.queue_id))
        if places is None:
            continue
        tables = made.setdefault(stored.source, {OFFSET_TABLE: {}})
        offset = places.translated(stored.offset)
        if stored.source == DELAY_OFFSETS_CONFIG:
            tables[OFFSET_TABLE][stored.queue_id + 1] = offset
            continue
        groups.add(stored.owner)
        key = f"{stored.topic}@{stored.owner}"
        if stored.source == LMQ_CONSUMER_OFFSET and key in table(source.config(LMQ_CONSUMER_OFFSET), "lmqOffsetTable"):
            tables.setdefault("lmqOffsetTable", {})[key] = offset
        else:
            tables[OFFSET_TABLE].setdefault(key, {})[stored.queue_id] = offset
    config = source.config(GROUPS_CONFIG)
    known = table(config, GROUP_TABLE)
    if groups & known.keys():
        made[GROUPS_CONFIG] = _trimmed(config.content or {}, GROUP_TABLE, known, groups)
    return made


def _trimmed(content: dict[str, Any], name: str, entries: dict[str, Any], kept: Collection[str]) -> dict[str, Any]:
    version = {DATA_VERSION: content[DATA_VERSION]} if DATA_VERSION in content else {}
    return version | {name: {key: entry for key, entry in entries.items() if key in kept}}


def broker_conf_text(geometry: Geometry, profile: Profile, conf: BrokerConf, *, has_light_queues: bool) -> str:
    """Return the settings without which a broker does not load or keep the extract."""
    settings: dict[str, object] = {}
    for key in SIZE_KEYS:
        if key.field == "consumequeue_ext_file_size":
            continue
        for name in {key.new, key.old} if profile == PROFILE_4_7 else {key.new}:
            settings[name] = getattr(geometry, key.field)
    settings |= {"maxIndexNum": geometry.index_entries, "fileReservedTime": KEEP_HOURS}
    if conf.delays_ms != DELAYS_MS:
        settings["messageDelayLevel"] = " ".join(f"{delay // 1000}s" for delay in conf.delays_ms)
    if has_light_queues:
        settings |= {"enableLmq": "true", "enableMultiDispatch": "true"}
    lines = [f"{name}={value}" for name, value in sorted(settings.items())]
    return "\n".join(["# add these to the broker.conf of a broker that serves this store", *lines, ""])
