"""The engine as SYNC_MASTER beside the real one: the same play with the same slaves, and the same statuses.

The play has real slaves (one, late, stopped, dying, back again) and connections that a test makes (mute, a mirror that
never says more than 1).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from rmqctl.format.encode import MessageExtBrokerInner
from rmqctl.format.profile import PROFILE_4_7, PROFILE_4_9, PROFILE_5_3, PROFILE_5_4
from rmqctl.store.config.broker_conf import read_broker_conf
from rmqctl.store.config.file_sizes import geometry_of_conf
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.engine.store_services import StoreServices
from rmqctl.store.write.commit_log_writer import put_settings
from rmqctl.store.write.put_message import PutMessageStatus
from tests.real_store.cluster import SMALL, Broker, Cluster
from tests.real_store.harness import RealRocketMQ
from tests.support.expiring_store import log_files
from tests.support.ha_slave import ReportingSlave
from tests.support.master_name_server import naming
from tests.support.small_store import BORN, STORE, findings

pytestmark = pytest.mark.interop

SEND_STATUS = {
    PutMessageStatus.PUT_OK: "SEND_OK",
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
    PutMessageStatus.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
    PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: "EXCEPTION",
}
OK, NONE, LATE, REFUSED = "SEND_OK", "SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT", "EXCEPTION"
TWO = {"inSyncReplicas": "2"}
ACTING = {**TWO, "enableSlaveActingMaster": "true"}
PROFILES = {"4.7.1": PROFILE_4_7, "4.9.7": PROFILE_4_9, "5.3.3": PROFILE_5_3, "5.5.0": PROFILE_5_4}


class Master(Protocol):
    """A master in the play."""

    ha_port: int

    def put(self, count: int) -> list[str]:
        """Put messages one after another; the status of each."""

    def max_offset(self) -> int:
        """The end of the log."""

    def start_slave(self) -> Broker:
        """Start a real slave with an empty store."""


class RealMaster:
    def __init__(self, cluster: Cluster, settings: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._master = cluster.start("master", 0, "SYNC_MASTER", settings)
        self.ha_port = self._master.ha_port

    def put(self, count: int) -> list[str]:
        return [put.status for put in self._cluster.put(count)]

    def max_offset(self) -> int:
        return self._master.max_offset()

    def start_slave(self) -> Broker:
        return self._cluster.start("slave", 1, "SLAVE")


class OurMaster:
    def __init__(self, services: StoreServices, cluster: Cluster) -> None:
        assert services.master is not None
        self._services = services
        self._cluster = cluster
        self.ha_port = services.master.service.port

    def put(self, count: int) -> list[str]:
        message = MessageExtBrokerInner("orders", b"x" * 200, {"TAGS": "a"}, BORN, STORE, int(time.time() * 1000), 0)
        return [SEND_STATUS[self._services.put_message(message).status] for _ in range(count)]

    def max_offset(self) -> int:
        return self._services._store.max_phy_offset

    def start_slave(self) -> Broker:
        return self._cluster.start("slave", 1, "SLAVE")


@contextmanager
def our_store(version: str, settings: Mapping[str, str], folder: Path) -> Iterator[StoreServices]:
    folder.mkdir()
    conf_file = folder / "broker.conf"
    lines = {"brokerRole": "SYNC_MASTER", "haListenPort": "0", **SMALL.broker_conf(), **settings}
    conf_file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    conf = read_broker_conf(conf_file)
    rules = put_settings(conf, PROFILES[version])
    with StoreServices(MessageStore.create(folder / "store", rules, geometry_of_conf(conf), conf)) as services:
        yield services
    assert findings(folder / "store") == []


@contextmanager
def our_master(version: str, settings: Mapping[str, str], folder: Path) -> Iterator[OurMaster]:
    with our_store(version, settings, folder) as services:
        assert services.master is not None
        with (
            naming(services.master.service.port) as name_server,
            Cluster(version, folder / "slave", name_server=name_server) as cluster,
        ):
            yield OurMaster(services, cluster)


def until(what: str, check: Callable[[], bool], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def caught_up(master: Master, slave: Broker) -> None:
    until("the slave has all", lambda: slave.max_offset() == master.max_offset())
    time.sleep(0.5)  # its last report


@contextmanager
def mirror(master: Master) -> Iterator[None]:
    """A connection that reports 1 again and again."""
    stop = threading.Event()
    with ReportingSlave(master.ha_port) as passive:

        def report() -> None:
            while not stop.wait(0.2):
                passive.report(1)

        thread = threading.Thread(target=report)
        thread.start()
        time.sleep(0.6)
        try:
            yield
        finally:
            stop.set()
            thread.join()
    time.sleep(0.5)


def without_slave(master: Master) -> dict[str, list[str]]:
    """The part of the play that needs no real slave."""
    seen = {"none": master.put(2)}
    with ReportingSlave(master.ha_port):
        time.sleep(0.5)
        seen["mute"] = master.put(1)
    time.sleep(0.5)
    seen["mute one gone"] = master.put(1)
    with mirror(master):
        seen["mirror"] = master.put(1)
    seen["mirror gone"] = master.put(1)
    return seen


def play(master: Master) -> dict[str, list[str]]:
    """All of the play: the statuses of each scene."""
    seen = without_slave(master)
    slave = master.start_slave()
    caught_up(master, slave)
    seen["late"] = master.put(20)
    with mirror(master):
        seen["late, with a mirror"] = master.put(5)
    stop(slave)
    seen["stopped"] = master.put(1)
    os.kill(slave.pid, signal.SIGCONT)
    caught_up(master, slave)
    seen["goes on"] = master.put(5)
    stop(slave)
    death = threading.Timer(1, slave.kill)
    death.start()
    seen["dying"] = master.put(1)
    death.join()
    time.sleep(0.5)
    seen["dead"] = master.put(2)
    slave.start()
    caught_up(master, slave)
    seen["back"] = master.put(5)
    caught_up(master, slave)
    return seen


def stop(slave: Broker) -> None:
    """Stop a slave, and wait until none of its threads runs: on a busy machine one may still acknowledge a put."""
    os.kill(slave.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, slave.pid, os.WSTOPPED)


def scenes(none: str, mute: str, dead: str) -> dict[str, list[str]]:
    """What a play must have seen: it does not pass where both masters are wrong in the same way."""
    alone = {"none": 2, "mute one gone": 1, "mirror gone": 1, "dead": 2}
    slow = ("mute", "mirror", "stopped", "dying")
    found = {scene: [none] * count for scene, count in alone.items()} | {scene: [mute] for scene in slow}
    found["dead"] = [dead] * 2
    return found | {"late": [OK] * 20, "late, with a mirror": [OK] * 5, "goes on": [OK] * 5, "back": [OK] * 5}


@pytest.mark.parametrize(
    ("version", "settings", "expected"),
    [
        ("4.9.7", {}, scenes(NONE, LATE, NONE)),
        ("5.3.3", {}, scenes(OK, OK, OK)),
        ("5.3.3", TWO, scenes(LATE, LATE, LATE)),
        ("5.5.0", TWO, scenes(LATE, LATE, LATE)),
    ],
    ids=["4.9.7", "5.3.3", "5.3.3-two", "5.5.0-two"],
)
def test_the_same_play_has_the_same_statuses(
    version: str, settings: Mapping[str, str], expected: dict[str, list[str]], tmp_path: Path
) -> None:
    with Cluster(version, tmp_path / "real") as cluster:
        real = play(RealMaster(cluster, settings))
    with our_master(version, settings, tmp_path / "ours") as master:
        ours = play(master)
        assert ours == real == expected
        slave_log = b"".join(file.read_bytes() for file in log_files(tmp_path / "ours" / "slave" / "slave" / "store"))
        our_log = b"".join(file.read_bytes() for file in log_files(tmp_path / "ours" / "store"))
        assert slave_log[: master.max_offset()] == our_log[: master.max_offset()]


@pytest.mark.parametrize(
    ("more", "status"), [({}, REFUSED), ({"enableAutoInSyncReplicas": "true"}, OK)], ids=["all", "auto"]
)
def test_replicas_are_counted_before_a_put(more: Mapping[str, str], status: str, tmp_path: Path) -> None:
    settings = {**ACTING, **more}
    with Cluster("5.3.3", tmp_path / "real") as cluster:
        real = without_slave(RealMaster(cluster, settings))
    with our_master("5.3.3", settings, tmp_path / "ours") as master:
        assert without_slave(master) == real
        assert {found for scene in real.values() for found in scene} == {status}
        assert (master.max_offset() == 0) == (status == REFUSED)


def test_one_report_beyond_the_end_poisons_the_real_master_and_not_ours(tmp_path: Path) -> None:
    def lie(master: Master) -> list[str]:
        master.put(1)
        with ReportingSlave(master.ha_port) as liar:
            liar.report(master.max_offset() + 1000)
            time.sleep(0.5)
            return master.put(2)

    with Cluster("4.9.7", tmp_path / "real") as cluster:
        assert lie(RealMaster(cluster, {})) == [OK] * 2
    with our_master("4.9.7", {}, tmp_path / "ours") as master:
        assert lie(master) == [LATE] * 2


@pytest.mark.parametrize(
    ("version", "settings", "alone"),
    [
        ("4.7.1", {}, "SLAVE_NOT_AVAILABLE"),
        ("4.9.7", {"flushDiskType": "SYNC_FLUSH"}, "SLAVE_NOT_AVAILABLE"),
        ("5.3.3", {**TWO, "slaveTimeout": "300"}, "FLUSH_SLAVE_TIMEOUT"),
    ],
    ids=["4.7.1", "4.9.7", "5.3.3"],
)
def test_which_messages_wait(version: str, settings: Mapping[str, str], alone: str, tmp_path: Path) -> None:
    """Without any slave, at the real store itself: the property WAIT, delayed messages and those of transactions."""
    kinds: list[tuple[int, dict[str, str]]] = [(0, {"WAIT": wait}) for wait in ("false", "true", "FALSE", "TRUE", "no")]
    kinds += [(flag, {}) for flag in (0, 4, 8, 12)] + [(0, {"DELAY": "1"}), (0, {"DELAY": "1", "WAIT": "false"})]
    lines = [{"topic": "orders", "sysFlag": flag, "body": "x", "properties": found} for flag, found in kinds]
    conf = {"brokerRole": "SYNC_MASTER", **settings}
    real = RealRocketMQ(version).put_lines(tmp_path / "real", lines, geometry=SMALL, settings=conf)
    with our_store(version, settings, tmp_path / "ours") as services:
        ours = [
            services.put_message(
                MessageExtBrokerInner("orders", b"x", found, BORN, STORE, 1_795_252_516_000, sys_flag=flag)
            )
            for flag, found in kinds
        ]
    assert [result.status.value for result in ours] == real
    assert real.count("PUT_OK") == 4
    assert real.count(alone) == len(kinds) - 4
