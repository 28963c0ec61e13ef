"""Finds queues with messages that no consumer can read, by topics.json."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.forensics.finding import Finding
from rmqctl.forensics.groups.queue_ends import ends_of
from rmqctl.store.config.config_file import TOPICS_CONFIG
from rmqctl.store.config.store_path import CONFIG
from rmqctl.store.config.topics import DLQ_PREFIX
from rmqctl.store.read.consumers.consumer_groups import ConsumerGroups
from rmqctl.store.read.known_topics import why_unreadable
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.store.read.read_only_store import ReadOnlyStore

GROUPS_NAMED = 3


def audit_unreadable(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield a finding for each queue with messages that no consumer can read.

    Topics that are not listed are another finding. Older brokers create dead-letter topics without the permission to
    read: an operator reads them when asked to. Raises OSError.
    """
    groups = None
    for (topic, queue_id), queue in sorted(store.queues.items()):
        why = why_unreadable(store, topic, queue_id) if topic in store.listed_topics else ""
        if not why or topic.startswith(DLQ_PREFIX):
            continue
        ends = ends_of(store, (topic, queue_id))
        queue.queue.close()
        messages = ends.behind(None)
        if not messages:
            continue
        groups = groups or ConsumerGroups(store)
        behind = {known.group: ends.behind(known.offset) or 0 for known in groups.progress((topic, queue_id))}
        waiting = [f"{count} not consumed by {group}" for group, count in behind.items() if count > 0]
        shown = ", ".join(waiting[:GROUPS_NAMED]) or ("consumed by its groups" if behind else "no group has an offset")
        what = f"{why}; queue {queue_id} has {counted(messages, 'message')}: {shown}"
        yield Finding(
            "queue-unreadable", f"{CONFIG}/{TOPICS_CONFIG}", None, what,
            topic=topic, queue_id=queue_id, queue_offset=ends.max_offset, count=messages,
        )  # fmt: skip
