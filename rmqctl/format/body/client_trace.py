"""The body of a trace message, which Java clients send to RMQ_SYS_TRACE_TOPIC.

As RocketMQ's class TraceDataEncoder writes it, the body consists of records, each followed by the byte 0x02. The byte
0x01 separates the fields of a record, the first of which is its kind:

    Pub             time region group topic msgId tags keys storeHost bodyLength costTime msgType [offsetMsgId] success
    SubBefore       time region group requestId msgId retryTimes keys
    SubAfter        requestId msgId costTime success keys [contextCode [time [group]]]
    EndTransaction  time region group topic msgId tags keys storeHost msgType transactionId state fromCheck
    Recall          time region group topic msgId success

msgId is the UNIQ_KEY of the traced message. The property KEYS of the trace message contains the msgId and the keys of
each record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

PUB, SUB_BEFORE, SUB_AFTER, END_TRANSACTION, RECALL = "Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall"
_RECORD_END, _FIELD_SEPARATOR = "\x02", "\x01"
_MESSAGE = ("timestamp", "region", "group", "topic", "msg_id", "tags", "keys", "store_host")
_PUB_FIELDS = (*_MESSAGE, "body_length", "cost_ms", "message_type")
_FIELDS = {
    SUB_BEFORE: ("timestamp", "region", "group", "request_id", "msg_id", "retry_times", "keys"),
    SUB_AFTER: ("request_id", "msg_id", "cost_ms", "success", "keys", "context_code", "timestamp", "group"),
    END_TRANSACTION: (*_MESSAGE, "message_type", "transaction_id", "state", "from_check"),
    RECALL: ("timestamp", "region", "group", "topic", "msg_id", "success"),
}
_PUB_TAIL_OLD, _PUB_TAIL = ("success",), ("offset_msg_id", "success", "client_host")
_DIGITS_MAX = 19
_BEGINNINGS = tuple((kind + _FIELD_SEPARATOR).encode() for kind in (PUB, *_FIELDS))


class ClientRecord(NamedTuple):
    """A client's record about one message; None: the client did not record it."""

    kind: str  # Pub, SubBefore, SubAfter, EndTransaction or Recall
    msg_id: str  # UNIQ_KEY
    timestamp: int | None  # the client's clock, ms since 1970
    group: str | None
    topic: str | None
    request_id: str | None
    cost_ms: int | None
    success: bool | None
    retry_times: int | None
    state: str | None  # COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW


def is_trace(body: bytes) -> bool:
    """Return whether a message body begins with a trace record."""
    return body.startswith(_BEGINNINGS)


def decode(body: bytes) -> Iterator[ClientRecord]:
    """Yield the trace records of a message body in order.

    Text that does not have their form is left out.
    """
    for text in body.decode("utf-8", "replace").split(_RECORD_END):
        kind, *values = text.split(_FIELD_SEPARATOR)
        fields = dict(zip(_names_of(kind, len(values)), values, strict=False))
        if fields.get("msg_id"):
            yield _record(kind, fields)


def _names_of(kind: str, count: int) -> tuple[str, ...]:
    """Return the field names of a kind of trace record; empty for an unknown kind."""
    if kind == PUB:
        return _PUB_FIELDS + (_PUB_TAIL_OLD if count == len(_PUB_FIELDS) + 1 else _PUB_TAIL)
    return _FIELDS.get(kind, ())


def _record(kind: str, fields: dict[str, str]) -> ClientRecord:
    success = fields.get("success")
    return ClientRecord(
        kind,
        fields["msg_id"],
        _number(fields.get("timestamp")),
        fields.get("group") or None,
        fields.get("topic") or None,
        fields.get("request_id") or None,
        _number(fields.get("cost_ms")),
        None if success is None else success == "true",
        _number(fields.get("retry_times")),
        fields.get("state") or None,
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX else None
