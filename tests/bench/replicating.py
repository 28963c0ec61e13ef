"""`replicate` beside real slaves: they take turns to copy the same log from the same real master."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.bench.command import run
from tests.real_store.cluster import LOOPBACK, Broker, Cluster
from tests.real_store.harness import BROKER_GEOMETRY, RealRocketMQ

REPLICATING_HEADINGS = ("master", "copy of 0.8 GB, 1 KiB bodies", "seconds", "MB/s", "x real slave", "CPU seconds")
VERSIONS = ("4.9.7", "5.3.3")
MESSAGES, BODY_SIZE = 700_000, 1024  # one file of the log: a new slave gets only a master's last one
POLL_SECONDS = 0.02


class Copied(NamedTuple):
    """Seconds of the log alone and of the whole command; CPU seconds of the whole command, or of the slave's copying.

    A slave has no whole command here: its JVM, and what it does before the first bytes, are not measured.
    """

    seconds: float
    whole: float
    cpu: float


def replicating_rows(work: Path, runs: int) -> list[list[str]]:
    """A row a version and a way to copy. The ways take turns: a busy moment of the machine meets all of them."""
    rows = []
    for version in VERSIONS:
        folder = work / f"replicating-{version}"
        shutil.rmtree(folder, ignore_errors=True)
        with Cluster(version, folder, geometry=BROKER_GEOMETRY) as cluster:
            RealRocketMQ(version, timed=True).put(folder / "master" / "store", MESSAGES, body_size=BODY_SIZE)
            master = cluster.start("master", 0, "ASYNC_MASTER")
            size = master.max_offset()
            _verify(master)  # the master's code is compiled by now
            rounds = [(_slave(cluster, size), _copy(master, folder / "copy"), _verify(master)) for _ in range(runs)]
        shutil.rmtree(folder)
        slave, copy, verify = (
            Copied(*(median(values) for values in zip(*way, strict=True))) for way in zip(*rounds, strict=True)
        )
        for what, seconds, cpu in (
            ("real slave, its log alone", slave.seconds, slave.cpu),
            ("replicate --once: verified, queues and index", copy.seconds, None),
            ("replicate --once, whole command", copy.whole, copy.cpu),
            ("replicate --verify-only", verify.seconds, None),
            ("replicate --verify-only, whole command", verify.whole, verify.cpu),
        ):
            speed = f"{size / seconds / 1e6:,.0f}"
            ratio = f"{slave.seconds / seconds:.1f}"
            rows.append([version, what, f"{seconds:.2f}", speed, ratio, "" if cpu is None else f"{cpu:.2f}"])
    return rows


def _copy(master: Broker, copy: Path) -> Copied:
    shutil.rmtree(copy, ignore_errors=True)
    return _replicated(["replicate", _address(master), str(copy), "--once", "--yes", "-o", "json"])


def _verify(master: Broker) -> Copied:
    return _replicated(["replicate", _address(master), "--verify-only", "-o", "json"])


def _address(master: Broker) -> str:
    return f"{LOOPBACK}:{master.port}"


def _replicated(command: list[str]) -> Copied:
    found = run(command)
    return Copied(float(json.loads(found.out)["seconds"]), found.seconds, found.cpu)


def _slave(cluster: Cluster, size: int) -> Copied:
    """Measure a new slave from the first bytes that it has to the last, as if all `size` bytes came so fast."""
    shutil.rmtree(cluster.folder / "slave", ignore_errors=True)
    slave = cluster.start("slave", 1, "SLAVE")
    while (first := slave.max_offset()) <= 0:
        time.sleep(POLL_SECONDS)
    began, cpu_before = time.perf_counter(), _cpu_seconds(slave)
    while slave.max_offset() < size:
        time.sleep(POLL_SECONDS)
    seconds, cpu = time.perf_counter() - began, _cpu_seconds(slave) - cpu_before
    slave.kill()
    return Copied(seconds * size / (size - first), 0.0, cpu)


def _cpu_seconds(broker: Broker) -> float:
    """CPU seconds of a broker so far."""
    after_name = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")
