"""`rmqctl job stats`: the figures that come of `rmqctl dump`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.spark.question.stats import stats
from rmqctl.spark.source.data_source import register
from tests.conftest import Rmqctl, tree_hash
from tests.spark.question.conftest import dumped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Row = dict[str, Any]


def figures(root: Path) -> dict[tuple[str, int], Row]:
    """By topic and queue, computed one message after the other."""
    queues: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in dumped(root):
        queues[row["topic"], row["queueId"]].append(row)
    return {key: of_queue(rows) for key, rows in queues.items()}


def of_queue(rows: list[Row]) -> Row:
    sizes, offsets, times = ([row[key] for row in rows] for key in ("size", "queueOffset", "storeTimestamp"))
    lasted = max(times) - min(times)
    return {
        "messages": len(rows),
        "bytes": sum(sizes),
        "bodyBytes": sum(row["bodyLength"] for row in rows),
        "minSize": min(sizes),
        "avgSize": pytest.approx(sum(sizes) / len(rows), abs=0.001),
        "maxSize": max(sizes),
        "minQueueOffset": min(offsets),
        "maxQueueOffset": max(offsets),
        "firstStoreTimestamp": min(times),
        "lastStoreTimestamp": max(times),
        "messagesPerSecond": pytest.approx(len(rows) / lasted * 1000, abs=0.001) if lasted else None,
    }


def told(document: Row, root: Path) -> dict[tuple[str, int], Row]:
    left_out = ("broker", "store", "topic", "queueId", "firstStoreTime", "lastStoreTime")
    return {
        (row["topic"], row["queueId"]): {key: value for key, value in row.items() if key not in left_out}
        for row in document["queues"]
        if row["store"] == str(root)
    }


def test_every_golden_store(golden_stores: dict[str, Path], document: Callable[..., Row]) -> None:
    before = {name: tree_hash(root) for name, root in golden_stores.items()}
    found = document("stats", *golden_stores.values())
    assert found["code"] == found["damages"] == 0
    assert {row["broker"] for row in found["queues"]} == set(golden_stores)
    for root in golden_stores.values():
        assert told(found, root) == figures(root)
    assert (
        found["messages"]
        == sum(len(dumped(root)) for root in golden_stores.values())
        == sum(row["messages"] for row in found["queues"])
    )
    assert before == {name: tree_hash(root) for name, root in golden_stores.items()}


def test_topics_over_all_stores(golden_stores: dict[str, Path], document: Callable[..., Row], rmqctl: Rmqctl) -> None:
    roots = [golden_stores[name] for name in ("533-basic", "broker-497", "497-lmq")]
    topics: dict[str, list[Row]] = defaultdict(list)
    for root in roots:
        for row in dumped(root):
            topics[row["topic"]].append(row)
    found = document("stats", *roots)["topics"]
    told = [{key: row[key] for key in of_queue(topics[row["topic"]]) if "QueueOffset" not in key} for row in found]
    wanted = sorted(map(of_queue, topics.values()), key=lambda row: -row["bytes"])
    assert told == [{key: value for key, value in row.items() if "QueueOffset" not in key} for row in wanted]
    assert {row["topic"] for row in found} == set(topics)
    text = rmqctl("job", "stats", *roots).out.splitlines()
    assert text[0].split() == ["TOPIC", "QUEUES", "MESSAGES", "BYTES", "AVG", "MAX", "FIRST", "LAST", "PER_S"]
    assert " KB " in text[2]


def test_damage_cases(damaged_stores: dict[str, Path], document: Callable[..., Row], rmqctl: Rmqctl) -> None:
    found = document("stats", *damaged_stores.values())
    assert found["code"] == 1
    for root in damaged_stores.values():
        assert told(found, root) == figures(root)
    assert found["damages"] == sum(
        rmqctl("dump", root, "--damaged", "-o", "jsonl").out.count('"damage":') for root in damaged_stores.values()
    )


def test_records_have_the_statistics_of_groups(golden_stores: dict[str, Path], spark: SparkSession) -> None:
    register(spark)
    one, other = (
        stats(spark.read.format(name).load(str(golden_stores["497-lmq"]))) for name in ("rocketmq", "rocketmq-groups")
    )
    assert sorted(one.collect()) == sorted(other.collect()) != []


def test_totals_are_those_of_verify(
    golden_stores: dict[str, Path], document: Callable[..., Row], rmqctl: Rmqctl
) -> None:
    root = golden_stores["broker-533"]
    verified, found = rmqctl("verify", root, "--level", "1", "-o", "json").document(), document("stats", root)
    assert [found[key] for key in ("messages", "blanks")] == [verified[key] for key in ("messages", "blanks")]


def test_small_splits_give_the_same(golden_stores: dict[str, Path], rmqctl: Rmqctl) -> None:
    root = golden_stores["broker-497"]
    small, large = (rmqctl("job", "stats", root, "--split-mib", size, "-o", "jsonl") for size in (1, 4096))
    assert small.rows() == large.rows()
    assert small.err == large.err == "read 2079 messages of 831221 bytes, 3 blanks, 0 damaged places\n"
