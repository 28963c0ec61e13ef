"""Topics that every broker has, whether topics.json lists them or not.

TopicValidator, up to 5.3.3; and topics of consumer groups (MixAll).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.format.properties import LMQ_PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection

QueueKey = tuple[str, int]  # topic, queueId

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
SYSTEM_TOPICS = frozenset({"TBW102", SCHEDULE_TOPIC, "BenchmarkTest", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC"})
SYSTEM_TOPICS |= {"OFFSET_MOVED_EVENT", "CHECKPOINT_TOPIC"}
SYSTEM_PREFIX = "rmq_sys_"
SYSTEM_PREFIXES = (SYSTEM_PREFIX, "RMQ_SYS_")
RETRY_PREFIX, DLQ_PREFIX = "%RETRY%", "%DLQ%"
GROUP_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)


def is_broker_topic(topic: str) -> bool:
    """Return whether a topic is one of a broker's own, or an LMQ topic.

    LMQ topics have groups of their own.
    """
    return topic in SYSTEM_TOPICS or topic.startswith((*SYSTEM_PREFIXES, LMQ_PREFIX))


def is_listed(topic: str, listed: Collection[str]) -> bool:
    """Return whether a topic is known: `listed` in topics.json, or a broker's own.

    Where topics.json lists nothing, no topic is known to be unknown.
    """
    return not listed or topic in listed or is_broker_topic(topic)
