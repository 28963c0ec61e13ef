"""Messages that wait for a delayed retry.

If a group could not consume a message, the broker first stores the message in SCHEDULE_TOPIC_XXXX. After a delay, the
broker copies the message to the %RETRY% topic of the group. The property REAL_TOPIC of the message names the %RETRY%
topic.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rmqctl.format.properties import REAL_TOPIC
from rmqctl.store.config.topics import RETRY_PREFIX, SCHEDULE_TOPIC
from rmqctl.store.read.consumers.consumer_offsets import delivered_delays

if TYPE_CHECKING:
    from rmqctl.store.read.read_only_store import ReadOnlyStore


def delayed_retries(store: ReadOnlyStore, problems: list[str]) -> Counter[str]:
    """Return, for each %RETRY% topic, how many messages wait for their retry.

    For each delay level, delayOffset.json has the queue offset of the first message that waits. For each queue that
    cannot be read, an error text is appended to `problems`.
    """
    delivered = delivered_delays(store)
    found: Counter[str] = Counter()
    for (topic, queue_id), queue in store.queues.items():
        if topic != SCHEDULE_TOPIC:
            continue
        try:
            low, high = queue.min_and_max(store.commit_log.min_offset)
            for unit in queue.units(max(low, delivered.get(queue_id, 0)), high):
                message = store.commit_log.message_at(unit.physical_offset)
                real = "" if message is None else message.properties.get(REAL_TOPIC, "")
                found[real] += real.startswith(RETRY_PREFIX)
        except OSError as error:
            problems.append(f"queue {topic} {queue_id}: {error.strerror}")
    return +found
