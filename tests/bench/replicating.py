"""`replicate` beside a real slave: both copy the same log from the same real master, one after the other."""

from __future__ import annotations

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
    """A row a version and a way to copy: whole commands of rmqctl, and a slave from its first bytes to its last."""
    rows = []
    for version in VERSIONS:
        folder = work / f"replicating-{version}"
        shutil.rmtree(folder, ignore_errors=True)
        with Cluster(version, folder, geometry=BROKER_GEOMETRY) as cluster:
            store = folder / "master" / "store"
            RealRocketMQ(version).put(store, MESSAGES, body_size=BODY_SIZE)
            master = cluster.start("master", 0, "ASYNC_MASTER")
            size = master.max_offset()
            copied = median(_copy_seconds(master, folder / "copy") for _ in range(runs))
            verified = median(_verify_seconds(master) for _ in range(runs))
            rate = _slave_rate(cluster, size)
        shutil.rmtree(folder)
        for what, found in (
            ("real slave, its log alone", rate),
            ("replicate --once: verified, queues and index", size / copied),
            ("replicate --verify-only", size / verified),
        ):
            rows.append([version, what, f"{size / found:.2f}", f"{found / 1e6:,.0f}", f"{found / rate:.1f}"])
    return rows


def _address(master: Broker) -> str:
    return f"{LOOPBACK}:{master.port}"


def _copy_seconds(master: Broker, copy: Path) -> float:
    shutil.rmtree(copy, ignore_errors=True)
    return run(["replicate", _address(master), str(copy), "--once", "--yes"], keep_output=False).seconds


def _verify_seconds(master: Broker) -> float:
    return run(["replicate", _address(master), "--verify-only"], keep_output=False).seconds


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
