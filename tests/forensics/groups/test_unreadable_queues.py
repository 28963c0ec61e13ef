"""Topics and queues that no consumer can read, in doctor and in trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Rmqctl, unpack

PERM, QUEUES = "which lacks the bit for reading (4)", "has readQueueNums 2 in topics.json"


@pytest.mark.parametrize(
    ("entry", "why", "queues"), [({"perm": 2}, PERM, [0, 1, 2, 3]), ({"readQueueNums": 2}, QUEUES, [2, 3])]
)
def test_what_no_consumer_can_read_is_a_cause(
    entry: dict[str, int], why: str, queues: list[int], tmp_path: Path, rmqctl: Rmqctl
) -> None:
    store = unpack("broker-533", tmp_path)
    stages = {row["queueId"]: row for row in (_stage(store, rmqctl, queue_id) for queue_id in range(4))}
    assert {(row["readable"], row["whyNot"]) for row in stages.values()} == {(True, None)}
    path = store / "config" / "topics.json"
    content = json.loads(path.read_text())
    content["topicConfigTable"]["payments"].update(entry)
    path.write_text(json.dumps(content))
    (cause,) = rmqctl("doctor", store, "-o", "json").document()["causes"]
    held = [row for row in rmqctl("queue", store, "-o", "jsonl").rows() if row["topic"] == "payments"]
    count = sum(row["maxOffset"] - row["minOffset"] for row in held if row["queueId"] in queues)
    named = ", ".join(f"payments/{queue_id}" for queue_id in queues)
    assert (cause["code"], count > 0) == ("queue-unread", True)
    assert cause["summary"] == f"No consumer can read queues that have messages: {named} ({count} messages)"
    assert why in cause["evidence"][0]["detail"]
    assert cause["next"] == f"rmqctl config show {store} topics"
    for queue_id in range(4):
        row = _stage(store, rmqctl, queue_id)
        assert (row["readable"], why in (row["whyNot"] or "")) == (queue_id not in queues, queue_id in queues)
    said = _traced(store, rmqctl, queues[0])["verdict"]
    assert f"no consumer can read it there: payments has {next(iter(entry))} 2" in said


def _traced(store: Path, rmqctl: Rmqctl, queue_id: int) -> dict[str, Any]:
    """The trace of the first message of a queue of payments."""
    (unit, *_) = rmqctl("queue", store, "payments", queue_id, "-o", "jsonl").rows()
    return rmqctl("trace", store, "--offset", unit["physicalOffset"], "-o", "json").document()


def _stage(store: Path, rmqctl: Rmqctl, queue_id: int) -> dict[str, Any]:
    rows = _traced(store, rmqctl, queue_id)["stages"]
    return next(row for row in rows if (row["topic"], row["queueId"]) == ("payments", queue_id))
