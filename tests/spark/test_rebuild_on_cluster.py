"""`rmqctl job rebuild` by executors that are processes of their own, when one is killed, or the driver is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import Rmqctl, unpack
from tests.support.journaled_store import files_of
from tests.support.spark_cluster import Cluster
from tests.support.spark_process import ended

pytestmark = pytest.mark.spark


def without_queues(name: str, folder: Path) -> tuple[Path, Path]:
    """A store whose queues and index are gone, and a copy."""
    root = unpack(name, folder)
    for part in ("consumequeue", "index"):
        shutil.rmtree(root / part)
    return root, Path(shutil.copytree(root, folder / "copy"))


def test_an_executor_is_killed(cluster: Cluster, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Its tasks are done again by another."""
    root, copy = without_queues("broker-533", tmp_path)
    assert rmqctl("rebuild", copy, "all", "--yes", "--profile", "5.3").code == 3
    job = cluster.start("job", "rebuild", root, "--master", cluster.url, "--yes", "--profile", "5.3")
    cluster.kill_an_executor_at_work(job)
    assert ended(job).code == 3
    assert files_of(root) == files_of(copy)
    assert "SparkListenerExecutorRemoved" in {event["Event"] for event in cluster.jobs_events()}


def test_the_driver_is_killed(cluster: Cluster, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """The store is as it was, and can be rebuilt."""
    root, copy = without_queues("broker-497", tmp_path)
    assert rmqctl("rebuild", copy, "all", "--yes").code == 3
    before = files_of(root)
    job = cluster.start("job", "rebuild", root, "--master", cluster.url, "--yes")
    cluster.kill_an_executor_at_work(job)
    job.kill()
    job.communicate()
    assert files_of(root) == before
    assert rmqctl("rebuild", root, "all", "--yes").code == 3
    assert files_of(root) == files_of(copy)
