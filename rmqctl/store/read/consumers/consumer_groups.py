"""The consumer groups of a store, with the queues and offsets that they read.

The broker's files in config/ and topic names show which topics a group reads:

    consumerOffset.json         an entry `topic@group` in offsetTable or pullOffsetTable, for any queue
                                groupTopicMap: a topic of the group (5.4 and later)
    lmqConsumerOffset.json      an entry `topic@group` in offsetTable or lmqOffsetTable
    consumerOrderInfo.json      an entry `topic@group` (5.x, ordered POP)
    subscriptionGroup.json      a topic in the group's subscriptionDataSet (5.x)
    consumerFilter.json         a filter of the group for the topic
    %RETRY%GROUP                the group reads the topic; also %RETRY%GROUP_TOPIC and %RETRY%GROUP+TOPIC (POP, 5.x)

A group may have no stored offset for a queue that it reads, and then may need every message of it: the group begins at
the first message if ConsumerManageProcessor returns 0, and where its client chooses if that returns no offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.errors import BadRequest
from rmqctl.store.config.config_file import GROUP_TABLE, GROUPS_CONFIG, table
from rmqctl.store.config.topics import RETRY_PREFIX
from rmqctl.store.read.consumers.consumer_offsets import (
    CONSUMER_OFFSET,
    LMQ_CONSUMER_OFFSET,
    OFFSET_FILES,
    consumer_offsets,
)
from rmqctl.store.read.topic_names import nearest_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from rmqctl.store.config.config_file import ConfigFile
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

CONSUMER_FILTER, CONSUMER_ORDER = "consumerFilter.json", "consumerOrderInfo.json"
GROUP_FILES = (*OFFSET_FILES, GROUPS_CONFIG, CONSUMER_FILTER, CONSUMER_ORDER)
# groups that every broker adds by itself (SubscriptionGroupManager.init)
BROKER_GROUPS = frozenset(
    {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
    }
) | {"CID_ONSAPI_OWNER", "CID_SYS_RMQ_TRANS", "CID_DefaultHeartBeatSyncerTopic"}
BROKER_GROUP_PREFIX = "CID_RMQ_SYS_"
POP_SEPARATORS = "_+"


class GroupProgress(NamedTuple):
    """The progress of one consumer group in one queue."""

    group: str
    topic: str
    queue_id: int
    offset: int | None  # consumed up to here, in units; None: the broker stores none


class ConsumerGroups:
    """The consumer groups that are named in the files of a store.

    `known` has the names of all groups. `without_topic` lists those of subscriptionGroup.json that read no topic or
    only %RETRY% topics, except the groups that every broker adds by itself. `topics` are the topics of the store, by
    default those of topics.json and those with a folder for queues.
    """

    def __init__(self, store: ReadOnlyStore, topics: Collection[str] | None = None) -> None:
        self._store = store
        self._topics = store.queue_topics | set(store.listed_topics) if topics is None else topics
        self._offsets: dict[QueueKey, dict[str, int]] = {}
        for stored in consumer_offsets(store):
            offsets = self._offsets.setdefault((stored.topic, stored.queue_id), {})
            offsets[stored.owner] = min(stored.offset, offsets.get(stored.owner, stored.offset))
        self._listed = table(store.config(GROUPS_CONFIG), GROUP_TABLE)
        self._groups: dict[str, set[str]] = {}
        for topic, group in self._said():
            self._groups.setdefault(topic, set()).add(group)
        self.known = set(self._listed).union(*self._groups.values())
        busy = {
            group for topic, groups in self._groups.items() if not topic.startswith(RETRY_PREFIX) for group in groups
        }
        self.without_topic = sorted(group for group in self._listed if group not in busy and not is_broker_group(group))

    def groups_of(self, topic: str) -> set[str]:
        """Return the consumer groups that read a topic.

        Those of a %RETRY% topic include its `retry_owner`.
        """
        groups = self._groups.get(topic, set())
        return (
            groups | {retry_owner(topic.removeprefix(RETRY_PREFIX), self.known, self._topics)}
            if topic.startswith(RETRY_PREFIX)
            else groups
        )

    @property
    def topics(self) -> set[str]:
        """Return the topics that groups read, according to the files in config/."""
        return set(self._groups)

    def queues_with_offset(self) -> Iterator[QueueKey]:
        """Yield each queue for which the broker stores an offset of a group.

        The queue itself may not exist.
        """
        yield from self._offsets

    @property
    def _known_or_retried(self) -> set[str]:
        retried = [topic for topic in self._store.queue_topics if topic.startswith(RETRY_PREFIX)]
        return self.known.union(*map(self.groups_of, retried))

    def is_known(self, group: str) -> bool:
        """Return whether a file in config/ or a %RETRY% topic names a group."""
        return group in self._known_or_retried

    def check_group(self, group: str) -> None:
        """Raise BadRequest if no file in config/ and no %RETRY% topic names a group.

        The error proposes the most similar group name.
        """
        if self.is_known(group):
            return
        near = nearest_name(group, sorted(self._known_or_retried))
        what = f"no file in config/ names the group {group!r}, and it has no {RETRY_PREFIX} topic"
        hint = f"the nearest name is {near!r}" if near else "`rmqctl lag STORE` lists the groups"
        raise BadRequest(what, path=str(self._store.path.root), hint=hint)

    def is_read(self, topic: str) -> bool:
        """Return whether a consumer group named in config/ reads a topic."""
        return not self.known.isdisjoint(self.groups_of(topic))

    def progress(self, key: QueueKey, others: Iterable[str] = ()) -> list[GroupProgress]:
        """Return the progress in a queue of each group that reads its topic.

        Those in `others` are added. The result is sorted by name.
        """
        offsets = self._offsets.get(key, {})
        groups = self.groups_of(key[0]).union(others)
        return [GroupProgress(group, *key, offsets.get(group)) for group in sorted(groups)]

    def _said(self) -> Iterator[tuple[str, str]]:
        config = self._store.config
        offsets = config(CONSUMER_OFFSET)
        for name in OFFSET_FILES:
            yield from _split(table(config(name), "offsetTable"))
        yield from _split(table(offsets, "pullOffsetTable"))
        yield from _split(table(config(LMQ_CONSUMER_OFFSET), "lmqOffsetTable"))
        yield from _split(table(config(CONSUMER_ORDER), "table"))
        for group, topics in table(offsets, "groupTopicMap").items():
            yield from ((topic, group) for topic in _strings(topics))
        for group, listed in self._listed.items():
            yield from ((topic, group) for topic in _subscribed(listed))
        for topic, filters in table(config(CONSUMER_FILTER), "filterDataByTopic").items():
            of_groups = filters.get("groupFilterData") if isinstance(filters, dict) else None
            yield from ((topic, group) for group in _strings(of_groups))


def unreadable_group_files(store: ReadOnlyStore) -> list[ConfigFile]:
    """Return the consumer group files in config/ that exist but cannot be loaded.

    `ConsumerGroups` lacks the groups that only these files name.
    """
    return [config for config in map(store.config, GROUP_FILES) if config.content is None]


def is_broker_group(group: str) -> bool:
    """Return whether `group` is a consumer group that every broker adds by itself."""
    return group in BROKER_GROUPS or group.startswith(BROKER_GROUP_PREFIX)


def retry_owner(rest: str, known: Collection[str], topics: Collection[str] = ()) -> str:
    """Return the consumer group to which the topic %RETRY%`rest` belongs.

    It is `rest` itself if that is one of the groups `known`. For POP, `rest` can be a group, a separator (`_` or `+`)
    and a topic: then it is the longest known group before a separator, or else the shortest group with one of `topics`
    after the separator. If neither exists, it is `rest`.
    """
    ends = [at for at in range(len(rest) - 1, 0, -1) if rest[at] in POP_SEPARATORS]
    found = next((rest[:end] for end in [len(rest), *ends] if rest[:end] in known), None)
    return found or next((rest[:end] for end in reversed(ends) if rest[end + 1 :] in topics), rest)


def _split(entries: Iterable[str]) -> Iterator[tuple[str, str]]:
    for entry in entries:
        topic, _, group = entry.partition("@")
        if topic and group:
            yield topic, group


def _strings(found: Any) -> list[str]:
    return [one for one in found if isinstance(one, str)] if isinstance(found, (list, dict)) else []


def _subscribed(listed: Any) -> list[str]:
    found = listed.get("subscriptionDataSet") if isinstance(listed, dict) else None
    topics = [one.get("topic") for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return _strings(topics)
