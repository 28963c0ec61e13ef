"""Entries of topics.json and subscriptionGroup.json, rebuilt from the store.

They have a broker's default settings for a new topic or group. The operator's own are lost: permissions, order, the
attributes of 5.x, and the number of retries of a group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.store.config.topics import DLQ_PREFIX, READ_NUMS, RETRY_PREFIX, WRITE_NUMS
from rmqctl.store.read.consumers.consumer_groups import ConsumerGroups, is_broker_group
from rmqctl.store.write.topic_config import QUEUE_NUMS_MAX, new_topic, own_queue_nums

if TYPE_CHECKING:
    from rmqctl.format.profile import Profile
    from rmqctl.operations.configuration.names_in_store import NamesInStore
    from rmqctl.store.read.read_only_store import ReadOnlyStore

Entry = dict[str, Any]
ATTRIBUTES = "attributes"
QUEUE_TYPE, BATCH_QUEUE, SIMPLE_QUEUE = "queue.type", "BatchCQ", "SimpleCQ"
CLEANUP_POLICY, COMPACTION = "cleanup.policy", "COMPACTION"
RETRY_NUMS = "retryQueueNums"


def topic_entries(listed: Entry, names: NamesInStore, profile: Profile) -> dict[str, Entry]:
    """Return the missing and the corrected entries of topics.json.

    `listed` are the present ones. A new entry gets the number of queues that the topic has in the store. An entry with
    too few queues is corrected, because a broker only serves the queues below readQueueNums; so is one with the wrong
    type of queue, because 5.x would not load the topic.
    """
    nums: dict[str, int] = {}
    for topic, queue_id in names.queues:
        if queue_id < QUEUE_NUMS_MAX and not topic.startswith(LMQ_PREFIX):
            nums[topic] = max(nums.get(topic, own_queue_nums(topic) or 0), queue_id + 1)
    found = {}
    for topic, shown in sorted(nums.items()):
        before = listed.get(topic)
        if not isinstance(before, dict):
            found[topic] = _with_attributes(new_topic(topic, profile, shown), topic, names)
        else:
            raised = {name: max(shown, _number(before, name)) for name in (READ_NUMS, WRITE_NUMS)}
            after = _with_attributes(before | (raised if shown > _number(before, READ_NUMS) else {}), topic, names)
            if after != before:
                found[topic] = after
    return found


def _number(entry: Entry, name: str) -> int:
    return number if isinstance(number := entry.get(name), int) else 0


def _with_attributes(entry: Entry, topic: str, names: NamesInStore) -> Entry:
    said = entry.get(ATTRIBUTES)
    before = said if isinstance(said, dict) else {}
    after = dict(before)
    if topic in names.batch_topics:
        after[QUEUE_TYPE] = BATCH_QUEUE
    elif before.get(QUEUE_TYPE) == BATCH_QUEUE and any(topic == name for name, _ in names.folders):
        after[QUEUE_TYPE] = SIMPLE_QUEUE
    if topic in names.compaction_topics:
        after.setdefault(CLEANUP_POLICY, COMPACTION)
    return entry if after == before else {ATTRIBUTES: after} | entry | {ATTRIBUTES: after}


def group_entries(store: ReadOnlyStore, listed: Entry, names: NamesInStore, profile: Profile) -> dict[str, Entry]:
    """Return the entries that subscriptionGroup.json lacks.

    Groups are found in the files of config/, and in the names of %RETRY% and %DLQ% topics. LMQ groups and the broker's
    own groups are left out.
    """
    topics = {topic for topic, _ in names.queues} | set(store.listed_topics)
    groups = ConsumerGroups(store, topics)
    found = set(groups.known)
    for topic in topics:
        if topic.startswith(RETRY_PREFIX):
            found |= groups.groups_of(topic)
        elif topic.startswith(DLQ_PREFIX):
            found.add(topic.removeprefix(DLQ_PREFIX))
    retry_nums = _retry_nums(names)
    return {
        group: _new_group(group, profile, retry_nums.get(RETRY_PREFIX + group, 1))
        for group in sorted(found)
        if group and group not in listed and not is_broker_group(group) and not group.startswith(LMQ_PREFIX)
    }


def _retry_nums(names: NamesInStore) -> dict[str, int]:
    # a queueId that is too large for a broker does not count
    nums: dict[str, int] = {}
    for topic, queue_id in names.queues:
        if topic.startswith(RETRY_PREFIX) and queue_id < QUEUE_NUMS_MAX:
            nums[topic] = max(nums.get(topic, 1), queue_id + 1)
    return nums


def _new_group(group: str, profile: Profile, retry_nums: int) -> Entry:
    of_5 = {
        ATTRIBUTES: {}, "consumeMessageOrderly": False, "consumeTimeoutMinute": 15,
        "groupRetryPolicy": {"type": "CUSTOMIZED"}, "groupSysFlag": 0,
    }  # fmt: skip
    of_all = {
        "brokerId": 0, "consumeBroadcastEnable": True, "consumeEnable": True, "consumeFromMinEnable": True,
        "groupName": group, "notifyConsumerIdsChangedEnable": True, "retryMaxTimes": 16, RETRY_NUMS: retry_nums,
        "whichBrokerWhenConsumeSlowly": 1,
    }  # fmt: skip
    return dict(sorted((of_all | (of_5 if profile.knows_topic_attributes else {})).items()))
