"""`rmqctl job` on a standalone cluster, which --master names: as here, also when an executor process is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Rmqctl, apply_damage, damage_cases, tree_hash, unpack
from tests.spark.conftest import without_seconds
from tests.support.lock_holder import lock_held
from tests.support.spark_cluster import Cluster
from tests.support.spark_process import ended

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("stores", [1, 6])
def test_verify_when_an_executor_is_killed(stores: int, cluster: Cluster, tmp_path: Path, rmqctl: Rmqctl) -> None:
    roots = [unpack("broker-533", tmp_path / str(number)) for number in range(stores)]
    here = rmqctl("verify", *roots, "-o", "json")
    job = cluster.start("job", "verify", *roots, "--master", cluster.url, "-o", "json")
    cluster.kill_an_executor_at_work(job)
    there = ended(job)
    assert there.code == here.code == 0
    documents = [there.document(), here.document()]
    reports = [[without_seconds(report) for report in one.pop("reports", [])] for one in documents]
    assert reports[0] == reports[1]
    assert without_seconds(documents[0]) == without_seconds(documents[1])
    assert "SparkListenerExecutorRemoved" in {event["Event"] for event in cluster.jobs_events()}


FLEET = 40


def test_a_fleet_gets_the_reports_of_verify(cluster: Cluster, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """One store is damaged, one is open in a broker, one keeps its queues in RocksDB, and one does not exist."""
    case = damage_cases()["497-basic--body-flip-first-abnormal"]
    damaged, in_use = unpack(case["base"], tmp_path / "damaged"), unpack("broker-533", tmp_path / "used")
    apply_damage(damaged, case["ops"])
    fleet = [damaged, in_use, unpack("broker-533-rocksdb", tmp_path / "rocksdb"), tmp_path / "none"]
    fleet += [unpack("533-basic", tmp_path / f"{number}") for number in range(FLEET - len(fleet))]
    before = [tree_hash(root) for root in fleet if root.exists()]
    words = ["verify", *fleet[FLEET // 2 :], *fleet[: FLEET // 2], "-o", "json"]
    with lock_held(in_use):
        (job,) = cluster.run([["job", *words]])
        here = rmqctl(*words)
    documents = [job.result.document(), here.document()]
    assert job.result.code == here.code == 13
    assert len(documents[0]["reports"]) == FLEET
    for document in documents:
        document["reports"] = [without_seconds(report) for report in document["reports"]]
    assert documents[0] == documents[1]
    assert [tree_hash(root) for root in fleet if root.exists()] == before


MESSAGES, QUEUES = 60_000, 4


def test_the_driver_of_verify_gets_less_than_a_byte_a_message(cluster: Cluster, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Each message has three keys, with UNIQ_KEY. Spark itself adds 1.5 KB a task."""
    lines, root = tmp_path / "lines.jsonl", tmp_path / "store"
    with lines.open("w") as file:
        for number in range(MESSAGES):
            properties = {"UNIQ_KEY": f"{number:032X}", "KEYS": f"order-{number} user-{number % 1000}"}
            line = {"topic": "orders", "queueId": number % QUEUES, "body": "paid", "properties": properties}
            file.write(json.dumps(line) + "\n")
    assert rmqctl("append", root, "--create", "--profile", "4.9", "--from", lines).code == 0
    words = ["verify", root, "-o", "json"]
    (job,) = cluster.run([["job", *words]])
    sent = cluster.result_bytes(job.begin, job.end)
    assert len(sent) > 1
    assert sum(sent) < MESSAGES
    assert job.result.document()["messages"] == MESSAGES
    assert without_seconds(job.result.document()) == without_seconds(rmqctl(*words).document())
