"""Links from a message's records to other records, and to light queues.

Op messages and POP messages do not have the UNIQ_KEY of the message, and the index may lack a record of it.

    op message      names the queue offsets of half messages (format/body/op_message.py)
    POP             a checkpoint or acknowledgement names topic, queue and queue offset (`trace.py`)
    commit          PREPAREDTRANSACTIONOFFSET is the physical offset of the half message
    retry, DLQ      ORIGIN_MESSAGE_ID is the offset message id of the first record
    light queues    INNER_MULTI_DISPATCH names them (LMQ)

Op messages and POP messages are stored later than the records that they name, and only searched there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.forensics.trace.queue_records import first_from
from rmqctl.forensics.trace.stage import LMQ, OP, ROLLBACK, WAITING_KINDS, Record, Stage
from rmqctl.format.body import op_message
from rmqctl.format.host import parse_msg_id
from rmqctl.format.properties import REAL_TOPIC, TIMER_OUT_MS
from rmqctl.format.sys_flag import TransactionType, transaction_type
from rmqctl.format.timestamp import MAX_MS
from rmqctl.store.config.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqctl.store.dispatch.dispatch_rules import queue_destinations
from rmqctl.store.read.commit_log import message_of
from rmqctl.store.read.known_topics import why_unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rmqctl.forensics.trace.op_messages import OpMessages
    from rmqctl.format.host import Host
    from rmqctl.format.message import Message
    from rmqctl.store.read.read_only_store import ReadOnlyStore

ORIGIN_IDS = ("ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_MESSAGE_ID")


def own_stage(kind: str, record: Record, store: ReadOnlyStore) -> Stage:
    """Return the stage of a record in the queue of its topic and queueId."""
    message = record.message
    due = _due(record, store) if kind in WAITING_KINDS else None
    reachable = _is_reachable(store, message)
    why_not = why_unreadable(store, message.topic, message.queue_id)
    return Stage(
        kind, record, message.topic, message.queue_id, message.queue_offset, reachable, due=due or None, why_not=why_not
    )


def _is_reachable(store: ReadOnlyStore, message: Message) -> bool | None:
    if not store.path.reads_queues or store.is_unread(message.topic, message.queue_id):
        return None
    unit = store.unit(message.topic, message.queue_id, message.queue_offset)
    return unit is not None and unit.physical_offset == message.physical_offset


def light_stages(record: Record, store: ReadOnlyStore) -> Iterator[Stage]:
    """Yield a stage for each light queue (LMQ) that the record names."""
    for place in queue_destinations(record.message)[1:]:
        queue = store.queue(place.topic, place.queue_id)
        unit = None if queue is None else first_from(queue, record.message.physical_offset)
        found = unit is not None and unit.physical_offset == record.message.physical_offset
        offset = unit.queue_offset if unit is not None and found else place.queue_offset
        is_known = store.path.reads_queues and not store.is_unread(place.topic, place.queue_id)
        reachable = found if is_known else None
        yield Stage(LMQ, record, place.topic, place.queue_id, offset, reachable)


def linked_offsets(record: Record, store: ReadOnlyStore) -> Iterator[int]:
    """Yield the physical offsets of the older records that a record names."""
    message = record.message
    if transaction_type(message.sys_flag) in (TransactionType.COMMIT, TransactionType.ROLLBACK):
        yield message.prepared_transaction_offset
    for host, offset in _origins(record):
        origin = message_of(store.commit_log.at(offset))
        if origin is not None and origin.store_host == host:
            yield offset


def has_overdue(records: Sequence[Record], store: ReadOnlyStore) -> bool:
    """Return whether a record of a message is overdue but not delivered.

    It is not delivered if no record is in the topic that REAL_TOPIC names, and overdue if its due time is before the
    physicMsgTimestamp of the checkpoint.
    """
    topics = {record.message.topic for record in records}
    waiting = [
        record
        for record in records
        if record.message.topic in (SCHEDULE_TOPIC, TIMER_TOPIC) and record.properties.get(REAL_TOPIC) not in topics
    ]
    checkpoint = store.checkpoint() if waiting else None
    reached = checkpoint.physic_msg_timestamp if checkpoint is not None else MAX_MS
    return any(_due(record, store) < reached for record in waiting)


def _due(record: Record, store: ReadOnlyStore) -> int:
    """Return a delayed record's due time in ms since 1970, or 0 if unknown.

    ScheduleMessageService delivers when the tagsCode of the unit says (computeDeliverTimestamp, at dispatch).
    """
    if record.message.topic == SCHEDULE_TOPIC:
        return store.tags_code(record.message) if _is_reachable(store, record.message) else 0
    due = record.properties.get(TIMER_OUT_MS, "")
    return int(due) if due.isascii() and due.isdecimal() and len(due) <= len(str(MAX_MS)) else 0


def lost_origins(record: Record, store: ReadOnlyStore) -> Iterator[int]:
    """Yield the physical offsets in a record that are before the log's start."""
    begin = store.commit_log.min_offset
    for host, offset in _origins(record):
        if offset < begin and host == record.message.store_host:
            yield offset
    if transaction_type(record.message.sys_flag) is TransactionType.COMMIT:
        half = record.message.prepared_transaction_offset
        if 0 <= half < begin:
            yield half


def _origins(record: Record) -> Iterator[tuple[Host, int]]:
    for name in ORIGIN_IDS:
        try:
            yield parse_msg_id(record.properties.get(name, ""))
        except ValueError:
            continue


def op_stages(halves: Sequence[Stage], records: Iterable[Record], ops: OpMessages) -> Iterator[Stage]:
    """Yield the op messages of one store for the half messages `halves`.

    `records` are all records of the message. An op message means a commit if they have the committed message, and else
    a rollback. The queue of op messages may be behind the log: if none in it names the last half message, the end of
    the log is scanned.
    """
    committed = {
        record.message.prepared_transaction_offset
        for record in records
        if transaction_type(record.message.sys_flag) is TransactionType.COMMIT
    }
    for queue_id in sorted({half.queue_id for half in halves}):
        named = {half.queue_offset: half for half in halves if half.queue_id == queue_id}
        first = named[min(named)].record.message.physical_offset
        found = list(_naming(named, ops.in_queue(queue_id, named, first)))
        if not any(named[max(named)] in meant for _, meant in found):
            found += _naming(named, ops.in_tail(queue_id, first))
        for record, meant in found:
            is_commit = any(half.record.message.physical_offset in committed for half in meant)
            yield own_stage(OP if is_commit else ROLLBACK, record, ops.scan.store)


def _naming(named: dict[int, Stage], ops: Iterable[Record]) -> Iterator[tuple[Record, list[Stage]]]:
    for record in ops:
        meant = [named[at] for at in op_message.decode(bytes(record.message.body)).half_offsets if at in named]
        if meant:
            yield record, meant
