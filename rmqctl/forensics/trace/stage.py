"""The stages of a message's life; each stage is a record with a kind.

The kind depends on the topic of the record, or on the transaction bits of its SYSFLAG:

    SCHEDULE_TOPIC_XXXX         delayed: it waits for a delay level to pass; a delayed retry, too
    rmq_sys_wheel_timer         timer: it waits for its time (5.x)
    RMQ_SYS_TRANS_HALF_TOPIC    half: a half message, or the copy that a check of the transaction made
    %RETRY%GROUP                retry: the group consumes it again
    %DLQ%GROUP                  dead-letter: the group failed too often
    SYSFLAG & 12 is 8           commit: the message of a committed transaction
    any other topic             delivered: from a delay or a timer before; resent: once more; otherwise stored

The following stages are found by links (`links.py`), and not by the UNIQ_KEY of the message:

    op, rollback                an op message names the half message; without a commit, this is a rollback
    pop-checkpoint, pop-ack     a group popped the message, or acknowledged it (5.x); timer: on the way there
    lmq                         a light queue leads to the record, too
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format.properties import REAL_TOPIC, UNIQ_KEY
from rmqctl.format.sys_flag import TransactionType, transaction_type
from rmqctl.store.config.topics import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rmqctl.format.body.pop_message import PopAck, PopCheckpoint
    from rmqctl.format.message import Message

STORED, RESENT, DELIVERED, COMMIT = "stored", "resent", "delivered", "commit"
DELAYED, TIMER, HALF, RETRY, DEAD_LETTER = "delayed", "timer", "half", "retry", "dead-letter"
OP, ROLLBACK, POP_CHECKPOINT, POP_ACK, LMQ = "op", "rollback", "pop-checkpoint", "pop-ack", "lmq"
WAITING_KINDS = frozenset({DELAYED, TIMER})
IN_ITS_TOPIC = frozenset({STORED, RESENT, DELIVERED, COMMIT})
_BY_TOPIC = {SCHEDULE_TOPIC: DELAYED, TIMER_TOPIC: TIMER, TRANS_HALF_TOPIC: HALF}
_BY_PREFIX = {RETRY_PREFIX: RETRY, DLQ_PREFIX: DEAD_LETTER}


@dataclass(frozen=True)
class Record:
    """A record of the log of one store, or of its compactionLog, whole or damaged."""

    store: int  # its number
    message: Message
    damage: str | None = None  # code of the damage; None: a whole record
    indexed: bool | None = None  # the index points to the record; None: it was not searched
    path: str = ""  # of a file of compactionLog; "": the record is in the log

    @cached_property
    def properties(self) -> dict[str, str]:
        """The properties of the message."""
        return self.message.properties

    @property
    def is_whole(self) -> bool:
        """Whether the record is neither damaged nor a placeholder."""
        return self.damage is None and self.message.placeholder is None

    @property
    def unique_key(self) -> str | None:
        """The UNIQ_KEY of the message, or None."""
        return self.properties.get(UNIQ_KEY)

    @property
    def place(self) -> tuple[int, int]:
        """The number of the store, and the physical offset."""
        return self.store, self.message.physical_offset


class Stage(NamedTuple):
    """A stage of a message's life: a record, or a record's place in a light queue."""

    kind: str
    record: Record
    topic: str
    queue_id: int
    queue_offset: int
    reachable: bool | None  # the unit at `queue_offset` points to the record; None: the queues cannot be read
    pop: PopCheckpoint | PopAck | None = None  # the body of a POP message
    due: int | None = None  # when a delayed, timer or popped message is to be delivered, ms since 1970; None if unknown
    why_not: str = ""  # why no consumer can read the queue; "" if consumers can

    @property
    def group(self) -> str | None:
        """The consumer group in a POP checkpoint or acknowledgement."""
        return None if self.pop is None else self.pop.c

    @property
    def stored_at(self) -> int:
        """When the record was stored, in ms since 1970."""
        return self.record.message.store_timestamp


def in_order(records: Iterable[Record]) -> list[Record]:
    """Return records of several stores in the order in which they were stored.

    Those of one store keep the order of the log, even if the clock of the broker was set back. Those of different
    stores are ordered by store time.
    """
    from heapq import merge

    of_stores: dict[int, list[Record]] = {}
    for record in records:
        of_stores.setdefault(record.store, []).append(record)
    logs = (sorted(log, key=lambda record: record.message.physical_offset) for log in of_stores.values())
    return list(merge(*logs, key=lambda record: record.message.store_timestamp))


def kinds_of(records: Sequence[Record]) -> list[str]:
    """Return the kind of each record of one message; `records` must be in order."""
    kinds: list[str] = []
    awaited: set[str] = set()  # topics to which an earlier delayed record goes
    seen: dict[str, Record] = {}  # the first record of each topic
    for record in records:
        topic = record.message.topic
        kind = _kind_by_topic(topic)
        if kind is None and transaction_type(record.message.sys_flag) is TransactionType.COMMIT:
            kind = COMMIT
        elif kind is None and topic in awaited:
            kind = DELIVERED
        elif kind is None:
            kind = RESENT if topic in seen and not _is_one_batch(seen[topic], record) else STORED
        if kind in WAITING_KINDS:
            awaited.add(record.properties.get(REAL_TOPIC, ""))
        seen.setdefault(topic, record)
        kinds.append(kind)
    return kinds


def _kind_by_topic(topic: str) -> str | None:
    known = _BY_TOPIC.get(topic)
    return known or next((kind for prefix, kind in _BY_PREFIX.items() if topic.startswith(prefix)), None)


def _is_one_batch(first: Record, other: Record) -> bool:
    # in 5.3.3, all messages of a batch have the same UNIQ_KEY; they are sent and stored at the same time in one queue
    one, two = first.message, other.message
    return (first.store, one.queue_id, one.born_timestamp, one.store_timestamp) == (
        other.store,
        two.queue_id,
        two.born_timestamp,
        two.store_timestamp,
    )
