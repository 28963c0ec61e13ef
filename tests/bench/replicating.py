"""`replicate` beside a real slave: both copy the same log from the same real master, one after the other."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from statistics import median

from tests.bench.command import run
from tests.real_store.cluster import LOOPBACK, Broker, Cluster
from tests.real_store.harness import BROKER_GEOMETRY, RealRocketMQ

REPLICATING_HEADINGS = ("master", "copy of 0.8 GB, 1 KiB bodies", "seconds", "MB/s", "x real slave")
VERSIONS = ("4.9.7", "5.3.3")
MESSAGES, BODY_SIZE = 700_000, 1024  # one file of the log: a new slave gets only a master's last one
POLL_SECONDS = 0.02


def replicating_rows(work: Path, runs: int) -> list[list[str]]:
    """A row a version and a way to copy; a slave is measured from its first bytes to its last."""
    rows = []
    for version in VERSIONS:
        folder = work / f"replicating-{version}"
        shutil.rmtree(folder, ignore_errors=True)
        with Cluster(version, folder, geometry=BROKER_GEOMETRY) as cluster:
            store = folder / "master" / "store"
            RealRocketMQ(version).put(store, MESSAGES, body_size=BODY_SIZE)
            master = cluster.start("master", 0, "ASYNC_MASTER")
            size = master.max_offset()
            copied = [_copy(master, folder / "copy") for _ in range(runs)]
            verified = [_verify(master) for _ in range(runs)]
            rate = _slave_rate(cluster, size)
        shutil.rmtree(folder)
        for what, found in (
            ("real slave, its log alone", rate),
            ("replicate --once: verified, queues and index", size / median(own for own, _ in copied)),
            ("replicate --once, whole command", size / median(whole for _, whole in copied)),
            ("replicate --verify-only", size / median(own for own, _ in verified)),
            ("replicate --verify-only, whole command", size / median(whole for _, whole in verified)),
        ):
            rows.append([version, what, f"{size / found:.2f}", f"{found / 1e6:,.0f}", f"{found / rate:.1f}"])
    return rows


def _address(master: Broker) -> str:
    return f"{LOOPBACK}:{master.port}"


def _copy(master: Broker, copy: Path) -> tuple[float, float]:
    """The seconds of the pull alone, and of the whole command."""
    shutil.rmtree(copy, ignore_errors=True)
    return _seconds(["replicate", _address(master), str(copy), "--once", "--yes", "-o", "json"])


def _verify(master: Broker) -> tuple[float, float]:
    return _seconds(["replicate", _address(master), "--verify-only", "-o", "json"])


def _seconds(command: list[str]) -> tuple[float, float]:
    found = run(command)
    return float(json.loads(found.out)["seconds"]), found.seconds


def _slave_rate(cluster: Cluster, size: int) -> float:
    """The bytes a second of a new slave, from the first bytes that it has to the last."""
    slave = cluster.start("slave", 1, "SLAVE")
    began, first, offset = 0.0, 0, 0
    while offset < size:
        offset = slave.max_offset()
        if offset > 0 and not began:
            began, first = time.perf_counter(), offset
        time.sleep(POLL_SECONDS)
    return (size - first) / (time.perf_counter() - began)
