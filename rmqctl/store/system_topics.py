"""Topics that brokers have whether topics.json lists them or not (TopicValidator, up to 5.3.3); and those of consumer groups (MixAll)."""

from __future__ import annotations

from rmqctl.store.read_only_store import SCHEDULE_TOPIC

SYSTEM_TOPICS = frozenset({"TBW102", SCHEDULE_TOPIC, "BenchmarkTest", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC"})
SYSTEM_TOPICS |= {"OFFSET_MOVED_EVENT", "CHECKPOINT_TOPIC"}
SYSTEM_PREFIX = "rmq_sys_"
SYSTEM_PREFIXES = (SYSTEM_PREFIX, "RMQ_SYS_")
RETRY_PREFIX = "%RETRY%"
GROUP_PREFIXES = (RETRY_PREFIX, "%DLQ%")
