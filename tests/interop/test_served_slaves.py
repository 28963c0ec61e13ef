"""Real slaves of an offline store: they catch up, take the configuration, and serve everything once promoted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqctl.store.config.fastjson import fastjson_loads
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import tree_hash
from tests.real_store.cluster import LOOPBACK, SETTINGS, Broker, Cluster
from tests.real_store.harness import Geometry, RealRocketMQ
from tests.support.group_offsets import add_offsets
from tests.support.mirror_log import log_file_bytes

pytestmark = pytest.mark.interop

GEOMETRY = Geometry(commitlog_file_size=256 * 1024, queue_file_units=300, index_slots=1000, index_entries=4000)
TABLES = {
    "topics.json": "topicConfigTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    "consumerOffset.json": "offsetTable",
    "delayOffset.json": "offsetTable",
}
STORES = [("broker-497", "4.9.7"), ("broker-533", "5.3.3"), ("broker-550", "5.5.0"), ("broker-497", "4.7.1")]
TOPIC = "orders"
ANSWER_SECONDS = 60
CONNECT_SECONDS = 20  # a slave of 4.9 connects after 5 s, and reports after 5 more
STORE_TIME_END = 64  # in a record with IPv4 hosts; no checksum covers the store time
HALF = 40  # messages of each queue that the group has consumed


class Serving:
    """A running `rmqctl serve`."""

    def __init__(self, process: subprocess.Popen[str], ports: dict[str, Any]) -> None:
        self.process = process
        self.ports = ports

    @property
    def name_server(self) -> str:
        return f"{LOOPBACK}:{self.ports['namesrv']}"

    def end(self) -> tuple[str, str]:
        """Wait for the end: stdout and stderr."""
        return self.process.communicate(timeout=120)

    def stop(self) -> str:
        """End it: stderr."""
        self.process.terminate()
        return self.end()[1]


@contextmanager
def serving(store: Path, *words: str) -> Iterator[Serving]:
    command = [sys.executable, "-m", "rmqctl", "serve", str(store), "-o", "json", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Serving(process, json.loads(process.stdout.readline()))
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.parametrize(("name", "version"), STORES)
def test_two_fresh_slaves_get_everything_and_serve_it_once_promoted(
    name: str, version: str, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    store = golden(name)
    ends = {key[1]: queue.max_offset for key, queue in ReadOnlyStore(store).queues.items() if key[0] == TOPIC}
    add_offsets(store, {f"{TOPIC}@halfway": {str(queue): HALF for queue in ends}})
    before = tree_hash(store)
    with (
        serving(store, "--until-synced", "2") as served,
        Cluster(version, tmp_path / "slaves", geometry=GEOMETRY, name_server=served.name_server) as cluster,
    ):
        slaves = [cluster.start(f"slave-{number}", number, "SLAVE") for number in (1, 2)]
        out, err = served.end()
        assert served.process.returncode == 0, err
        assert len(json.loads(out)["slaves"]) == 2
        for slave in slaves:
            slave.stop()
    assert tree_hash(store) == before
    end = served.ports["maxPhyOffset"]
    assert len(list((store / "commitlog").iterdir())) > 2
    for slave in slaves:
        assert log_file_bytes(slave.store)[:end] == log_file_bytes(store)[:end]
        the_configuration_is_there(store, slave.store)
    promoted_slave_goes_on(version, slaves[0].store, ends)


def the_configuration_is_there(master: Path, slave: Path) -> None:
    for name, key in TABLES.items():
        ours, theirs = (fastjson_loads((root / "config" / name).read_text())[key] for root in (master, slave))
        assert ours.keys() <= theirs.keys(), name
        if key == "offsetTable":
            assert {owner: theirs[owner] for owner in ours} == ours, name


def promoted_slave_goes_on(version: str, store: Path, ends: dict[int, int]) -> None:
    """A master on the slave's store has every message for a new group, and the group goes on where it was."""
    left = {queue: end - HALF for queue, end in ends.items()}
    consumers = [("fresh", TOPIC, sum(ends.values())), ("halfway", TOPIC, sum(left.values()))]
    settings = {"mappedFileSizeTimerLog": SETTINGS["mappedFileSizeTimerLog"]}
    rows = RealRocketMQ(version, timeout=200).consume(store, consumers, geometry=GEOMETRY, settings=settings)
    got = {(row["group"], row["queueId"]): row["offsets"] for row in rows}
    for queue, end in ends.items():
        assert sorted(got["fresh", queue]) == list(range(end))
        assert sorted(got["halfway", queue]) == list(range(HALF, end))


def answers_of(brokers: list[Broker]) -> list[int]:
    """The ends of their logs; on a busy machine, a broker needs longer until it answers."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while -1 in (ends := [broker.max_offset() for broker in brokers]) and time.monotonic() < deadline:
        time.sleep(1)
    return ends


@pytest.mark.parametrize(("name", "version"), STORES[:2])
def test_slaves_with_another_log_or_file_size_are_refused(
    name: str, version: str, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """One slave is ahead, one has another log of the same length, and two have files of another size."""
    store = golden(name)
    end = ReadOnlyStore(store).commit_log.end()[0]
    shorter = tmp_path / "shorter"
    shutil.copytree(store, shorter)
    last = max((shorter / "commitlog").iterdir())
    last.unlink()
    with serving(shorter) as served:
        with Cluster(version, tmp_path / "slaves", geometry=GEOMETRY, name_server=served.name_server) as cluster:
            shutil.copytree(store, tmp_path / "slaves" / "ahead" / "store")
            diverged = tmp_path / "slaves" / "diverged" / "store"
            shutil.copytree(shorter, diverged)
            change_last_store_time(diverged)
            cluster.start("ahead", 1, "SLAVE")
            cluster.start("diverged", 2, "SLAVE")
            for number, size in enumerate((64 * 1024, 1024 * 1024), 3):
                geometry = GEOMETRY._replace(commitlog_file_size=size)
                cluster.start(f"size-{size}", number, "SLAVE", geometry=geometry)
            time.sleep(CONNECT_SECONDS)
            ahead, *sizes = answers_of([cluster.brokers[name] for name in ("ahead", "size-65536", "size-1048576")])
        told = served.stop().splitlines()
    assert (ahead, sizes) == (end, [0, 0])
    refused = [line for line in told if line.startswith("refused: ")]
    assert sum("it is ahead, or another log" in line for line in refused) == 1
    assert sum("its log differs from ours before" in line for line in refused) == 1
    assert sum("its mappedFileSizeCommitLog is" in line for line in refused) == 2


def change_last_store_time(store: Path) -> None:
    """Make the last message another one, that a broker takes for good."""
    log = ReadOnlyStore(store).commit_log
    _, last = log.end()
    assert last is not None
    file = log.queue.find(last.physical_offset)
    assert file is not None
    with file.path.open("r+b") as opened:
        opened.seek(last.physical_offset - file.file_from_offset + STORE_TIME_END - 1)
        byte = opened.read(1)[0]
        opened.seek(-1, os.SEEK_CUR)
        opened.write(bytes([byte ^ 1]))
