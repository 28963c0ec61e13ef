"""`rmqctl job lost`: what `rmqctl verify` says of messages without units."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.spark.question.lost import lost
from tests.conftest import Rmqctl, unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Row = dict[str, Any]
# a message's own finding; a unit's begins with other words
OF_A_MESSAGE = ("the unit points to", "the batch's unit", "the unit stands for")


def by_verify(rmqctl: Rmqctl, root: Path) -> Counter[tuple[str, int]]:
    """How many messages of each queue no unit reaches, as verify finds them."""
    found: Counter[tuple[str, int]] = Counter()
    for finding in rmqctl("verify", root, "--level", "2", "-o", "jsonl").rows():
        of_message = finding["code"] == "unit-mismatch" and finding["detail"].startswith(OF_A_MESSAGE)
        if finding["code"] == "missing-unit" or of_message:
            found[finding["topic"], finding["queueId"]] += finding.get("count", 1)
    return found


def by_job(document: Row, root: Path) -> Counter[tuple[str, int]]:
    rows = [row for row in document["queues"] if row["store"] == str(root) and row["why"] == "missing-unit"]
    return Counter({(row["topic"], row["queueId"]): row["messages"] for row in rows})


def test_every_golden_store(golden_stores: dict[str, Path], document: Callable[..., Row], rmqctl: Rmqctl) -> None:
    found = document("lost", *golden_stores.values())
    for root in golden_stores.values():
        assert by_job(found, root) == by_verify(rmqctl, root)
    assert found["code"] == bool(sum(row["why"] == "missing-unit" for row in found["queues"]))


def test_damage_cases(damaged_stores: dict[str, Path], document: Callable[..., Row], rmqctl: Rmqctl) -> None:
    found = document("lost", *damaged_stores.values())
    assert found["code"] == 1
    wanted = {root: by_verify(rmqctl, root) for root in damaged_stores.values()}
    assert {root: by_job(found, root) for root in wanted} == wanted
    assert sum(counts.total() for counts in wanted.values()) > 100


def test_a_queue_that_is_gone_and_topics_that_were_deleted(
    tmp_path: Path, document: Callable[..., Row], rmqctl: Rmqctl
) -> None:
    root = unpack("broker-497", tmp_path)
    shutil.rmtree(root / "consumequeue" / "orders" / "1")
    shutil.rmtree(root / "consumequeue" / "events")
    listed: Row = {topic: {} for topic in ("orders", "payments")}
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": listed}))
    found = document("lost", root)
    why = {(row["topic"], row["queueId"]): (row["why"], row["messages"]) for row in found["queues"]}
    events = {("events", queue): ("deleted-topic", count) for queue, count in enumerate((78, 72, 72, 78))}
    assert why == {("orders", 1): ("missing-unit", 375), **events}
    assert by_job(found, root) == by_verify(rmqctl, root)
    (root / "config" / "topics.json").unlink()
    (root / "config" / "topics.json.bak").unlink(missing_ok=True)
    assert {row["why"] for row in document("lost", root)["queues"]} == {"missing-unit"}
    assert rmqctl("job", "lost", root).err.startswith("675 messages that no queue reaches\n")


RECORDS = (
    "broker string, store string, kind string, topic string, queueId int, queueOffset bigint, physicalOffset bigint, "
    "size bigint, "
    "storeTimestamp bigint, sysFlag int, properties map<string,string>, damage string"
)
UNITS = "store string, topic string, queueId int, queueOffset bigint, physicalOffset bigint, size bigint"


def message(at: int, queue_offset: int, topic: str = "T", sys_flag: int = 0, **more: Any) -> Row:
    row = {
        "broker": "b",
        "store": "/s",
        "kind": "message",
        "topic": topic,
        "queueId": 0,
        "queueOffset": queue_offset,
        "physicalOffset": at,
    }
    return (
        row | {"size": 100, "storeTimestamp": 1000 + at, "sysFlag": sys_flag, "properties": {}, "damage": None} | more
    )


def unit(at: int, queue_offset: int, topic: str = "T", size: int = 100) -> Row:
    return {
        "store": "/s",
        "topic": topic,
        "queueId": 0,
        "queueOffset": queue_offset,
        "physicalOffset": at,
        "size": size,
    }


def told(spark: SparkSession, records: list[Row], units: list[Row]) -> set[tuple[str, str, int, int]]:
    found = lost(spark.createDataFrame(records, RECORDS), spark.createDataFrame(units, UNITS))
    return {(row["topic"], row["why"], row["messages"], row["firstPhysicalOffset"]) for row in found.collect()}


def test_prepared_and_rolled_back_messages_are_in_no_queue(spark: SparkSession) -> None:
    records = [message(0, 0, sys_flag=4), message(100, 0, sys_flag=12), message(200, 0, sys_flag=8), message(300, 1)]
    assert told(spark, records, [unit(200, 0)]) == {("T", "missing-unit", 1, 300)}


def test_light_queues(spark: SparkSession) -> None:
    named = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b,x/y,,%LMQ%c,", "INNER_MULTI_QUEUE_OFFSET": "0,7,1,2,x"}
    uneven = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "0"}
    records = [
        message(0, 0, properties=named),
        message(100, 1, properties=uneven),
        message(200, 0, "%RETRY%g", properties=named),
    ]
    units = [unit(0, 0), unit(100, 1), unit(200, 0, "%RETRY%g"), unit(0, 0, "%LMQ%a")]
    assert told(spark, records, units) == {("%LMQ%b", "missing-unit", 1, 0)}


def test_a_topic_that_was_deleted_and_made_again(spark: SparkSession) -> None:
    records = [message(at * 100, offset) for at, offset in enumerate((0, 1, 2, 0, 1))]
    assert told(spark, records, [unit(300, 0), unit(400, 1)]) == {("T", "superseded", 3, 0)}
    assert told(spark, records, [unit(300, 0)]) == {("T", "superseded", 3, 0), ("T", "missing-unit", 1, 400)}


def test_a_pre_blank_unit_reaches_nothing(spark: SparkSession) -> None:
    assert told(spark, [message(0, 0)], [unit(0, 0, size=0x7FFFFFFF), unit(0, 1, size=0)]) == {
        ("T", "missing-unit", 1, 0)
    }


def test_damaged_messages_count_while_they_know_their_place(spark: SparkSession) -> None:
    known = message(0, 0, kind="damage", damage="bad-body-crc")
    elsewhere = message(100, 1, kind="damage", damage="bad-physical-offset")
    hole = dict.fromkeys(known) | {
        "broker": "b",
        "store": "/s",
        "kind": "damage",
        "physicalOffset": 200,
        "size": 100,
        "damage": "hole",
    }
    assert told(spark, [known, elsewhere, hole], []) == {("T", "missing-unit", 1, 0)}
