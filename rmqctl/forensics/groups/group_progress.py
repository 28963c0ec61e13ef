"""Topics, groups and delay levels of config/, with the progress of each group."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqctl.store.read.consumers.consumer_groups import GroupProgress
    from rmqctl.store.read.read_only_store import ReadOnlyStore

Row = dict[str, Any]


def configuration(store: ReadOnlyStore) -> tuple[Row, list[str], int]:
    """Return the content of config/, the problems of files, and EmptyQueues.unlisted.

    Raises OSError.
    """
    from rmqctl.forensics.audit.state_audit import config_files
    from rmqctl.store.config.config_file import table
    from rmqctl.store.config.topics import SCHEDULE_TOPIC

    known_progress, unlisted = _all_progress(store)

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
            for known in known_progress
        ],
        "delayOffsets": [
            {"level": queue_id + 1} | _progress(store, SCHEDULE_TOPIC, queue_id, offset)
            for queue_id, offset in _delays(store)
        ],
    }
    return document, problems, unlisted


def _delays(store: ReadOnlyStore) -> list[tuple[int, int | None]]:
    # the offset is None if a level has a queue but is not in delayOffset.json
    from rmqctl.store.config.topics import SCHEDULE_TOPIC
    from rmqctl.store.read.consumers.consumer_offsets import delivered_delays

    stored = delivered_delays(store)
    queues = {queue_id for topic, queue_id in store.queues if topic == SCHEDULE_TOPIC}
    return [(queue_id, stored.get(queue_id)) for queue_id in sorted(stored.keys() | queues)]


def _all_progress(store: ReadOnlyStore) -> tuple[list[GroupProgress], int]:
    """Return each group's progress in each queue, and EmptyQueues.unlisted.

    All queues of each group's topics are included; EmptyQueues limits those without files, except if they have a stored
    offset.
    """
    from rmqctl.forensics.groups.queue_ends import empty_queues
    from rmqctl.store.read.consumers.consumer_groups import ConsumerGroups, GroupProgress
    from rmqctl.store.read.consumers.consumer_offsets import consumer_offsets

    groups = ConsumerGroups(store)
    stored = [
        GroupProgress(known.owner, known.topic, known.queue_id, known.offset) for known in consumer_offsets(store)
    ]
    empty = empty_queues(store, groups, groups.topics)
    keys = {*store.queues, *empty.listed}
    without = [known for key in keys for known in groups.progress(key) if known.offset is None]
    return sorted([*stored, *without], key=lambda known: known[:3]), empty.unlisted


def _progress(store: ReadOnlyStore, topic: str, queue_id: int, offset: int | None) -> Row:
    from rmqctl.forensics.groups.queue_ends import QueueEnds, ends_of

    try:
        ends = ends_of(store, (topic, queue_id))
    except OSError:
        ends = QueueEnds(None, None)
    return {"offset": offset, "minOffset": ends.min_offset, "maxOffset": ends.max_offset, "behind": ends.behind(offset)}
