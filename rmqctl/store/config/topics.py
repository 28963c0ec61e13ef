"""The names that a topic may have, and the brokers' own topics.

Every broker has its own topics, even if topics.json does not list them. Their names come from RocketMQ's class
TopicValidator, up to 5.3.3, the prefixes %RETRY% and %DLQ% from MixAll.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from rmqctl.format.properties import LMQ_PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection

TOPIC_LENGTH_MAX = 255  # no folder can have a longer name
TOPICS_KNOWN = 65536
QueueKey = tuple[str, int]  # topic, queueId
READ_NUMS, WRITE_NUMS = "readQueueNums", "writeQueueNums"  # of an entry of topics.json
PERM_READ = 4  # a bit of `perm` of an entry of topics.json (PermName)

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_GROUP = "CID_RMQ_SYS_TRANS"  # the broker's own group, which reads both
TIMER_TOPIC = "rmq_sys_wheel_timer"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
# messages in these topics are later delivered to the topic and queue in their properties
DEFERRED_TOPICS = frozenset({SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TIMER_TOPIC})
DELIVERY_TOPICS = DEFERRED_TOPICS | {TRANS_OP_HALF_TOPIC}
SYSTEM_TOPICS = frozenset({"TBW102", SCHEDULE_TOPIC, "BenchmarkTest", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC"})
SYSTEM_TOPICS |= {"OFFSET_MOVED_EVENT", "CHECKPOINT_TOPIC"}
SYSTEM_PREFIX = "rmq_sys_"
SYSTEM_PREFIXES = (SYSTEM_PREFIX, "RMQ_SYS_")
RETRY_PREFIX, DLQ_PREFIX = "%RETRY%", "%DLQ%"
GROUP_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)


@lru_cache(maxsize=TOPICS_KNOWN)
def is_topic(name: str) -> bool:
    """Return whether a name is a valid topic name.

    The rules are those of TopicValidator and, in 5.x, of HookUtils.checkBeforePutMessage, or, with +, of a topic for
    POP's retries (enableRetryTopicV2). Such a name can be that of a folder.
    """
    signs = "%|-_+" if name.startswith(RETRY_PREFIX) else "%|-_"
    return (
        0 < len(name) <= TOPIC_LENGTH_MAX
        and name.isascii()
        and all(character.isalnum() or character in signs for character in name)
    )


def is_copy_topic(topic: str) -> bool:
    """Return whether the messages of a topic are copies of other messages.

    These are half messages, delayed messages, retries and dead letters.
    """
    return topic in DEFERRED_TOPICS or topic.startswith(GROUP_PREFIXES)


def is_delivery_topic(topic: str) -> bool:
    """Return whether a broker delivers messages because of a topic.

    Such topics have delayed messages, half messages and their ends, timers, and POP's checkpoints and acknowledgements.
    From RocketMQ's ScheduleMessageService, TransactionalMessageServiceImpl, TimerMessageStore and PopReviveService.
    """
    return topic in DELIVERY_TOPICS or topic.startswith(REVIVE_PREFIX)


def is_broker_topic(topic: str) -> bool:
    """Return whether a topic is a system topic of brokers, or an LMQ topic.

    LMQ topics have their own consumer groups.
    """
    return topic in SYSTEM_TOPICS or topic.startswith((*SYSTEM_PREFIXES, LMQ_PREFIX))


def is_listed(topic: str, listed: Collection[str]) -> bool:
    """Return whether a topic exists; `listed` are the topics of topics.json.

    System topics and LMQ topics always exist. If `listed` is empty, every topic does: topics.json may be missing.
    """
    return not listed or topic in listed or is_broker_topic(topic)
