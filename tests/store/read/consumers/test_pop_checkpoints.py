"""Messages that were popped and not acknowledged, as the bodies of revive and timer messages say."""

from __future__ import annotations

import json
from pathlib import Path

from rmqctl.forensics.groups.lag import Lag
from rmqctl.store.read.consumers.pop_checkpoints import popped_messages
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support.expiring_store import write_store
from tests.support.log_maker import Record

REVIVE = "rmq_sys_REVIVE_LOG_c"
POP = '"c":"g","t":"OrderPaid","q":1'


def revive(tag: str, rest: str) -> Record:
    return Record(topic=REVIVE, body=f"{{{POP},{rest}}}".encode(), properties=f"TAGS\x01{tag}\x02".encode())


def timed(tag: str, rest: str) -> Record:
    properties = f"TAGS\x01{tag}\x02REAL_TOPIC\x01{REVIVE}\x02TIMER_OUT_MS\x019000\x02"
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
    return found.get(("OrderPaid", 1), {}).get("g", 0)


def test_a_checkpoint_counts_its_messages(tmp_path: Path) -> None:
    assert popped(tmp_path / "in order", revive("ck", '"so":7,"pt":5,"n":3')) == 3
    assert popped(tmp_path / "marked", revive("ck", '"so":7,"pt":5,"n":3,"bm":5')) == 1
    assert popped(tmp_path / "filtered", revive("ck", '"so":7,"pt":5,"n":2,"d":[0,4]')) == 2
    assert popped(tmp_path / "twice", *[revive("ck", '"so":7,"pt":5,"n":3')] * 2) == 3


def test_a_body_that_is_none_hides_no_later_one(tmp_path: Path) -> None:
    write_store(tmp_path, [[*[revive("ck", '"so":-1')] * 2, revive("ck", '"so":7,"pt":5,"n":3')]])
    problems: list[str] = []
    assert popped_messages(ReadOnlyStore(tmp_path), problems) == {("OrderPaid", 1): {"g": 3}}
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
