"""Real name servers, masters, slaves and a producer on loopback, each a process of its own.

with Cluster("5.3.3", folder) as cluster:
    master = cluster.start("master", 0, "SYNC_MASTER")
    slave = cluster.start("slave", 1, "SLAVE")
    puts = cluster.put(100)
    slave.kill()
    slave.start()

Each process is ended by its own pid. Brokers get free ports P, P-2 (the "VIP" port) and P+1 (HA), and keep them.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from rmqctl.errors import PeerError
from rmqctl.remoting.address import parse_address
from rmqctl.remoting.broker_requests import BrokerRequests
from rmqctl.remoting.client import RemotingClient
from tests.real_store import java_build
from tests.real_store.harness import (
    FOR_A_SHORT_LIFE,
    JDK_PACKAGES,
    LOGBACK_CONF,
    NO_SETTINGS,
    Geometry,
    archive_option,
    broker_conf,
)
from tests.real_store.ports import held_port

LOOPBACK = "127.0.0.1"
NO_TLS = "-Dtls.server.mode=disabled"  # else each server makes a certificate when it starts, for seconds
SMALL = Geometry(commitlog_file_size=65536, queue_file_units=50, index_slots=100, index_entries=400)
GET_BROKER_CLUSTER_INFO = 106
START_SECONDS, STOP_SECONDS = 90, 30
PATIENCE = 60  # seconds for an answer: a busy machine is slow, and no test is about that
# both 4.x and 5.x look for these in $ROCKETMQ_HOME/conf
LOGBACK_FILES = ("logback_broker.xml", "logback_namesrv.xml", "rmq.broker.logback.xml", "rmq.namesrv.logback.xml")
SETTINGS = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerIP1": LOOPBACK,
    "brokerIP2": LOOPBACK,
    "mappedFileSizeTimerLog": "102400",
    "flushConsumerOffsetInterval": "1000",
    "autoCreateTopicEnable": "true",
    # else a broker refuses what waited for 200 ms, or while a page takes a second
    "brokerFastFailureEnable": "false",
    "osPageCacheBusyTimeOutMills": str(PATIENCE * 1000),
}


class Put(NamedTuple):
    """The result of a put. `status` is a SendStatus, or EXCEPTION.

    physical_offset is -1 after an exception, and of a transaction of 4.x.
    """

    status: str
    milliseconds: int
    physical_offset: int
    error: str


class JavaProcess:
    """A JVM with a log file of its own."""

    def __init__(self, name: str, folder: Path, version: str, program: Sequence[str], *, piped: bool = False) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        home = folder / f"home-{name}"
        (home / "conf").mkdir(parents=True, exist_ok=True)
        for file in LOGBACK_FILES:
            (home / "conf" / file).write_bytes(LOGBACK_CONF.read_bytes())
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in JDK_PACKAGES]
        command = [
            java_build.tool("java"),
            "-Xmx512m",
            *FOR_A_SHORT_LIFE,
            archive_option(version),
            *opened,
            f"-Duser.home={home}",
        ]
        command += [NO_TLS, "-Drocketmq.client.logUseSlf4j=false", "-cp", java_build.prepare(version), *program]
        pipe = subprocess.PIPE if piped else None
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env={**os.environ, "ROCKETMQ_HOME": str(home)}, stdin=pipe, stdout=pipe or log, stderr=log
            )

    def wait_until(self, what: str, done: Callable[[], bool]) -> None:
        """Wait until something is true. Raises RuntimeError with the end of the log."""
        end = time.monotonic() + START_SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            if done():
                return
            time.sleep(0.1)
        said = java_build.last_lines(self.log.read_text(errors="replace"))
        raise RuntimeError(f"{self.name}: waited in vain until {what} (status {self.process.poll()}):\n{said}")

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the process, and wait for the end."""
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Broker:
    """A real broker that can be ended and started again, with the same store and the same ports."""

    def __init__(
        self,
        name: str,
        folder: Path,
        version: str,
        name_server: str,
        conf: str,
        port: int,
        *,
        wait_for_name_server: bool,
    ) -> None:
        self.name = name
        self.folder = folder
        self.version = version
        self.store = folder / name / "store"
        self.port = port
        self.ha_port = port + 1
        self._name_server = name_server
        self._wait_for_name_server = wait_for_name_server
        self._conf = folder / f"{name}.conf"
        self._conf.write_text(conf, encoding="ascii")
        self._process: JavaProcess | None = None

    @property
    def pid(self) -> int:
        """The process id; 0 where the broker does not run."""
        return 0 if self._process is None else self._process.process.pid

    def start(self) -> None:
        """Start the broker and wait until it answers, and until the name server, if it is a real one, knows it."""
        program = ["org.apache.rocketmq.broker.BrokerStartup", "-c", str(self._conf), "-n", self._name_server]
        process = self._process = JavaProcess(self.name, self.folder, self.version, program)
        process.wait_until("the broker answers", lambda: bool(self.runtime_info()))
        if self._wait_for_name_server:
            process.wait_until("the name server knows the broker", self._is_registered)

    def runtime_info(self) -> dict[str, str]:
        """What the broker says of itself; empty where it does not answer."""
        try:
            with RemotingClient(LOOPBACK, self.port, timeout=PATIENCE) as client:
                return BrokerRequests(client).runtime_info()
        except PeerError:
            return {}

    def _is_registered(self) -> bool:
        address = parse_address(self._name_server)
        with RemotingClient(address.host, address.port, timeout=PATIENCE) as client:
            return f'{LOOPBACK}:{self.port}"'.encode() in client.invoke(GET_BROKER_CLUSTER_INFO).body

    def max_offset(self) -> int:
        """The end of the broker's log in bytes; -1 where it does not answer."""
        return int(self.runtime_info().get("commitLogMaxOffset", -1))

    def stop(self) -> None:
        """End the broker cleanly."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the broker with SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.end(how)
            self._process = None


class Cluster:
    """Brokers of one version and their name server; `name_server` (HOST:PORT) is another one to use instead.

    With `controller`, the name server is also a controller (5.x). Brokers of the id -1 and the role SLAVE ask it for
    their ids and roles.
    """

    def __init__(
        self,
        version: str,
        folder: Path,
        *,
        geometry: Geometry = SMALL,
        name_server: str | None = None,
        controller: bool = False,
    ) -> None:
        self.version = version
        self.folder = folder
        self.geometry = geometry
        self.brokers: dict[str, Broker] = {}
        self._ports = ExitStack()
        self.name_server = name_server or f"{LOOPBACK}:{self._free_port()}"
        self._own_name_server = name_server is None
        self._controller = f"{LOOPBACK}:{self._free_port()}" if controller else ""
        self._others: list[JavaProcess] = []
        self._sender: JavaProcess | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._own_name_server:
            self._start_name_server()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for broker in self.brokers.values():
            broker.kill()
        for process in self._others:
            process.end(signal.SIGKILL)
        self._ports.close()

    def start(
        self,
        name: str,
        broker_id: int,
        role: str,
        settings: Mapping[str, str] = NO_SETTINGS,
        *,
        geometry: Geometry | None = None,
        version: str = "",
    ) -> Broker:
        """Start a new broker: `role` is ASYNC_MASTER, SYNC_MASTER or SLAVE."""
        port = self._free_port()
        own = {
            "brokerId": str(broker_id),
            "brokerRole": role,
            "listenPort": str(port),
            "haListenPort": str(port + 1),
            "namesrvAddr": self.name_server,
        }
        if self._controller:
            own |= {"enableControllerMode": "true", "controllerAddr": self._controller}
        store = self.folder / name / "store"
        conf = broker_conf(store, geometry or self.geometry, {**SETTINGS, **own, **settings})
        broker = Broker(
            name,
            self.folder,
            version or self.version,
            self.name_server,
            conf,
            port,
            wait_for_name_server=self._own_name_server,
        )
        self.brokers[name] = broker
        broker.start()
        return broker

    def put(
        self,
        count: int,
        *,
        body_size: int = 200,
        topic: str = "orders",
        timeout_ms: int = PATIENCE * 1000,
        delay_level: int = 0,
        in_transactions: bool = False,
    ) -> list[Put]:
        """Send messages with the real client, one after another, one try each.

        With `in_transactions`, each is put in a transaction of its own, which ends at once: each third is rolled back.
        """
        if self._sender is None:
            program = [f"-Dnamesrv={self.name_server}", "Sender"]
            self._sender = JavaProcess("sender", self.folder, self.version, program, piped=True)
            self._others.append(self._sender)
        process = self._sender.process
        assert process.stdin is not None
        assert process.stdout is not None
        words = (count, body_size, topic, timeout_ms, delay_level, str(in_transactions).lower())
        process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        process.stdin.flush()
        for line in process.stdout:
            if line.startswith(b"puts "):  # the client logs here, too
                return [_put(row) for row in json.loads(line[5:])]
        raise RuntimeError(f"the sender ended; see {self._sender.log}")

    def _free_port(self) -> int:
        return self._ports.enter_context(held_port())

    def _start_name_server(self) -> None:
        conf = self.folder / "name-server.conf"
        port = int(self.name_server.rpartition(":")[2])
        said = {"listenPort": str(port)}
        if self._controller:
            said |= {
                "enableControllerInNamesrv": "true",
                "controllerDLegerGroup": "group1",
                "controllerDLegerPeers": f"n0-{self._controller}",
                "controllerDLegerSelfId": "n0",
                "controllerStorePath": str(self.folder / "controller"),
            }
        conf.write_text("".join(f"{key}={value}\n" for key, value in said.items()), encoding="ascii")
        program = ["org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(conf)]
        process = JavaProcess("name-server", self.folder, self.version, program)
        self._others.append(process)
        process.wait_until("the name server listens", lambda: listens(port))


def listens(port: int) -> bool:
    """Whether somebody listens on a port of loopback."""
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


def _put(row: dict[str, Any]) -> Put:
    return Put(row["status"], row["ms"], row.get("physicalOffset", -1), row.get("error", ""))
