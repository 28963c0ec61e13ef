"""The writer of config/topics.json, which lists the topics of a broker.

It has the number of queues of each topic (TopicConfigManager). A broker serves neither a topic without an entry, nor a
queue whose queueId is readQueueNums or more (PullMessageProcessor). Brokers and rmqctl add a topic at its first
message.

In existing entries, only readQueueNums and writeQueueNums change: rmqctl increases readQueueNums if a message's queueId
is not below it, and writeQueueNums if it is less than the new readQueueNums. The topics.json of 4.x has no `attributes`
and no `stateVersion`; all other fields are the same in 4.x and 5.x.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from rmqctl.format import properties
from rmqctl.store.config.config_file import DATA_VERSION, TOPIC_TABLE, TOPICS_CONFIG, load_config, table
from rmqctl.store.config.data_version import next_version
from rmqctl.store.config.topics import (
    GROUP_PREFIXES,
    READ_NUMS,
    REVIVE_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_PREFIXES,
    WRITE_NUMS,
)
from rmqctl.store.write.config_writer import write_config

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from rmqctl.format.profile import Profile
    from rmqctl.logfile.system.writable_storage import WritableStorage
    from rmqctl.store.config.topics import QueueKey

PERM_READ_WRITE = 6
# clients make an object for each queue of a topic; therefore a larger queueId never increases the queue numbers
QUEUE_NUMS_MAX = 65536
# the number of queues that brokers give to these topics; a broker's other own topics have one queue; a producer's topic
# has the number of queues that the producer requests, or 4
QUEUE_NUMS = {SCHEDULE_TOPIC: 18, "BenchmarkTest": 1024}
ONE_QUEUE_PREFIXES = (*GROUP_PREFIXES, *SYSTEM_PREFIXES)
ONE_QUEUE_TOPICS = ("TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT")
REVIVE_QUEUE_NUMS = 8
USUAL_QUEUE_NUMS = 4


class TopicConfigs:
    """The file topics.json in the `config` folder of a store.

    `now` returns the time in ms since 1970. Any thread may call `note`.

    If the store has no topics.json, the new file gets the topics of `queues`, the existing queues of the store. A topic
    missing in an existing topics.json counts as deleted. If that file cannot be loaded, it is not changed, and
    `problem` is the reason. Raises OSError.
    """

    def __init__(
        self,
        storage: WritableStorage,
        folder: Path,
        profile: Profile,
        now: Callable[[], int],
        queues: Collection[QueueKey] = (),
    ) -> None:
        config = load_config(storage, folder, TOPICS_CONFIG)
        self.problem = config.problem if config.content is None else ""
        self._storage = storage
        self._folder = folder
        self._profile = profile
        self._now = now
        self._content: dict[str, Any] = config.content or {}
        self._topics = table(config, TOPIC_TABLE)
        self._known = {topic: _read_queue_nums(entry) for topic, entry in self._topics.items()}
        self._unlisted = queues if config.source is None else ()
        self._lock = threading.Lock()
        self._news: dict[str, int] = {}

    def note(self, queues: Iterable[QueueKey]) -> None:
        """Record queues that need an entry in topics.json."""
        for topic, queue_id in sorted(queues):
            self._note(topic, queue_id)

    def _note(self, topic: str, queue_id: int) -> None:
        if (
            queue_id < self._known.get(topic, 0)
            or queue_id >= QUEUE_NUMS_MAX
            or topic.startswith(properties.LMQ_PREFIX)
        ):
            return
        with self._lock:
            nums = queue_id + 1 if topic in self._topics else max(queue_id + 1, usual_queue_nums(topic))
            self._known[topic] = self._news[topic] = max(nums, self._known.get(topic, 0))

    def persist(self) -> None:
        """Write topics.json if the existing file lacks a recorded topic or queue.

        The previous topics.json is kept as .bak. Raises OSError.
        """
        if not self._news or self.problem:
            return
        unlisted, self._unlisted = self._unlisted, ()
        for topic, queue_id in unlisted:
            self._note(topic, queue_id)
        with self._lock:
            news, self._news = self._news, {}
        for topic, nums in news.items():
            entry = self._topics.get(topic) or new_topic(topic, self._profile, 0)
            self._topics[topic] = entry | {READ_NUMS: nums, WRITE_NUMS: max(nums, entry[WRITE_NUMS])}
        self._content = {
            **self._content,
            DATA_VERSION: next_version(self._content.get(DATA_VERSION), self._profile, self._now()),
            TOPIC_TABLE: self._topics,
        }
        write_config(self._storage, self._folder, TOPICS_CONFIG, self._content)


def new_topic(topic: str, profile: Profile, queue_nums: int) -> dict[str, Any]:
    """Return a new entry for topics.json, with the usual settings of a broker."""
    entry = {
        "order": False, "perm": PERM_READ_WRITE, READ_NUMS: queue_nums, "topicFilterType": "SINGLE_TAG",
        "topicName": topic, "topicSysFlag": 0, WRITE_NUMS: queue_nums,
    }  # fmt: skip
    return {"attributes": {}} | entry if profile.knows_topic_attributes else entry


def usual_queue_nums(topic: str) -> int:
    """Return how many queues a topic gets if a broker creates it.

    That is the broker's default number for a producer's topic.
    """
    return own_queue_nums(topic) or USUAL_QUEUE_NUMS


def own_queue_nums(topic: str) -> int | None:
    """Return how many queues a broker gives to its own topic, or None to another's.

    Topics of groups (%RETRY%, %DLQ%) are its own; those of producers are not.
    """
    if topic.startswith(REVIVE_PREFIX):
        return REVIVE_QUEUE_NUMS
    if topic.startswith(ONE_QUEUE_PREFIXES) or topic in ONE_QUEUE_TOPICS:
        return 1
    return QUEUE_NUMS.get(topic)


def _read_queue_nums(entry: Any) -> int:
    """Return QUEUE_NUMS_MAX if the entry is not valid: `note` then never changes it."""
    if not isinstance(entry, dict) or not all(isinstance(entry.get(nums), int) for nums in (READ_NUMS, WRITE_NUMS)):
        return QUEUE_NUMS_MAX
    return int(entry[READ_NUMS])
