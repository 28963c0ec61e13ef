"""`rmqctl job export` by executors that are processes of their own, when a driver is killed, or an executor: the folder
has the earlier files or the new ones, each message once, and the next run removes the rest.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from rmqctl.spark.question.export.earlier_files import MANIFEST
from rmqctl.spark.question.export.remote_target import ABANDONED_SECONDS
from tests.conftest import Rmqctl, unpack
from tests.support.spark_cluster import Cluster
from tests.support.spark_process import ended

pytestmark = pytest.mark.spark

EARLIER = {"physicalOffset": -1}


def offsets(target: Path) -> list[int]:
    """The physical offsets of the messages that a reader of all files sees; of `_MANIFEST`, if it is there."""
    paths = sorted(target.glob("part-*.json"))
    if (target / MANIFEST).exists():
        assert [target / file["path"] for file in json.loads((target / MANIFEST).read_text())["files"]] == paths
    return sorted(json.loads(line)["physicalOffset"] for path in paths for line in path.read_text().splitlines())


def leftovers(target: Path) -> list[Path]:
    return [*target.glob("_rmqctl-*"), *target.parent.glob(f".{target.name}.*")]


def is_silent_for_long(target: Path) -> None:
    for path in target.glob("_rmqctl-*/**/*"):
        os.utime(path, (time.time() - ABANDONED_SECONDS - 1,) * 2)


@pytest.mark.parametrize("place", ["{}", "fsspec+local://{}"], ids=["path", "url"])
def test_a_driver_is_killed_and_then_an_executor(place: str, cluster: Cluster, tmp_path: Path, rmqctl: Rmqctl) -> None:
    root, target = unpack("broker-533", tmp_path), tmp_path / "out"
    wanted = sorted(row["physicalOffset"] for row in rmqctl("dump", root, "-o", "jsonl").rows())
    target.mkdir()
    (target / "part-0.json").write_text(json.dumps(EARLIER) + "\n")
    words = ["job", "export", root, "--to", place.format(target), "--format", "jsonl", "--master", cluster.url]

    killed = cluster.start(*words, "--mode", "overwrite")
    cluster.kill_an_executor_at_work(killed)
    killed.kill()
    killed.communicate()
    assert offsets(target) == [EARLIER["physicalOffset"]]
    assert len(leftovers(target)) == 1

    is_silent_for_long(target)
    job = cluster.start(*words, "--mode", "overwrite")
    cluster.kill_an_executor_at_work(job)
    done = ended(job)
    assert done.code == 0, done.err
    assert "removed, a killed export had left it" in done.err
    assert "SparkListenerExecutorRemoved" in {event["Event"] for event in cluster.jobs_events()}
    assert (offsets(target), leftovers(target)) == (wanted, [])
