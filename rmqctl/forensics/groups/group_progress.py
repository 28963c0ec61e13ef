"""Topics, groups and delay levels of config/, with the progress of each group."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqctl.store.read.consumers.consumer_groups import GroupProgress
    from rmqctl.store.read.read_only_store import ReadOnlyStore

Row = dict[str, Any]


def configuration(store: ReadOnlyStore) -> tuple[Row, list[str]]:
    """Return topics, groups, offsets, ends of queues, and the files' problems.

    Raises OSError.
    """
    from rmqctl.forensics.audit.state_audit import config_files
    from rmqctl.store.config.config_file import table
    from rmqctl.store.config.topics import SCHEDULE_TOPIC

    configs = {config.name: config for config in config_files(store)}
    problems = [f"config/{config.name}: {config.problem}" for config in configs.values() if config.problem]

    def part(name: str, key: str, row: Callable[[str, Row], Row]) -> list[Row]:
        found = table(configs[name], key) if name in configs else {}
        return [row(item, value) for item, value in sorted(found.items()) if isinstance(value, dict)]

    document = {
        "topics": part("topics.json", "topicConfigTable", lambda name, value: {"topic": name} | value),
        "groups": part("subscriptionGroup.json", "subscriptionGroupTable", lambda name, value: {"group": name} | value),
        "offsets": [
            {"group": known.group, "topic": known.topic, "queueId": known.queue_id}
            | _progress(store, known.topic, known.queue_id, known.offset)
            for known in _all_progress(store)
        ],
        "delayOffsets": [
            {"level": queue_id + 1} | _progress(store, SCHEDULE_TOPIC, queue_id, offset)
            for queue_id, offset in _delays(store)
        ],
    }
    return document, problems


def _delays(store: ReadOnlyStore) -> list[tuple[int, int | None]]:
    """Return the delivery progress of each delay level, by its queue.

    The progress is None if a level has a queue but is not in delayOffset.json.
    """
    from rmqctl.store.config.topics import SCHEDULE_TOPIC
    from rmqctl.store.read.consumers.consumer_offsets import delay_offsets

    stored = {found.queue_id: found.offset for found in delay_offsets(store)}
    queues = {queue_id for topic, queue_id in store.queues if topic == SCHEDULE_TOPIC}
    return [(queue_id, stored.get(queue_id)) for queue_id in sorted(stored.keys() | queues)]


def _all_progress(store: ReadOnlyStore) -> list[GroupProgress]:
    """Return the progress of each group in each queue.

    The result has every queue of the group's topics, even a queue that has no files yet. The result also has each queue
    for which the group has an offset, even if the queue does not exist.
    """
    from rmqctl.store.read.consumers.consumer_groups import ConsumerGroups, GroupProgress
    from rmqctl.store.read.consumers.consumer_offsets import consumer_offsets
    from rmqctl.store.read.known_topics import read_queue_ids

    groups = ConsumerGroups(store)
    stored = [
        GroupProgress(known.owner, known.topic, known.queue_id, known.offset) for known in consumer_offsets(store)
    ]
    read = ((topic, queue_id) for topic in groups.topics for queue_id in read_queue_ids(store, topic))
    without = [known for key in {*store.queues, *read} for known in groups.progress(key) if known.offset is None]
    return sorted([*stored, *without], key=lambda known: known[:3])


def _progress(store: ReadOnlyStore, topic: str, queue_id: int, offset: int | None) -> Row:
    from rmqctl.forensics.audit.state_audit import queue_end

    queue = store.queues.get((topic, queue_id))
    end = queue_end(store, topic, queue_id) if queue is not None else None
    if queue is None or end is None:
        return {"offset": offset, "minOffset": None, "maxOffset": end, "behind": None}
    begin = queue.min_offset(store.commit_log.min_offset)
    return {"offset": offset, "minOffset": begin, "maxOffset": end, "behind": end - max(offset or 0, begin)}
