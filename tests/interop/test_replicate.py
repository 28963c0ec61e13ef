"""`replicate` from real masters: under load and killed again and again, what a real broker serves from the copy, and
what the copy does to the producer's results.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqctl.format.message import Damage
from rmqctl.remoting.client import RemotingClient
from rmqctl.store.config.fastjson import fastjson_loads
from rmqctl.store.ha.epoch_file import decode_epoch_file
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl, unpack
from tests.real_store.cluster import LOOPBACK, PATIENCE, Broker, Cluster, Put
from tests.real_store.harness import Geometry, RealRocketMQ
from tests.support.mirror_log import log_bytes

pytestmark = pytest.mark.interop

GEOMETRY = Geometry(commitlog_file_size=256 * 1024, queue_file_units=300, index_slots=1000, index_entries=4000)
UPDATE_BROKER_CONFIG = 25
NO_TIMERS = {"timerWheelEnable": "false"}  # as the golden stores are read elsewhere
# what ends a transaction is written soon, and nobody asks for the golden stores' open ones: the log comes to an end
TRANSACTIONS = {"transactionOpBatchInterval": "300", "transactionCheckInterval": "3600000"}
SOON_STORED = {"flushDelayOffsetInterval": "1000"}
KILLS, CHUNK = 7, 1000  # of each version, twenty and one in all; a chunk of messages for each kill
KINDS = 5  # of five chunks one is delayed by a second, and one is put in transactions
STATIC_TOPICS = "topicQueueMapping.json"
STATIC_TOPIC = {
    "topic": "static", "scope": "__global__", "bname": "broker-a", "totalQueues": 1, "epoch": 1700000000000,
    "dirty": False, "currIdMap": {}, "hostedQueues": {"0": [{
        "gen": 0, "queueId": 0, "bname": "broker-a", "logicOffset": 0, "startOffset": 0, "endOffset": -1,
        "timeOfStart": -1, "timeOfEnd": -1,
    }]},
}  # fmt: skip
MAPPINGS = {
    "dataVersion": {"counter": 7, "stateVersion": 0, "timestamp": 1700000000000},
    "topicQueueMappingInfoMap": {"static": STATIC_TOPIC},
}
COMPACTED_TOPIC = "cmpt"  # of broker-550
UNFINISHED = {"hole", "bytes-behind-end"}  # bytes after the end of the log, which no reader takes for a record
TWO_IN_SYNC, IMPATIENT = {"inSyncReplicas": "2"}, {"slaveTimeout": "1500"}
LATE = {"FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"}


def address(master: Broker) -> str:
    return f"{LOOPBACK}:{master.port}"


@contextmanager
def replicating(master: Broker, store: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A replicate that stays, and is killed in the end."""
    command = [sys.executable, "-m", "rmqctl", "replicate", address(master), str(store), "--yes", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def stays(process: subprocess.Popen[str]) -> None:
    assert process.poll() is None, process.communicate()[1]


def until_copied(master: Broker, store: Path, seconds: float = 120) -> None:
    """Wait until the copy has what the master has."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (store / "commitlog").exists():
            with_end = ReadOnlyStore(store).commit_log.end()[0]
            if with_end >= master.max_offset() > 0:
                return
        time.sleep(0.2)
    raise AssertionError(f"the copy ends at {ReadOnlyStore(store).commit_log.end()[0]} of {master.max_offset()}")


class Load(threading.Thread):
    """A producer that puts a chunk of messages for each `more`, some delayed or in transactions.

    `results` are statuses and errors.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._wanted = threading.Semaphore(0)
        self.results: set[str] = set()

    def more(self) -> None:
        self._wanted.release()

    def run(self) -> None:
        for number in range(KILLS):
            self._wanted.acquire()
            kind = number % KINDS
            puts = self._cluster.put(CHUNK, body_size=150, delay_level=int(kind == 0), in_transactions=kind == 1)
            self.results |= {put.error or put.status for put in puts}


@pytest.mark.parametrize(
    ("name", "version"), [("broker-497", "4.9.7"), ("broker-533", "5.3.3"), ("broker-550", "5.5.0")]
)
def test_a_copy_under_load_survives_kills(name: str, version: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    copy, rng = tmp_path / "copy", random.Random(name)
    with Cluster(version, tmp_path / "cluster", geometry=GEOMETRY) as cluster:
        original = unpack(name, tmp_path / "cluster" / "master")  # with groups, delays and transactions
        if version >= "5":
            (original / "config" / STATIC_TOPICS).write_text(json.dumps(MAPPINGS))
        master = cluster.start("master", 0, "ASYNC_MASTER", {**NO_TIMERS, **TRANSACTIONS, **SOON_STORED})
        load = Load(cluster)
        load.start()
        for _ in range(KILLS):
            load.more()
            with replicating(master, copy) as process:
                time.sleep(rng.uniform(0.5, 2.5))
                stays(process)
            no_torn_record_is_readable(copy)
        load.join()
        assert load.results == {"SEND_OK"}
        document = caught_up(master, copy, rmqctl)
        assert document["maxPhyOffset"] == master.max_offset()
        master.kill()
    assert log_bytes(copy) == log_bytes(original)
    if version >= "5":
        assert fastjson_loads((copy / "config" / STATIC_TOPICS).read_text()) == MAPPINGS
    # the copy has no compaction/, which a broker fills: a start of 5.5.0 after a clean stop serves nothing of the topic
    of_compacted = {"compaction-missing"} if version == "5.5.0" else set()
    assert {one["code"] for one in rmqctl("verify", copy, "-o", "json").document()["findings"]} == of_compacted
    a_real_broker_serves_the_copy(version, original, copy)


def no_torn_record_is_readable(copy: Path) -> None:
    if (copy / "commitlog").exists():
        damages = [item for item in ReadOnlyStore(copy).commit_log.scan() if isinstance(item, Damage)]
        assert {damage.code for damage in damages} <= UNFINISHED


def caught_up(master: Broker, copy: Path, rmqctl: Rmqctl) -> dict[str, Any]:
    """Copy once more until the delayed messages were delivered, nothing more came, and the master's offsets are on
    disk.
    """
    for _ in range(10):
        before = master.max_offset()
        found = rmqctl("replicate", address(master), copy, "--once", "--yes", "-o", "json")
        assert found.code == 0, found.err
        is_whole = found.document()["maxPhyOffset"] == before == master.max_offset()
        if is_whole and stored_offsets(copy) == stored_offsets(master.store):
            return found.document()
        time.sleep(1)
    raise AssertionError("the master's log or its offsets change on")


def stored_offsets(store: Path) -> list[Any]:
    names = ("consumerOffset.json", "delayOffset.json")
    return [fastjson_loads((store / "config" / name).read_text())["offsetTable"] for name in names]


def a_real_broker_serves_the_copy(version: str, original: Path, copy: Path) -> None:
    real = RealRocketMQ(version, timeout=300)
    expected, found = real.read_all([original, copy], key_messages=20, geometry=GEOMETRY)
    assert served(found["messages"]) == served(expected["messages"])
    assert without_times(served(found["queues"])) == without_times(served(expected["queues"]))
    offsets = fastjson_loads((copy / "config/consumerOffset.json").read_text())["offsetTable"]
    groups = sorted({key.partition("@")[2] for key in offsets})
    expected_rows, found_rows = (
        real.consumer_progress(store, groups, geometry=GEOMETRY, settings=NO_TIMERS) for store in (original, copy)
    )
    assert found_rows == expected_rows
    assert {row["group"] for row in found_rows} == set(groups)


def served(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without those of the compacted topic: 5.5.0 serves it from files that are not replicated."""
    return [row for row in rows if row["topic"] != COMPACTED_TOPIC]


def without_times(queues: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Queues without what 4.x finds by the times of files, which are those of the copy."""
    return [{key: value for key, value in queue.items() if key != "offsetByMidTimestamp"} for queue in queues]


@pytest.mark.parametrize(("version", "settings"), [("4.9.7", {}), ("5.3.3", TWO_IN_SYNC), ("5.5.0", TWO_IN_SYNC)])
def test_a_copy_never_turns_a_status_into_send_ok(version: str, settings: dict[str, str], tmp_path: Path) -> None:
    copy, other = tmp_path / "copy", tmp_path / "other"
    with Cluster(version, tmp_path / "cluster") as cluster:
        master = cluster.start("master", 0, "SYNC_MASTER", {**settings, **IMPATIENT})
        assert {put.status for put in cluster.put(3)} <= LATE
        for _ in range(2):  # new, and resumed
            with replicating(master, copy, "--allow-slow-puts"):
                until_copied(master, copy)
                puts = cluster.put(4)
                until_copied(master, copy)
                assert {put.status for put in puts} <= LATE
        with replicating(master, other, "--as-slave"):
            until_copied(master, other)
            assert {put.status for put in cluster.put(4)} == {"SEND_OK"}
        assert {put.status for put in cluster.put(2)} <= LATE


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_a_copy_follows_a_master_that_is_killed_and_started_again(version: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with Cluster(version, tmp_path / "cluster") as cluster:
        master = cluster.start("master", 0, "ASYNC_MASTER")
        assert {put.status for put in cluster.put(200)} == {"SEND_OK"}
        with replicating(master, copy) as process:
            until_copied(master, copy)
            master.stop()
            master.start()
            time.sleep(1)
            assert {put.status for put in cluster.put(200)} <= {"SEND_OK", "EXCEPTION"}
            until_copied(master, copy)
            stays(process)
        master.kill()
    end = ReadOnlyStore(copy).commit_log.end()[0]
    assert log_bytes(copy) == log_bytes(tmp_path / "cluster/master/store")[:end]


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_a_copy_is_a_learner_of_a_master_with_a_controller(version: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    copy = tmp_path / "copy"
    with Cluster(version, tmp_path / "cluster", controller=True) as cluster:
        master = cluster.start("master", -1, "SLAVE", {"allAckInSyncStateSet": "true"})
        assert {put.status for put in until_elected(cluster)} == {"SEND_OK"}
        for _ in range(2):
            with replicating(master, copy):
                until_copied(master, copy)
                assert {put.status for put in cluster.put(100)} == {"SEND_OK"}
                until_copied(master, copy)
        assert {put.status for put in cluster.put(20)} == {"SEND_OK"}
        nothing_counts_as_a_second_replica(cluster, master, copy)
        assert rmqctl("replicate", address(master), copy, "--once", "--yes", "--as-slave").code == 2
        assert rmqctl("replicate", address(master), copy, "--once", "--yes").code == 0
        assert rmqctl("replicate", address(master), "--verify-only").code == 0
        master.kill()
    original = tmp_path / "cluster/master/store"
    assert log_bytes(copy) == log_bytes(original)
    assert rmqctl("verify", copy, "-o", "json").document()["findings"] == []
    epochs = [(store / "epochFileCheckpoint").read_bytes() for store in (copy, original)]
    assert decode_epoch_file(epochs[0]) == decode_epoch_file(epochs[1])
    assert not (copy / "brokerIdentity").exists()


def nothing_counts_as_a_second_replica(cluster: Cluster, master: Broker, copy: Path) -> None:
    """Puts that need two replicas come to the same with a learner as without."""
    for settings, status in (
        ({"allAckInSyncStateSet": "false", **TWO_IN_SYNC, **IMPATIENT}, "FLUSH_SLAVE_TIMEOUT"),
        ({"minInSyncReplicas": "2"}, "EXCEPTION"),
    ):
        change_settings(master, settings)
        assert {put.status for put in cluster.put(2)} == {status}
        with replicating(master, copy) as process:
            until_copied(master, copy)
            assert {put.status for put in cluster.put(2)} == {status}
            until_copied(master, copy)
            stays(process)


def change_settings(broker: Broker, settings: dict[str, str]) -> None:
    body = "".join(f"{key}={value}\n" for key, value in settings.items()).encode()
    with RemotingClient(LOOPBACK, broker.port, timeout=PATIENCE) as client:
        client.invoke(UPDATE_BROKER_CONFIG, body=body)


def until_elected(cluster: Cluster) -> list[Put]:
    """Put until the controller has made the broker a master; what the last puts came to."""
    end = time.monotonic() + 60
    while (puts := cluster.put(20))[0].status != "SEND_OK" and time.monotonic() < end:
        time.sleep(1)
    return puts
