"""Two messages of one queue that have the same queue offset.

Brokers gave one number twice under concurrency (RocketMQ's issues 2865 for batches, 7511 for LMQ). Dispatch writes the
unit of the first message; the second finds its place taken and gets none. A copy that a broker makes of a message, such
as a retry, keeps the light queue offsets of the original, and is no twin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.forensics.finding import Finding
from rmqctl.format.properties import UNIQ_KEY
from rmqctl.store.config.store_path import CONSUMEQUEUE
from rmqctl.store.config.topics import is_copy_topic
from rmqctl.store.dispatch.dispatch_rules import queue_destinations

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from rmqctl.format.message import Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

PLACES_MAX = 1000  # of one finding


def is_twin(store: ReadOnlyStore, finding: Finding) -> bool:
    """Return whether the units of a finding lead to messages with their numbers.

    The finding's message then has the number of another one. Raises OSError.
    """
    if finding.code != "unit-mismatch" or finding.topic is None or finding.queue_offset is None:
        return False
    key, begin = (finding.topic, finding.queue_id or 0), finding.queue_offset
    second = store.commit_log.message_at(finding.physical_offset or 0)
    if second is None or not _has_number(second, key, begin):
        return False
    return all(
        _first(store, key, number) is not None for number in range(begin, begin + min(finding.count, PLACES_MAX))
    )


def audit_light_twins(store: ReadOnlyStore, places: Iterable[tuple[QueueKey, int, int]]) -> Iterator[Finding]:
    """Yield a finding for each message whose light queue has another in its place.

    Each place is a queue, the number that the message has there, and its physical offset. Raises OSError.
    """
    for key, number, at in places:
        second, first = store.commit_log.message_at(at), _first(store, key, number)
        if second is None or first is None or is_copy_topic(second.topic) or _identity(first) == _identity(second):
            continue
        slot = _slot(store, key, at)
        if slot is not None and _first(store, key, slot + 1) is None:
            continue  # 4.9.3 and 4.9.4 count from 0 again after a start: all later messages are beside their numbers
        served = "it has no unit" if slot is None else f"its unit is at {slot}, and no rebuild gives it one"
        detail = f"it has number {number}, as the message at {first.physical_offset}; {served}"
        yield Finding(
            "twin-queue-offset", f"{CONSUMEQUEUE}/{key[0]}/{key[1]}", at, detail,
            topic=key[0], queue_id=key[1], queue_offset=number,
        )  # fmt: skip


def _first(store: ReadOnlyStore, key: QueueKey, number: int) -> Message | None:
    """Return the message that the unit at `number` leads to, if it has this number."""
    unit = store.unit(*key, number)
    message = None if unit is None else store.commit_log.message_at(unit.physical_offset)
    return message if message is not None and _has_number(message, key, number) else None


def _slot(store: ReadOnlyStore, key: QueueKey, at: int) -> int | None:
    unit = store.queues[key].first_where(lambda unit: unit.physical_offset >= at)
    return unit.queue_offset if unit is not None and unit.physical_offset == at else None


def _has_number(message: Message, key: QueueKey, number: int) -> bool:
    places = ((target.topic, target.queue_id, target.queue_offset) for target in queue_destinations(message))
    return (*key, number) in places


def _identity(message: Message) -> Hashable:
    """Return what a message and the copies that a broker makes of it have in common."""
    return message.properties.get(UNIQ_KEY), message.born_timestamp, message.body_crc
