"""`acquire` beside a real broker under load: each copy is one that a crash of the broker could have left."""

from __future__ import annotations

import threading
from pathlib import Path

import bagit
import pytest

from tests.conftest import Rmqctl
from tests.real_store.cluster import Cluster
from tests.real_store.harness import Geometry

pytestmark = pytest.mark.interop

GEOMETRY = Geometry(commitlog_file_size=1024 * 1024, queue_file_units=3000, index_slots=10000, index_entries=40000)
TIMES = 10  # of each version
# no unit, checkpoint or offset leads beyond the log, which was copied last
OF_A_CRASH = {"abort", "missing-unit", "index-missing", "checkpoint-behind"}


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_a_copy_under_load(version: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    ended, results, torn = threading.Event(), set[str](), 0
    with Cluster(version, tmp_path / "cluster", geometry=GEOMETRY) as cluster:
        master = cluster.start("master", 0, "ASYNC_MASTER", {})

        def load() -> None:
            while not ended.is_set():
                results.update(put.error or put.status for put in cluster.put(1000, body_size=700))

        loading = threading.Thread(target=load)
        loading.start()
        try:
            while master.max_offset() < 100_000:
                ended.wait(0.1)
            for number in range(TIMES):
                dest, stored = tmp_path / f"bag{number}", master.max_offset()
                result = rmqctl("acquire", master.store, dest, "-o", "json")
                changed = {row["path"].split("/", 2)[2] for row in result.document()["changed"]}
                assert result.code == (4 if changed else 0)
                torn += bool(changed)
                (copy,) = (dest / "data").iterdir()
                verified = rmqctl("verify", copy, "-o", "json").document()
                untold = [row for row in verified["findings"] if row["path"] not in changed]
                assert {row["code"] for row in untold} <= OF_A_CRASH, (untold, changed)
                assert verified["maxPhyOffset"] >= stored
                bagit.Bag(str(dest)).validate()
                assert rmqctl("attest", dest).code == 0
        finally:
            ended.set()
            loading.join()
    assert results == {"SEND_OK"}
    assert torn  # otherwise there was no load
