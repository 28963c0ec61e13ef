"""Finds delayed messages and half messages that wait too long.

Messages are late compared with the last message of the log, not with the present time: a copy of a store, or a store
whose broker was stopped, never becomes unhealthy by waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.forensics.finding import Finding
from rmqctl.forensics.groups.delay_levels import due_ms
from rmqctl.format.body import op_message
from rmqctl.format.properties import UNIQ_KEY
from rmqctl.format.timestamp import duration, rfc3339
from rmqctl.store.config.store_path import CONFIG, CONSUMEQUEUE
from rmqctl.store.config.topics import (
    SCHEDULE_TOPIC,
    TRANS_GROUP,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from rmqctl.store.read.consumers.consumer_offsets import DELAY_OFFSET, consumer_offsets, delivered_delays
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.message import Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

OVERDUE_MS = 3_600_000  # a broker that starts delivers within seconds what became due meanwhile
HALF_MS = 86_400_000  # a broker checks a half message each minute, and gives up after 15 checks (transactionCheckMax)


def audit_waiting(store: ReadOnlyStore, last_ms: int) -> Iterator[Finding]:
    """Yield a finding for each delay level and each half queue that stands still.

    `last_ms` is the store time of the log's last message (ms since 1970). Raises OSError.
    """
    delivered = delivered_delays(store)
    checked = checked_halves(store)
    for key in sorted(store.queues):
        if key[0] == SCHEDULE_TOPIC:
            yield from _delay_level(store, key, delivered.get(key[1], 0), last_ms)
        elif key[0] == TRANS_HALF_TOPIC:
            yield from _halves(store, key, checked, last_ms)


def checked_halves(store: ReadOnlyStore) -> dict[QueueKey, int]:
    """Return the queue offset up to which each half queue was checked.

    Raises OSError.
    """
    return {
        (found.topic, found.queue_id): found.offset for found in consumer_offsets(store) if found.owner == TRANS_GROUP
    }


def _delay_level(store: ReadOnlyStore, key: QueueKey, delivered: int, last_ms: int) -> Iterator[Finding]:
    begin, end = store.queues[key].min_and_max(store.commit_log.min_offset)
    at = max(begin, delivered)
    unit = store.queues[key].find(at) if at < end else None
    message = None if unit is None else store.commit_log.message_at(unit.physical_offset)
    if unit is None or message is None or last_ms - (due := due_ms(store, key[1], unit, message)) <= OVERDUE_MS:
        return
    detail = (
        f"delay level {key[1] + 1} is at {delivered}, its queue ends at {end}; the message at {at} was due at "
        f"{rfc3339(due)}, {duration(last_ms - due)} before the last message of the log was stored"
    )
    yield Finding(
        "delay-overdue", f"{CONFIG}/{DELAY_OFFSET}", message.physical_offset, detail,
        topic=key[0], queue_id=key[1], queue_offset=at, count=end - at,
    )  # fmt: skip


def _halves(store: ReadOnlyStore, key: QueueKey, checked: dict[QueueKey, int], last_ms: int) -> Iterator[Finding]:
    # more than a day is too long
    queue, log = store.queues[key], store.commit_log
    at = max(queue.min_offset(log.min_offset), checked.get(key, 0))
    unit = queue.find(at)
    first = log.message_at(unit.physical_offset) if unit is not None else None
    if first is not None and last_ms - first.store_timestamp <= HALF_MS:
        return  # so are all that follow
    late = [half for half in open_halves(store, key, checked) if last_ms - half.store_timestamp > HALF_MS]
    if late:
        detail = (
            f"{counted(len(late), 'half message')} without commit or rollback; the first was stored at "
            f"{rfc3339(late[0].store_timestamp)}, {duration(last_ms - late[0].store_timestamp)} before the last message"
        )
        yield Finding(
            "half-overdue", f"{CONSUMEQUEUE}/{key[0]}/{key[1]}", late[0].physical_offset, detail,
            topic=key[0], queue_id=key[1], queue_offset=late[0].queue_offset, count=len(late),
        )  # fmt: skip


def open_halves(store: ReadOnlyStore, key: QueueKey, checked: dict[QueueKey, int]) -> list[Message]:
    """Return the half messages of a queue without commit or rollback.

    `checked` has the offsets of the broker's own group, which checks them. A check stores the half message again: only
    the last one with a UNIQ_KEY waits. Without the queue of op messages nothing shows what ended, and none is returned.
    Raises OSError.
    """
    op_key = (TRANS_OP_HALF_TOPIC, key[1])
    queue, ops, log = store.queues[key], store.queues.get(op_key), store.commit_log
    begin, end = queue.min_and_max(log.min_offset)
    at = max(begin, checked.get(key, 0))
    if ops is None:
        return []
    ended: set[int] = set()
    for unit in ops.units(max(ops.min_offset(log.min_offset), checked.get(op_key, 0)), ops.max_offset):
        if (op := log.message_at(unit.physical_offset)) is not None:
            ended.update(op_message.decode(bytes(op.body)).half_offsets)
    waiting = {}
    for unit in queue.units(at, end):
        half = log.message_at(unit.physical_offset)
        if half is not None:
            waiting[half.properties.get(UNIQ_KEY, half.msg_id)] = half
    return [half for half in waiting.values() if half.queue_offset not in ended]
