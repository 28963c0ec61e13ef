"""Static topics: the queues under which clients see those of this broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Golden, Rmqctl

PIECE = {"bname": "broker-a", "gen": 0, "queueId": 1, "logicOffset": 0, "startOffset": 0, "endOffset": -1}


def mapped(root: Path, pieces: Any) -> None:
    table = {"OrderPaid": {"bname": "broker-a", "epoch": 1, "hostedQueues": {"7": pieces}, "totalQueues": 8}}
    (root / "config" / "topicQueueMapping.json").write_text(json.dumps({"topicQueueMappingInfoMap": table}))


@pytest.mark.parametrize(
    ("pieces", "seen"),
    [
        ([PIECE], [7, 0, 0]),
        ([PIECE | {"logicOffset": 1000}], [7, 1000, 0]),
        ([PIECE | {"bname": "broker-b"}, PIECE | {"gen": 1, "logicOffset": 1000, "startOffset": 2}], [7, 1000, -2]),
        ([PIECE | {"logicOffset": 1000, "endOffset": 5}, PIECE | {"bname": "broker-b"}], [7, 1000, None]),
        ([PIECE | {"logicOffset": -1}], [7, None, None]),
        ([PIECE | {"bname": "broker-b"}], []),
        ([PIECE | {"logicOffset": {}}], []),
        ("many", []),
    ],
)
def test_queue_shows_what_clients_see(pieces: Any, seen: list[int | None], golden: Golden, rmqctl: Rmqctl) -> None:
    """As LogicQueueMappingItem.computeStaticQueueOffsetLoosely of 5.5.0 counts; the first number is the globalId."""
    basic = golden("497-basic")
    mapped(basic, pieces)
    row = next(row for row in rmqctl("queue", basic, "OrderPaid", "-o", "jsonl").rows() if row["queueId"] == 1)
    low, high = row["minOffset"], row["maxOffset"]
    assert low == 0
    assert high > 5
    shown = [row[key] for key in ("globalId", "staticMinOffset", "staticMaxOffset") if key in row]
    if seen and seen[1] is not None:
        seen[2] = 1005 if seen[2] is None else high + seen[2] + seen[1]
    assert shown == seen
    assert ("GLOBAL ID" in rmqctl("queue", basic).out) == bool(seen)
