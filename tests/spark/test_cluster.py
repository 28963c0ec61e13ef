"""`rmqctl job` on a standalone cluster, which --master names: as here, also when an executor process is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Rmqctl, unpack
from tests.spark.conftest import without_seconds
from tests.support.spark_cluster import Cluster
from tests.support.spark_process import ended

pytestmark = pytest.mark.spark


def test_verify_when_an_executor_is_killed(cluster: Cluster, tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = unpack("broker-533", tmp_path)
    here = rmqctl("verify", root, "-o", "json")
    job = cluster.start("job", "verify", root, "--master", cluster.url, "-o", "json")
    cluster.kill_an_executor_at_work(job)
    there = ended(job)
    assert there.code == here.code == 0
    assert without_seconds(there.document()) == without_seconds(here.document())
    assert "SparkListenerExecutorRemoved" in {event["Event"] for event in cluster.jobs_events()}
