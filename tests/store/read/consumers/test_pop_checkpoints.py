"""Messages that were popped and not acknowledged, as the bodies of revive and timer messages say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqctl.forensics.groups.lag import Lag
from rmqctl.forensics.survey.not_read import not_read
from rmqctl.store.config import store_path
from rmqctl.store.read.consumers.pop_checkpoints import popped_messages, popped_offsets
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl
from tests.support.databases import Rows, pop_row, write_database
from tests.support.expiring_store import write_store
from tests.support.log_maker import Record

REVIVE = "rmq_sys_REVIVE_LOG_c"
POP = '"c":"g","t":"OrderPaid","q":1'


def revive(tag: str, rest: str) -> Record:
    return Record(topic=REVIVE, body=f"{{{POP},{rest}}}".encode(), properties=f"TAGS\x01{tag}\x02".encode())


def timed(tag: str, rest: str, due: int = 9000) -> Record:
    properties = f"TAGS\x01{tag}\x02REAL_TOPIC\x01{REVIVE}\x02TIMER_OUT_MS\x01{due}\x02"
    return Record(topic="rmq_sys_wheel_timer", queue_id=0, body=revive(tag, rest).body, properties=properties.encode())


def popped(root: Path, *records: Record, revived: int | None = None) -> int:
    write_store(root, [list(records)])
    if revived is not None:
        (root / "config").mkdir(exist_ok=True)
        offsets = {"offsetTable": {f"{REVIVE}@CID_RMQ_SYS_REVIVE_GROUP": {"1": revived}}}
        (root / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    problems: list[str] = []
    found = popped_messages(ReadOnlyStore(root), problems)
    assert problems == []
    assert set(found) <= {("OrderPaid", 1)}
    return len(found.get(("OrderPaid", 1), {}).get("g", {}))


def test_a_checkpoint_counts_its_messages(tmp_path: Path) -> None:
    assert popped(tmp_path / "in order", revive("ck", '"so":7,"pt":5,"n":3')) == 3
    assert popped(tmp_path / "marked", revive("ck", '"so":7,"pt":5,"n":3,"bm":5')) == 1
    assert popped(tmp_path / "filtered", revive("ck", '"so":7,"pt":5,"n":2,"d":[0,4]')) == 2
    assert popped(tmp_path / "twice", *[revive("ck", '"so":7,"pt":5,"n":3')] * 2) == 3


def test_a_body_that_is_none_hides_no_later_one(tmp_path: Path) -> None:
    write_store(tmp_path, [[*[revive("ck", '"so":-1')] * 2, revive("ck", '"so":7,"pt":5,"n":3')]])
    problems: list[str] = []
    assert popped_messages(ReadOnlyStore(tmp_path), problems) == {("OrderPaid", 1): {"g": {7: 5, 8: 5, 9: 5}}}
    (problem,) = problems
    assert problem.startswith(f"queue {REVIVE} 1: a checkpoint of POP cannot be understood: ")
    assert Lag(ReadOnlyStore(tmp_path)).incomplete


def test_acknowledged_messages_do_not_count(tmp_path: Path) -> None:
    checkpoint = revive("ck", '"so":7,"pt":5,"n":4,"d":[0,1,2,4]')
    acks = [revive("ack", '"so":7,"pt":5,"ao":8'), revive("bAck", '"so":7,"pt":5,"aol":[7,11]')]
    assert popped(tmp_path / "one", checkpoint, acks[0]) == 3
    assert popped(tmp_path / "several", checkpoint, *acks) == 1
    assert popped(tmp_path / "of another pop", checkpoint, revive("ack", '"so":7,"pt":6,"ao":8')) == 4
    assert (
        popped(tmp_path / "in the timer", timed("ck", '"so":7,"pt":5,"n":2'), timed("ack", '"so":7,"pt":5,"ao":8')) == 1
    )


def test_the_committed_checkpoint_is_processed(tmp_path: Path) -> None:
    """PopReviveService commits the offset of the last checkpoint, and goes on after it."""
    checkpoints = [revive("ck", f'"so":{offset},"pt":5,"n":1') for offset in (1, 2, 3)]
    assert popped(tmp_path / "none", *checkpoints) == 3
    assert popped(tmp_path / "first", *checkpoints, revived=0) == 2
    assert popped(tmp_path / "all", *checkpoints, revived=2) == 0


def test_acknowledgements_count_in_the_order_of_the_broker(tmp_path: Path) -> None:
    """PopReviveService leaves out one without a checkpoint, and the checkpoint that comes last is whole again."""
    checkpoint, ack = '"so":7,"pt":5,"n":2', '"so":7,"pt":5,"aol":[7,8]'
    assert popped(tmp_path / "first", revive("bAck", ack), revive("ck", checkpoint)) == 2
    assert popped(tmp_path / "again", revive("ck", checkpoint), revive("bAck", ack), revive("ck", checkpoint)) == 2
    assert popped(tmp_path / "late", revive("bAck", ack), timed("ck", checkpoint)) == 2
    assert popped(tmp_path / "by due time", timed("bAck", ack, 9001), timed("ck", checkpoint, 9000)) == 0
    assert popped(tmp_path / "without", revive("bAck", ack)) == 0


def test_a_message_that_was_popped_twice_counts_once(tmp_path: Path) -> None:
    """A consumer puts a message off by another checkpoint; one that the broker could not read is stored again."""
    write_store(tmp_path, [[revive("ck", '"so":7,"pt":5,"n":1,"it":60'), revive("ck", '"so":7,"pt":9,"it":30,"n":1')]])
    assert popped_messages(ReadOnlyStore(tmp_path), []) == {("OrderPaid", 1): {"g": {7: 39}}}


ROWS = dict(pop_row("g", "OrderPaid", 1, offset, 1000, 500) for offset in (3, 300))


def with_kv_store(root: Path, rows: Rows) -> Path:
    write_store(root, [[revive("ck", '"so":7,"pt":5,"n":1,"it":60')]])
    write_database(root / "kvStore", {"popState": rows})
    return root


def test_rows_of_the_database_count(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = with_kv_store(tmp_path, ROWS | dict([pop_row("h", "%RETRY%h_OrderPaid", 0, 0, 7, 1)]))
    problems: list[str] = []
    found = {("OrderPaid", 1): {"g": {3: 1500, 7: 65, 300: 1500}}, ("%RETRY%h_OrderPaid", 0): {"h": {0: 8}}}
    assert popped_messages(ReadOnlyStore(root), problems) == found
    assert popped_offsets(ReadOnlyStore(root), problems)["OrderPaid", 1] == {"g": 3}
    assert (problems, not_read(ReadOnlyStore(root))) == ([], [])
    document = rmqctl("lag", root, "-o", "json").document()  # no file in config/ names the groups
    assert {(row["group"], row["topic"], row["popped"]) for row in document["groups"] if row["popped"]} == {
        ("g", "OrderPaid", 3),
        ("h", "%RETRY%h_OrderPaid", 1),
    }
    assert {row["group"]: row["popped"] for row in document["groupTotals"] if row["popped"]} == {"g": 3, "h": 1}


@pytest.mark.parametrize("value", [b"", b"{}", b'{"groupId":"g","topicId":"T","queueId":0,"offset":-1}'])
def test_a_row_that_is_none_is_a_problem(value: bytes, tmp_path: Path) -> None:
    problems: list[str] = []
    root = with_kv_store(tmp_path, {b"key": value})
    assert popped_messages(ReadOnlyStore(root), problems) == {("OrderPaid", 1): {"g": {7: 65}}}
    assert problems[0].startswith("kvStore/ says which messages were popped")


def test_without_the_extra_the_database_is_a_problem(
    tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = with_kv_store(tmp_path, ROWS)
    monkeypatch.setattr(store_path, "can_read_databases", lambda: False)
    assert [one.path for one in not_read(ReadOnlyStore(root))] == ["kvStore"]
    for found in (rmqctl("lag", root), rmqctl("trace", root, "--offset", "0")):
        assert found.code == 4
        text = " ".join((found.out + found.err).split())
        assert "kvStore/ says which messages were popped" in text
        assert "install the extra `rocksdb`" in text
