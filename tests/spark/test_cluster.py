"""`rmqctl job` on a standalone cluster, which --master names: as here, also when an executor process is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Rmqctl, unpack
from tests.spark.conftest import without_seconds
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
