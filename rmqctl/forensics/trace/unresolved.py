"""Lists the messages that wait for something that should have happened.

They are half messages without commit or rollback, and delayed messages that are overdue, or that the offset of their
delay level has skipped. Ages are counted up to the last message of the log, not to the present: a copy of a store does
not grow older.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqctl.forensics.groups.delay_levels import due_ms, undelivered
from rmqctl.forensics.groups.waiting_audit import checked_halves, open_halves
from rmqctl.format import properties
from rmqctl.format.timestamp import rfc3339
from rmqctl.store.config.topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from rmqctl.store.read.consumers.consumer_offsets import delivered_delays
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.message import Message
    from rmqctl.store.read.read_only_store import ReadOnlyStore

Row = dict[str, Any]
HALF, DELAYED = "half", "delayed"


def unresolved(store: ReadOnlyStore, name: str) -> list[Row]:
    """Return a row for each waiting message of a store, the oldest wait first.

    `name` is the store as shown to the user. `ageMs` is the time since a half message was stored, or since a delayed
    message was due. `skipped` says that the offset of the delay level is past the message: no broker delivers it. Timer
    messages of 5.x are not listed. Raises OSError.
    """
    _, last = store.commit_log.end()
    if last is None:
        return []
    now = last.store_timestamp
    rows = [_row(name, HALF, half, None, now, skipped=False) for half in _halves(store)]
    rows += [
        _row(name, DELAYED, message, due, now, skipped=skipped)
        for message, due, skipped in _delayed(store)
        if due < now or skipped
    ]
    return sorted(rows, key=lambda row: row["ageMs"], reverse=True)


def verdict(rows: list[Row]) -> str:
    """Say in one line how many messages wait, and for what."""
    halves, delayed = (sum(row["kind"] == kind for row in rows) for kind in (HALF, DELAYED))
    if not rows:
        return "no half message waits for its end, and no delayed message is overdue"
    late = f"{counted(delayed, 'delayed message')} overdue or skipped"
    return f"{counted(halves, 'half message')} without commit or rollback, {late}"


def _halves(store: ReadOnlyStore) -> Iterator[Message]:
    checked = checked_halves(store)
    for key in sorted(store.queues):
        if key[0] == TRANS_HALF_TOPIC:
            yield from open_halves(store, key, checked)


def _delayed(store: ReadOnlyStore) -> Iterator[tuple[Message, int, bool]]:
    # message, when it is due in ms, whether it is skipped
    delivered = delivered_delays(store)
    for topic, queue_id in sorted(store.queues):
        if topic != SCHEDULE_TOPIC:
            continue
        for offset in undelivered(store, queue_id).waiting:
            unit = store.queues[topic, queue_id].find(offset)
            message = None if unit is None else store.commit_log.message_at(unit.physical_offset)
            if unit is not None and message is not None:
                yield message, due_ms(store, queue_id, unit, message), offset < delivered.get(queue_id, 0)


def _row(name: str, kind: str, message: Message, due: int | None, now: int, *, skipped: bool) -> Row:
    found = message.properties
    return {
        "kind": kind,
        "store": name,
        "realTopic": found.get(properties.REAL_TOPIC),
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "uniqueKey": found.get(properties.UNIQ_KEY),
        "keys": found.get(properties.KEYS),
        "storeTimestamp": message.store_timestamp,
        "storeTime": rfc3339(message.store_timestamp),
        "dueTimestamp": due,
        "dueTime": None if due is None else rfc3339(due),
        "ageMs": max(now - (message.store_timestamp if due is None else due), 0),
        "skipped": skipped,
    }
