"""`rmqctl job timeline`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.spark.question.conftest import dumped

pytestmark = pytest.mark.spark

Row = dict[str, Any]
NAMES = ("broker-497", "533-basic")


@pytest.mark.parametrize(("interval", "length_ms"), [("1s", 1000), ("7s", 7000), ("1d", 86_400_000)])
def test_by_broker(interval: str, length_ms: int, golden_stores: dict[str, Path], document: Callable[..., Row]) -> None:
    roots = [golden_stores[name] for name in NAMES]
    found = document("timeline", *roots, "--interval", interval)
    wanted: Counter[tuple[str, int]] = Counter()
    size: Counter[tuple[str, int]] = Counter()
    for name, root in zip(NAMES, roots, strict=True):
        for row in dumped(root):
            key = name, row["storeTimestamp"] // length_ms * length_ms
            wanted[key] += 1
            size[key] += row["size"]
    assert {(row["broker"], row["timestamp"]): row["messages"] for row in found["intervals"]} == wanted
    assert {(row["broker"], row["timestamp"]): row["bytes"] for row in found["intervals"]} == size
    assert found["code"] == 0
    assert found["intervalMs"] == length_ms


def test_by_topic(golden_stores: dict[str, Path], document: Callable[..., Row]) -> None:
    found = document("timeline", golden_stores["broker-497"], "--by", "topic")
    wanted = Counter(
        (row["topic"], row["storeTimestamp"] // 60_000 * 60_000) for row in dumped(golden_stores["broker-497"])
    )
    assert {(row["topic"], row["timestamp"]): row["messages"] for row in found["intervals"]} == wanted
    assert {row["time"] for row in found["intervals"]} == {"2026-11-21T09:29:00.000Z"}
