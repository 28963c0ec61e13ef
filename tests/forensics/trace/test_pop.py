"""What the verdict says of messages that a group popped: acknowledged, put off, revived, or none of it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rmqctl.format.encode import MessageExtBrokerInner
from rmqctl.format.profile import PROFILE_5_3
from tests.conftest import Rmqctl
from tests.support.databases import pop_row, write_database
from tests.support.small_store import created, message

REVIVE = "rmq_sys_REVIVE_LOG_c"
AGAIN = "popped and not acknowledged by g: comes again at 1970-01-01T00:00:0"
DONE, CONSUMED = "popped and acknowledged by g", "consumed by g"


def pop(tag: str, at: int, **more: Any) -> MessageExtBrokerInner:
    """A message of POP for the message at queue offset 0, popped at a time in ms, for 60 ms."""
    rest = {"n": 1, "it": 60} if tag == "ck" else {"ao": 0} if tag == "ack" else {"aol": [0]}
    body = {"c": "g", "t": "OrderPaid", "q": 1, "so": 0, "pt": at, **rest, **more}
    raw = json.dumps(body, separators=(",", ":")).encode()
    return message(topic=REVIVE, body=raw, queue_id=1, properties={"TAGS": tag})


def timed(of_pop: MessageExtBrokerInner) -> MessageExtBrokerInner:
    properties = {**of_pop.properties, "REAL_TOPIC": REVIVE, "TIMER_OUT_MS": "9000"}
    return of_pop._replace(topic="rmq_sys_wheel_timer", queue_id=0, properties=properties)


def traced(
    root: Path, rmqctl: Rmqctl, messages: list[MessageExtBrokerInner], revived: int | None = None
) -> dict[str, Any]:
    with closing(created(root, PROFILE_5_3)) as store:
        for one in (message(1), *messages):
            assert store.put_message(one).is_ok
    offsets: dict[str, Any] = {"OrderPaid@g": {"1": 1}}
    if revived is not None:
        offsets[f"{REVIVE}@CID_RMQ_SYS_REVIVE_GROUP"] = {"1": revived}
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return rmqctl("trace", root, "--offset", "0", "-o", "json").document()


@pytest.mark.parametrize(
    ("messages", "revived", "verdict"),
    [
        ([pop("ck", 5)], None, f"{AGAIN}0.065Z"),
        ([timed(pop("ck", 5))], None, f"{AGAIN}0.065Z"),
        ([pop("ck", 5), pop("ack", 5)], None, f"{DONE}, {CONSUMED}"),
        ([pop("ck", 5), pop("bAck", 5)], None, f"{DONE}, {CONSUMED}"),
        ([timed(pop("ck", 5)), timed(pop("ack", 5))], None, f"{DONE}, {CONSUMED}"),
        ([pop("ck", 5), pop("ck", 900, it=100), pop("ack", 5)], None, f"{AGAIN}1.000Z"),
        ([pop("ck", 5), pop("ck", 900), pop("ack", 5), pop("ack", 900)], None, f"{DONE}, {CONSUMED}"),
        ([pop("ck", 5), pop("ck", 900), pop("ack", 5)], 1, f"popped by g, {CONSUMED}"),
        ([pop("ck", 5), pop("ck", 5, it=2000, rp="1")], 0, f"{AGAIN}2.005Z"),
        ([pop("ack", 5), pop("ck", 5)], None, f"{AGAIN}0.065Z"),
        ([pop("ack", 5)], None, f"acknowledged by g, {CONSUMED}"),
        ([pop("ck", 2**62)], None, "popped and not acknowledged by g"),
    ],
)
def test_by_the_revive_topic(
    messages: list[MessageExtBrokerInner], revived: int | None, verdict: str, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    document = traced(tmp_path / "store", rmqctl, messages, revived)
    assert document["verdict"] == f"stored, {verdict}"
    group = next(row for row in document["groups"] if row["group"] == "g")
    assert (group["visibleTimestamp"] is not None) == ("not acknowledged" in verdict)
    assert (group["visibleTime"] or "") == verdict.partition("again at ")[2]


def test_by_the_database(tmp_path: Path, rmqctl: Rmqctl) -> None:
    for queue_offset, verdict in ((0, f"stored, {AGAIN}0.065Z"), (1, f"stored, {CONSUMED}")):
        root = tmp_path / str(queue_offset)
        row = pop_row("g", "OrderPaid", 1, queue_offset, 5, 60)
        traced(root, rmqctl, [])
        write_database(root / "kvStore", {"popState": dict([row])})
        assert rmqctl("trace", root, "--offset", "0").out.splitlines()[0] == verdict
