"""`rmqctl job` on a standalone cluster, which --master names: as here, also when an executor process is killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Result, Rmqctl, apply_damage, damage_cases, tree_hash, unpack
from tests.spark.conftest import without_seconds
from tests.support.lock_holder import lock_held
from tests.support.spark_cluster import Cluster
from tests.support.spark_process import ended

pytestmark = pytest.mark.spark


def test_verify_when_an_executor_is_killed(cluster: Cluster, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """The large store is read by splits, each other one by one task."""
    names = ["broker-533", "533-basic", "497-lmq", "471-basic"]
    roots = [unpack(name, tmp_path / name) for name in names]
    here = rmqctl("verify", *roots, "-o", "json")
    job = cluster.start("job", "verify", *roots, "--master", cluster.url, "-o", "json")
    cluster.kill_an_executor_at_work(job)
    there = ended(job)
    assert there.code == here.code == 0
    assert untimed(there) == untimed(here)
    assert "SparkListenerExecutorRemoved" in {event["Event"] for event in cluster.jobs_events()}


def untimed(result: Result) -> dict[str, Any]:
    """The document of `verify`, without the seconds in it."""
    found = result.document()
    found["reports"] = [without_seconds(report) for report in found.get("reports", [])]
    return without_seconds(found)


FLEET = 16


def test_verify_of_a_fleet_and_what_the_driver_gets(cluster: Cluster, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Two jobs of one driver.

    One store is damaged, one is open in a broker, one keeps its queues in RocksDB, and one does not exist. Of a large
    store, the driver gets less than a byte a message.
    """
    large = with_keys(tmp_path, rmqctl)
    case = damage_cases()["497-basic--body-flip-first-abnormal"]
    damaged, in_use = unpack(case["base"], tmp_path / "damaged"), unpack("broker-533", tmp_path / "used")
    apply_damage(damaged, case["ops"])
    fleet = [damaged, in_use, unpack("broker-533-rocksdb", tmp_path / "rocksdb"), tmp_path / "none"]
    fleet += [unpack("533-basic", tmp_path / f"{number}") for number in range(FLEET - len(fleet))]
    before = [tree_hash(root) for root in fleet if root.exists()]
    questions = [["verify", *fleet[FLEET // 2 :], *fleet[: FLEET // 2], "-o", "json"], ["verify", large, "-o", "json"]]
    with lock_held(in_use):
        of_fleet, of_large = cluster.run([["job", *words] for words in questions])
        here = [rmqctl(*words) for words in questions]
    assert [job.result.code for job in (of_fleet, of_large)] == [one.code for one in here] == [10, 0]
    assert [untimed(job.result) for job in (of_fleet, of_large)] == [untimed(one) for one in here]
    assert len(here[0].document()["reports"]) == FLEET
    assert here[1].document()["messages"] == MESSAGES
    assert [tree_hash(root) for root in fleet if root.exists()] == before
    sent = cluster.result_bytes(of_large.begin, of_large.end)
    assert len(sent) > 1
    assert sum(sent) < MESSAGES


MESSAGES, QUEUES = 30_000, 4


def with_keys(folder: Path, rmqctl: Rmqctl) -> Path:
    """A store whose messages have three keys each, with UNIQ_KEY. Spark itself adds 1.5 KB a task."""
    lines, root = folder / "lines.jsonl", folder / "large"
    with lines.open("w") as file:
        for number in range(MESSAGES):
            properties = {"UNIQ_KEY": f"{number:032X}", "KEYS": f"order-{number} user-{number % 1000}"}
            line = {"topic": "orders", "queueId": number % QUEUES, "body": "paid", "properties": properties}
            file.write(json.dumps(line) + "\n")
    assert rmqctl("append", root, "--create", "--profile", "4.9", "--from", lines).code == 0
    return root
