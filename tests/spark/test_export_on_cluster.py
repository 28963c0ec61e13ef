"""`rmqctl job export` and `job sql --to` by executors that are processes of their own, when a driver is killed, or an
executor: the folder has the earlier files or the new ones, each message once, and the next run removes the rest.
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
# a row needs 1 ms, so that a task can be killed that has written a part of its file
QUERY = "SELECT physicalOffset, reflect('java.lang.Thread', 'sleep', 1L) AS slept FROM messages"


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


@pytest.mark.parametrize(
    ("job", "place"),
    [(["export"], "{}"), (["export"], "fsspec+local://{}"), (["sql", QUERY], "{}")],
    ids=["export-path", "export-url", "sql"],
)
def test_a_driver_is_killed_and_then_an_executor(
    job: list[str], place: str, cluster: Cluster, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    root, target = unpack("broker-533", tmp_path), tmp_path / "out"
    wanted = sorted(row["physicalOffset"] for row in rmqctl("dump", root, "-o", "jsonl").rows())
    target.mkdir()
    (target / "part-0.json").write_text(json.dumps(EARLIER) + "\n")
    to = ["--to", place.format(target), "--format", "jsonl", "--mode", "overwrite"]
    words = ["job", *job, root, *to, "--master", cluster.url, "-o", "json"]
    writes = tmp_path if "sql" in job else None  # the executors of `export` write by Python

    killed = cluster.start(*words)
    cluster.kill_an_executor_at_work(killed, writes)
    killed.kill()
    killed.communicate()
    assert offsets(target) == [EARLIER["physicalOffset"]]
    assert len(leftovers(target)) == 1

    is_silent_for_long(target)
    again = cluster.start(*words)
    cluster.kill_an_executor_at_work(again, writes)
    done = ended(again)
    assert done.code == 0, done.err
    document = done.document()
    assert document.get("scanned", document)["messages"] == len(wanted)
    assert "removed, a killed export had left it" in done.err
    assert cluster.lost_tasks() > 0
    assert (offsets(target), leftovers(target)) == (wanted, [])
