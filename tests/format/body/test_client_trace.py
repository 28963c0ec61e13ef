"""What clients record in RMQ_SYS_TRACE_TOPIC: the texts are those of TraceDataEncoder, 4.7 to 5.5."""

from __future__ import annotations

from rmqctl.format.body.client_trace import ClientRecord, decode, is_trace


def records(*texts: tuple[object, ...]) -> list[ClientRecord]:
    return list(decode("".join("\x01".join(map(str, fields)) + "\x02" for fields in texts).encode()))


def test_a_sent_message() -> None:
    fields = ("Pub", 1795253356601, "region", "group", "orders", "U1", "TagA", "k1", "127.0.0.1:1", 12, 3, 0)
    for tail in (("true",), ("offset-id", "true"), ("offset-id", "true", "127.0.0.1")):
        [found] = records((*fields, *tail))
        assert (found.kind, found.msg_id, found.timestamp, found.group) == ("Pub", "U1", 1795253356601, "group")
        assert (found.topic, found.cost_ms, found.success) == ("orders", 3, True)


def test_a_consumed_message() -> None:
    before, after, old = records(
        ("SubBefore", 5, "region", "billing", "request", "U1", 2, "k1"),
        ("SubAfter", "request", "U1", 7, "false", "k1", 0, 12, "billing"),
        ("SubAfter", "request", "U1", 7, "true", "", 0),
    )
    assert (before.group, before.request_id, before.retry_times, before.success) == ("billing", "request", 2, None)
    assert (after.group, after.cost_ms, after.success, after.timestamp) == ("billing", 7, False, 12)
    assert (old.group, old.success) == (None, True)


def test_the_end_of_a_transaction_and_a_recall() -> None:
    ended, recalled = records(
        ("EndTransaction", 5, "r", "ptx", "pay", "U1", "tx", "k", "host", 3, "id", "ROLLBACK_MESSAGE", "true"),
        ("Recall", 6, "r", "ptx", "pay", "U1", "true"),
    )
    assert (ended.kind, ended.state) == ("EndTransaction", "ROLLBACK_MESSAGE")
    assert (recalled.kind, recalled.success) == ("Recall", True)


def test_other_text_is_no_record() -> None:
    assert records(("Nonsense", 1, 2), ("Pub",), ("",)) == []
    assert not is_trace(b"Publication")
    assert is_trace(b"Pub\x011")
