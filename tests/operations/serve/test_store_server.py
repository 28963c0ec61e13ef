"""An offline store as a master: who gets what, who is refused, and when a slave has everything."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from rmqctl.errors import BadRequest, ChangedSince, NeedsRecovery, PeerError, StoreInUse
from rmqctl.operations.serve import served_slaves, store_server
from rmqctl.operations.serve.access import Access
from rmqctl.operations.serve.store_server import Ports, StoreServer
from rmqctl.remoting.broker_requests import BrokerRequests
from rmqctl.remoting.client import RemotingClient, RequestRefused
from rmqctl.remoting.frame import RemotingCommand
from rmqctl.remoting.server import RemotingServer
from rmqctl.store.config.fastjson import fastjson_loads
from rmqctl.store.config.ha_config import HAConf
from rmqctl.store.ha.ha_service import HAService
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import tree_hash
from tests.support.file_edits import write_at
from tests.support.ha_slave import MemoryLog, ReportingSlave
from tests.support.log_maker import Record, write_log
from tests.support.mirror_log import log_file_bytes
from tests.support.registered_slave import LOOPBACK, ConfiguredSlave, register
from tests.support.waiting import until

Golden = Callable[[str], Path]
LOOPBACK_ONLY = Access(LOOPBACK)


@pytest.fixture(autouse=True)
def _slaves_settle_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_server, "SETTLE_SECONDS", 0.05)


@contextmanager
def serving(store: Path, access: Access = LOOPBACK_ONLY) -> Iterator[StoreServer]:
    with StoreServer(ReadOnlyStore(store), access) as server:
        yield server


@pytest.mark.parametrize("name", ["broker-497", "broker-533"])
def test_two_empty_slaves_get_the_log_and_the_configuration(name: str, golden: Golden) -> None:
    store = golden(name)
    before, log = tree_hash(store), log_file_bytes(store)
    with serving(store) as server, ReportingSlave(server.ports.ha) as one, ReportingSlave(server.ports.ha) as two:
        end = server.log.end
        for slave in (one, two):
            slave.report(0)
            assert slave.follow(0, end) == log[:end]
        assert until(lambda: [slave.has_log for slave in server.slaves()] == [True, True])
        assert [slave.max_offset for slave in server.slaves()] == [end, end]
        with ConfiguredSlave(server.ports.remoting) as first, ConfiguredSlave(server.ports.remoting) as second:
            taken = first.take()
            assert until(lambda: [slave.is_configured for slave in server.slaves()] == [True, False])
            assert second.take() == taken
            assert until(lambda: all(slave.is_configured for slave in server.slaves()))
        for name_, text in taken.items():
            own = fastjson_loads((store / "config" / name_).read_text())
            assert fastjson_loads(text) | own == fastjson_loads(text)
        assert until(lambda: not any(slave.is_configured for slave in server.slaves()))
        (told,) = server.notices.take()
        assert "did not register here, so its file size is not checked" in told
    assert tree_hash(store) == before


def test_a_slave_learns_our_addresses_from_the_name_server(golden: Golden) -> None:
    with serving(golden("broker-497")) as server:
        ports = server.ports
        answer = register(ports.namesrv)
        assert answer.ext_fields == {
            "haServerAddr": f"{LOOPBACK}:{ports.ha}",
            "masterAddr": f"{LOOPBACK}:{ports.remoting}",
        }
        with RemotingClient(LOOPBACK, ports.namesrv) as client:
            assert client.invoke(322).ext_fields == {"changed": "true"}
            assert client.invoke(104).code == 0
            with pytest.raises(RequestRefused, match="request type 106 not supported"):
                client.invoke(106)
        with pytest.raises(RequestRefused, match="only slaves"):
            register(ports.namesrv, broker_id=0)
        told = server.notices.take()
        assert len(told) == 2
        assert "does not say its file size" in told[0]
        assert "the broker is a master" in told[1]


@pytest.mark.parametrize(("size", "is_served"), [(262144, True), (65536, False), (1 << 30, False)])
def test_a_slave_with_another_file_size_is_refused_before_it_gets_a_byte(
    size: int, is_served: bool, golden: Golden
) -> None:
    def config(request: RemotingCommand, _: object) -> RemotingCommand:
        return RemotingCommand(0, body=f"brokerRole=SLAVE\nmappedFileSizeCommitLog={size}\n".encode())

    slave = RemotingServer(LOOPBACK, 0, {26: config})
    slave.start()
    try:
        with serving(golden("broker-497")) as server:
            if is_served:
                assert register(server.ports.namesrv, f"{LOOPBACK}:{slave.port}").ext_fields
                assert server.notices.take() == []
            else:
                with pytest.raises(RequestRefused, match=f"mappedFileSizeCommitLog is {size}"):
                    register(server.ports.namesrv, f"{LOOPBACK}:{slave.port}")
                assert "set it to 262144" in server.notices.take()[0]
    finally:
        slave.close()


@pytest.mark.parametrize(
    ("report", "what"),
    [
        (832036, "its log ends at 832036, ours at 832035"),
        (2**62, "it is ahead, or another log"),
        (100, "inside a record of ours"),
        (832034, "inside a record of ours"),
    ],
)
def test_a_slave_with_another_log_is_refused(report: int, what: str, golden: Golden) -> None:
    with serving(golden("broker-497")) as server, ReportingSlave(server.ports.ha) as slave:
        slave.report(report)
        assert slave.is_closed()
        assert what in server.notices.take()[0]
        with ReportingSlave(server.ports.ha) as again:
            again.report(report)
            assert again.is_closed()
        assert server.notices.take() == []


def test_a_slave_goes_on_at_a_record_or_where_a_transfer_ended(golden: Golden) -> None:
    store = golden("broker-497")
    second = next(iter(ReadOnlyStore(store).commit_log.scan())).end
    log = log_file_bytes(store)
    with serving(store) as server:
        with ReportingSlave(server.ports.ha) as slave:
            slave.report(server.log.end)
            assert slave.is_silent_for(0.2)
        for start in (second, 65536):
            with ReportingSlave(server.ports.ha) as slave:
                slave.report(start)
                header, body = slave.frame()
                assert header.offset == start
                assert body == log[start : start + header.size]
        end_of_transfer = second + 32768  # inside a record
        with ReportingSlave(server.ports.ha) as slave:
            slave.report(end_of_transfer)
            assert slave.frame()[0].offset == end_of_transfer
        assert not any(text.startswith("refused") for text in server.notices.take())


@contextmanager
def slave_with_log(data: bytes, end: int) -> Iterator[tuple[str, str]]:
    """A slave whose log ends at `end` and that sends `data` at its HA port: the two addresses."""

    def runtime(request: RemotingCommand, _: object) -> RemotingCommand:
        return RemotingCommand(0, body=json.dumps({"table": {"commitLogMaxOffset": str(end)}}).encode())

    broker = RemotingServer(LOOPBACK, 0, {28: runtime})
    broker.start()
    try:
        with HAService(MemoryLog(data, 262144), HAConf(listen_port=0)) as ha:
            yield f"{LOOPBACK}:{broker.port}", f"{LOOPBACK}:{ha.port}"
    finally:
        broker.close()


@pytest.mark.parametrize(("place", "is_served"), [(None, True), (65535, False), (40_000, False), (10_000, True)])
def test_the_last_bytes_of_a_slaves_log_are_compared(place: int | None, is_served: bool, golden: Golden) -> None:
    """The last 32 KiB are: at 10,000, a real log would not differ alone."""
    store = golden("broker-497")
    data = bytearray(log_file_bytes(store)[:65536])
    if place is not None:
        data[place] ^= 1
    with serving(store) as server, slave_with_log(bytes(data), len(data)) as (address, ha):
        register(server.ports.namesrv, address, ha=ha)
        server.notices.take()
        with ReportingSlave(server.ports.ha) as slave:
            slave.report(len(data))
            if is_served:
                assert slave.frame()[0].offset == len(data)
                assert server.notices.take() == []
            else:
                assert slave.is_closed()
                assert "its log differs from ours before 65536" in server.notices.take()[0]


@pytest.mark.parametrize("stored", [5000, 2712])
def test_a_slave_that_stores_something_else_is_refused(stored: int, golden: Golden) -> None:
    with serving(golden("broker-497")) as server, ReportingSlave(server.ports.ha) as slave:
        slave.report(0)
        slave.frame()
        slave.report(stored)
        assert slave.is_closed()
        assert "where no transfer ended: its mappedFileSizeCommitLog is not 262144" in server.notices.take()[-1]


def test_a_slave_that_stores_nothing_is_refused(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_slaves, "SAME_REPORTS_MAX", 2)
    with serving(golden("broker-497")) as server, ReportingSlave(server.ports.ha) as slave:
        for _ in range(4):
            slave.report(0)
            time.sleep(0.05)  # several reports that arrive together are one
        assert slave.is_closed()
        assert "it reports 0 again and again" in server.notices.take()[-1]


def test_a_log_without_its_first_files_is_served_from_its_begin(golden: Golden) -> None:
    store = golden("broker-497")
    (store / "commitlog" / "00000000000000000000").unlink()
    with serving(store) as server, ReportingSlave(server.ports.ha) as slave, ReportingSlave(server.ports.ha) as old:
        slave.report(0)
        assert slave.follow(262144, server.log.end) == log_file_bytes(store)[: server.log.end - 262144]
        old.report(65536)
        assert old.is_closed()
        assert "its log ends at 65536, ours begins at 262144" in server.notices.take()[-1]


def test_only_the_valid_part_of_the_log_is_sent(tmp_path: Path) -> None:
    write_log(tmp_path / "store", [Record("orders", body=b"a" * 100)] * 5)
    path = tmp_path / "store" / "commitlog" / "00000000000000000000"
    whole = ReadOnlyStore(tmp_path / "store").commit_log.end()[0]
    write_at(path, whole, b"torn record")
    with serving(tmp_path / "store") as server, ReportingSlave(server.ports.ha) as slave:
        assert server.log.end == whole
        slave.report(0)
        assert slave.follow(0, whole) == path.read_bytes()[:whole]
        assert slave.is_silent_for(0.2)


def test_a_table_that_cannot_be_read_is_not_taken_for_sent(golden: Golden) -> None:
    store = golden("broker-497")
    (store / "config" / "subscriptionGroup.json").write_text("{")
    with serving(store) as server:
        assert server.is_partial
        assert any("subscriptionGroup.json" in problem for problem in server.problems)


def test_tables_that_the_store_lacks_are_never_sent_empty(tmp_path: Path) -> None:
    write_log(tmp_path / "store", [Record("orders", body=b"a")])
    with serving(tmp_path / "store") as server, RemotingClient(LOOPBACK, server.ports.remoting) as client:
        assert len(server.problems) == 2
        assert not server.is_partial
        assert "config/topics.json does not exist: slaves keep their own" in server.problems
        for code in (21, 201, 60):
            with pytest.raises(RequestRefused):
                client.invoke(code)
        assert json.loads(client.invoke(43).body) == {
            "dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0},
            "offsetTable": {},
        }
        runtime = BrokerRequests(client).runtime_info()
        assert runtime == {"commitLogMinOffset": "0", "commitLogMaxOffset": str(server.log.end)}
        assert BrokerRequests(client).broker_config()["haListenPort"] == str(server.ports.ha)


def test_a_file_of_5_x_is_sent_as_it_is(golden: Golden) -> None:
    store = golden("broker-533")
    with serving(store) as server, RemotingClient(LOOPBACK, server.ports.remoting - 2) as client:
        broker = BrokerRequests(client)
        assert broker.timer_checkpoint() == (store / "config" / "timercheck").read_bytes()[:56]
        assert broker.delay_offsets() == (store / "config" / "delayOffset.json").read_text()
        assert fastjson_loads(broker.timer_metrics() or "")["timingCount"] is not None


def test_only_allowed_addresses_may_connect(golden: Golden) -> None:
    access = Access(LOOPBACK, [ip_network("10.1.0.0/16")])
    with serving(golden("broker-497"), access) as server:
        with ReportingSlave(server.ports.ha) as slave:
            assert slave.is_closed()
        for port in (server.ports.remoting, server.ports.remoting - 2, server.ports.namesrv):
            with RemotingClient(LOOPBACK, port) as client, pytest.raises(PeerError):
                client.invoke(21)
        assert all("refused: 127.0.0.1: " in text for text in server.notices.take())


def test_a_port_in_use_and_a_store_in_use_are_told(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden("broker-497")
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        for ports, option in (
            (Ports(ha=port), "--ha-port"),
            (Ports(remoting=port), "--remoting-port"),
            (Ports(remoting=port + 2), "--remoting-port"),
            (Ports(namesrv=port), "--namesrv-port"),
        ):
            with pytest.raises(BadRequest, match=f"Address already in use.*give another {option}"):
                StoreServer(ReadOnlyStore(store), LOOPBACK_ONLY, ports)
    held = ReadOnlyStore(store)
    monkeypatch.setattr(held, "lock_holder", lambda: 4711)
    with pytest.raises(StoreInUse):
        StoreServer(held, LOOPBACK_ONLY)


def test_a_log_with_a_gap_and_an_empty_log_are_not_served(golden: Golden) -> None:
    store = golden("broker-497")
    (store / "commitlog" / "00000000000000262144").unlink()
    with pytest.raises(NeedsRecovery, match="the log is not whole"):
        StoreServer(ReadOnlyStore(store), LOOPBACK_ONLY)
    for path in (store / "commitlog").iterdir():
        path.unlink()
    with pytest.raises(BadRequest, match="the log is empty"):
        StoreServer(ReadOnlyStore(store), LOOPBACK_ONLY)


@pytest.mark.parametrize(
    ("host", "networks", "what"),
    [
        ("10.1.2.3", [], "10.1.2.3 is not loopback, and the protocol has no authentication"),
        ("0.0.0.0", ["10.0.0.0/8"], "is every address"),
        ("::", ["10.0.0.0/8"], "is every address"),
        ("no such host", [], "is not an address of this machine"),
    ],
)
def test_where_serve_does_not_listen(host: str, networks: list[str], what: str) -> None:
    with pytest.raises(BadRequest, match=what):
        Access(host, list(map(ip_network, networks)))


@pytest.mark.parametrize(
    ("networks", "host", "accepted"),
    [
        ([], "127.0.0.1", True),
        ([], "127.4.5.6", True),
        ([], "::1", True),
        ([], "10.1.2.3", False),
        (["10.1.0.0/16"], "10.1.2.3", True),
        (["10.1.0.0/16"], "::ffff:10.1.2.3", True),
        (["10.1.0.0/16"], "127.0.0.1", False),
        (["10.1.0.0/16"], "localhost", False),
    ],
)
def test_which_addresses_are_accepted(networks: list[Any], host: str, accepted: bool) -> None:
    assert Access(LOOPBACK, list(map(ip_network, networks))).accepts(host) is accepted


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"brokerAddr": "127.0.0.1"},
        {"brokerAddr": "x" * 100_000 + ":1", "haServerAddr": "127.0.0.1:2"},
        {"brokerAddr": "127.0.0.1:1", "haServerAddr": "127.0.0.1:2\n"},
        {"brokerAddr": "127.0.0.1:1", "haServerAddr": "\x1b[2J:1"},
    ],
)
def test_a_registration_that_makes_no_sense_is_refused(fields: dict[str, str], golden: Golden) -> None:
    with serving(golden("broker-497")) as server, RemotingClient(LOOPBACK, server.ports.namesrv) as client:
        with pytest.raises(RequestRefused, match="code 1: rmqctl serve: "):
            client.invoke(103, {"brokerName": "a\nb", **fields})
        told = server.notices.take()
        assert len(told) == 1
        assert "is not an address" in told[0]
        assert "\n" not in told[0]
        assert len(told[0]) <= 500


def test_the_server_asks_no_address_that_may_not_connect(golden: Golden) -> None:
    """A registration could otherwise make the server connect to any address."""
    with serving(golden("broker-497")) as server:
        begin = time.monotonic()
        assert register(server.ports.namesrv, "192.0.2.1:10911").ext_fields
        assert time.monotonic() - begin < 2
        assert "--allow does not cover" in server.notices.take()[0]


def test_a_store_that_changes_is_served_no_longer(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_server, "CHECK_SECONDS", 0.0)
    store = golden("broker-497")
    with serving(store) as server:
        assert server.slaves() == []
        (store / "abort").touch()
        with pytest.raises(ChangedSince):
            server.slaves()


def test_a_log_that_cannot_be_read_is_told(golden: Golden) -> None:
    store = golden("broker-497")
    with serving(store) as server, ReportingSlave(server.ports.ha) as slave:
        for path in (store / "commitlog").iterdir():
            os.truncate(path, 1000)
        slave.report(0)
        assert slave.is_closed()
        told: list[str] = []

        def is_told() -> bool:
            told.extend(server.notices.take())
            return any("sending failed" in text and "00000000000000000000" in text for text in told)

        assert until(is_told)


def test_a_store_that_was_not_shut_down_is_told(golden: Golden) -> None:
    store = golden("broker-497")
    (store / "abort").touch()
    with serving(store) as server:
        assert any("not shut down cleanly" in text for text in server.problems)


def test_nobody_changes_the_store_meanwhile(golden: Golden) -> None:
    """The lock is a broker's own; it is free again afterwards."""
    store = golden("broker-497")
    before = tree_hash(store)
    change = [sys.executable, "-m", "rmqctl", "truncate", str(store), "--to", "0", "--dry-run"]
    with serving(store):
        held = subprocess.run(change, capture_output=True, text=True, check=False)
    assert held.returncode == 11, held.stderr
    assert subprocess.run(change, capture_output=True, check=False).returncode == 1
    assert tree_hash(store) == before
