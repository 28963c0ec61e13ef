"""`replicate` from masters on loopback: whole copies, copies that go on, and masters whose log must not be taken."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest

from rmqctl.errors import PeerError
from rmqctl.operations.replicate.replication import fetch_names, fetch_offsets, write_texts
from rmqctl.remoting.address import Address
from rmqctl.remoting.broker_requests import BrokerRequests
from rmqctl.store.config.fastjson import fastjson_loads
from rmqctl.store.ha.frames import encode_transfer
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl, tree_hash, unpack
from tests.support.fake_master import NOT_OF_THIS_LOG, FakeMaster, codes, golden_store, log_of
from tests.support.file_edits import write_at
from tests.support.ha_slave import MemoryLog
from tests.support.mirror_log import log_bytes

pytestmark = pytest.mark.usefixtures("quick")
MASTER = Address("master", 10911)
TIMES = (1700000000000, 5000, 77, 99, 1, 2, 3)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for seconds."""
    for name in ("ASK_INTERVAL", "SYNC_INTERVAL"):
        monkeypatch.setattr(f"rmqctl.operations.replicate.replication.{name}", 0.1)
    monkeypatch.setattr("rmqctl.operations.replicate.log_pull.STALL", 0.3)
    monkeypatch.setattr("rmqctl.operations.replicate.log_pull.QUIET", 0.2)


@pytest.mark.parametrize("name", ["497-basic", "497-tx", "497-lmq", "471-ipv6", "broker-497"])
def test_a_copy_is_the_log_and_has_queues_and_index(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    log = log_of(name, tmp_path)
    new = tmp_path / "new"
    with FakeMaster(log) as master:
        found = rmqctl("replicate", master.address, new, "--once", "--yes", "-o", "json")
    assert (found.code, found.err) == (0, "")
    document = found.document()
    assert document["maxPhyOffset"] == log.max_offset
    assert document["bytes"] == len(log.data)
    assert log_bytes(new) == log.data
    assert codes(new) <= NOT_OF_THIS_LOG
    before, after = golden_store(tmp_path), ReadOnlyStore(new)
    assert {key: queue.max_offset for key, queue in after.queues.items()} == {
        key: queue.max_offset for key, queue in before.queues.items() if queue.max_offset
    }
    assert "OrderPaid" in fastjson_loads((new / "config/topics.json").read_text())["topicConfigTable"]
    assert "OrderPaid@billing" in fastjson_loads((new / "config/consumerOffset.json").read_text())["offsetTable"]


def test_a_copy_goes_on_where_it_ended(tmp_path: Path, rmqctl: Rmqctl) -> None:
    whole, new = log_of("497-basic", tmp_path), tmp_path / "new"
    ends = [item.physical_offset for item in golden_store(tmp_path).commit_log.scan()]
    for end in [*random.Random(4).sample(ends, 6), whole.max_offset]:
        log = MemoryLog(whole.data[: max(end, len(log_bytes(new)) if new.exists() else 0)], whole.file_size)
        with FakeMaster(log) as master:
            found = rmqctl("replicate", master.address, new, "--once", "--yes", "-o", "json")
        assert found.code == 0
        assert log_bytes(new) == log.data
    assert log_bytes(new) == whole.data


def test_a_log_that_does_not_begin_at_0_is_copied_from_its_first_file(tmp_path: Path, rmqctl: Rmqctl) -> None:
    whole, new = log_of("497-basic", tmp_path), tmp_path / "new"
    log = MemoryLog(whole.data[2 * whole.file_size :], whole.file_size, 2 * whole.file_size)
    with FakeMaster(log) as master:
        found = rmqctl("replicate", master.address, new, "--once", "--yes", "-o", "json")
    assert (found.code, found.document()["minPhyOffset"]) == (0, 2 * whole.file_size)
    assert log_bytes(new) == log.data


def test_an_empty_master_has_an_empty_copy(tmp_path: Path, rmqctl: Rmqctl) -> None:
    with FakeMaster(MemoryLog(b"", 65536)) as master:
        for _ in range(2):
            found = rmqctl("replicate", master.address, tmp_path / "new", "--once", "--yes", "-o", "json")
            assert found.code == 0, found.err
            assert found.document()["maxPhyOffset"] == 0
        (tmp_path / "new" / "abort").touch()
        assert rmqctl("replicate", master.address, tmp_path / "new", "--once", "--yes").code == 0


def refused(rmqctl: Rmqctl, master: FakeMaster, store: Path, code: int) -> str:
    """Replicate, which must fail in one line, and leave the store's log as it was."""
    before = log_bytes(store) if store.exists() else b""
    found = rmqctl("replicate", master.address, store, "--once", "--yes")
    assert (found.code, found.out) == (code, ""), found.err
    assert found.err.count("\n") == 1
    assert log_bytes(store)[: len(before)] == before
    return found.err


def refused_at_once(rmqctl: Rmqctl, master: FakeMaster, store: Path, code: int) -> str:
    """As `refused`; and a dry run, which changes nothing, fails with the same line."""
    before = tree_hash(store)
    dry = rmqctl("replicate", master.address, store, "--once", "--dry-run")
    assert tree_hash(store) == before
    text = refused(rmqctl, master, store, code)
    assert (dry.code, dry.out, dry.err) == (code, "", text)
    return text


def test_another_log_is_never_mixed_with_the_copy(tmp_path: Path, rmqctl: Rmqctl) -> None:
    whole, new = log_of("497-basic", tmp_path), tmp_path / "new"
    half = MemoryLog(whole.data[: 3 * whole.file_size], whole.file_size)
    with FakeMaster(half) as master:
        assert rmqctl("replicate", master.address, new, "--once", "--yes").code == 0
        flipped = bytearray(whole.data)
        flipped[3 * whole.file_size - 200] ^= 1
        half.data = bytes(flipped)
        assert f"differ at offset {3 * whole.file_size - 200}" in refused_at_once(rmqctl, master, new, 1)
        half.data = whole.data[: 2 * whole.file_size]
        assert f"which ends at {2 * whole.file_size}" in refused_at_once(rmqctl, master, new, 1)
        half.data, half.min_offset = whole.data[4 * whole.file_size :], 4 * whole.file_size
        assert "has expired" in refused_at_once(rmqctl, master, new, 1)
        half.data, half.min_offset = whole.data[3 * whole.file_size :], 3 * whole.file_size  # no byte to compare
        assert "has expired" in refused_at_once(rmqctl, master, new, 1)
        half.data, half.min_offset = whole.data, 0
        half.file_size *= 2
        assert f"the master's {2 * whole.file_size}" in refused_at_once(rmqctl, master, new, 2)
        half.file_size //= 2
        assert rmqctl("replicate", master.address, new, "--once", "--yes").code == 0
    assert log_bytes(new) == whole.data


def test_a_damaged_record_ends_the_copy_before_it(tmp_path: Path, rmqctl: Rmqctl) -> None:
    log, new = log_of("497-basic", tmp_path), tmp_path / "new"
    records = list(golden_store(tmp_path).commit_log.scan())
    victim = records[len(records) // 2]
    broken = bytearray(log.data)
    broken[victim.physical_offset + 90] ^= 1
    log.data = bytes(broken)
    with FakeMaster(log) as master:
        text = refused(rmqctl, master, new, 1)
        assert f"at offset {victim.physical_offset}" in text
        assert log_bytes(new) == log.data[: victim.physical_offset]
        found = rmqctl("replicate", master.address, "--verify-only", "-o", "json")
    assert found.code == 1
    (finding,) = found.document()["findings"]
    assert finding["physicalOffset"] == victim.physical_offset
    assert found.document()["okUpTo"] == victim.physical_offset
    assert found.document()["messages"] == sum(1 for item in records if hasattr(item, "body")) - 1


def test_a_whole_log_is_verified_over_the_wire(tmp_path: Path, rmqctl: Rmqctl) -> None:
    log = log_of("497-tx", tmp_path)
    with FakeMaster(log) as master:
        found = rmqctl("replicate", master.address, "--verify-only", "-o", "json")
    assert (found.code, found.document()["findings"]) == (0, [])
    assert found.document()["bytes"] == len(log.data)


def test_a_master_that_stands_still_below_its_end_is_told(tmp_path: Path, rmqctl: Rmqctl) -> None:
    log = log_of("497-basic", tmp_path)
    with FakeMaster(log) as master:
        master.max_offset = log.max_offset + 500
        assert f"stands still at offset {log.max_offset}" in refused(rmqctl, master, tmp_path / "new", 4)


def test_a_log_that_ends_inside_a_record_is_told(tmp_path: Path, rmqctl: Rmqctl) -> None:
    log = log_of("497-basic", tmp_path)
    log.data = log.data[:-10]
    with FakeMaster(log) as master:
        assert "ends inside this record" in refused(rmqctl, master, tmp_path / "new", 1)


@pytest.mark.parametrize("kind", ["closes", "half", "offset", "size", "garbage"])
def test_a_master_that_breaks_the_protocol_spoils_nothing(kind: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    log, new = log_of("497-basic", tmp_path), tmp_path / "new"

    def behave(connection: socket.socket) -> None:
        connection.recv(8)
        good = encode_transfer(1, 5000) + log.data[1:5001]
        bad = {
            "closes": b"",
            "half": encode_transfer(5001, 5000) + log.data[5001:6000],
            "offset": encode_transfer(5002, 10) + log.data[5002:5012],
            "size": encode_transfer(5001, 2**31 - 1),
            "garbage": random.Random(1).randbytes(1000),
        }
        connection.sendall(good + bad[kind])
        if kind not in ("closes", "half"):
            connection.recv(1)

    with FakeMaster(log, behave) as master:
        refused(rmqctl, master, new, 4)
    assert 0 < len(log_bytes(new)) <= 6000
    assert log_bytes(new) == log.data[: len(log_bytes(new))]
    with FakeMaster(log) as master:
        assert rmqctl("replicate", master.address, new, "--once", "--yes").code == 0
    assert log_bytes(new) == log.data


def test_a_sync_master_of_4x_is_not_slowed_down_unasked(tmp_path: Path, rmqctl: Rmqctl) -> None:
    log = log_of("497-basic", tmp_path)
    with FakeMaster(log, settings={"brokerRole": "SYNC_MASTER", "slaveTimeout": "100"}) as master:
        found = rmqctl("replicate", master.address, tmp_path / "new", "--once", "--yes")
        assert found.code == 2
        assert "--allow-slow-puts" in found.err
        assert not (tmp_path / "new").exists()
        assert rmqctl("replicate", master.address, tmp_path / "new", "--once", "--yes", "--allow-slow-puts").code == 0


def reports_of(tmp_path: Path, rmqctl: Rmqctl, *options: str) -> list[int]:
    """The reports of a copy to a master that sends its whole log at once."""
    log, reports = log_of("497-basic", tmp_path), []

    def behave(connection: socket.socket) -> None:
        reports.append(int.from_bytes(connection.recv(8), "big"))
        for at in range(1, len(log.data), 30_000):
            connection.sendall(encode_transfer(at, len(log.data[at : at + 30_000])) + log.data[at : at + 30_000])
        while data := connection.recv(8):
            reports.append(int.from_bytes(data, "big"))

    with FakeMaster(log, behave) as master:
        assert rmqctl("replicate", master.address, tmp_path / "new", "--once", "--yes", *options).code == 0
    assert all(report <= log.max_offset for report in reports)
    return [*reports, log.max_offset]


def test_a_copy_acknowledges_nothing(tmp_path: Path, rmqctl: Rmqctl) -> None:
    assert set(reports_of(tmp_path, rmqctl)[:-1]) == {1}


def test_a_slave_acknowledges_what_is_on_disk(tmp_path: Path, rmqctl: Rmqctl) -> None:
    *reports, end = reports_of(tmp_path, rmqctl, "--as-slave")
    assert reports == sorted(reports)
    assert reports[-1] == end


def test_a_dry_run_refuses_a_store_in_use(tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    log, store = log_of("497-basic", tmp_path / "a"), unpack("497-basic", tmp_path)
    monkeypatch.setattr("rmqctl.logfile.system.storage.Storage.lock_holder", lambda *_: 4711)
    with FakeMaster(log) as master:
        assert rmqctl("replicate", master.address, store, "--once", "--dry-run").code == 11


def test_a_store_of_somebody_else_is_left_alone(tmp_path: Path, rmqctl: Rmqctl) -> None:
    log = log_of("497-basic", tmp_path)
    killed = unpack("497-crash", tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with FakeMaster(log) as master:
        assert "not shut down cleanly" in refused_at_once(rmqctl, master, killed, 1)
        for how in ("--yes", "--dry-run"):
            assert rmqctl("replicate", master.address, tmp_path / "full", "--once", how).code == 10
        assert [entry.name for entry in (tmp_path / "full").iterdir()] == ["file"]


def test_a_store_whose_queues_cannot_be_opened_is_refused(tmp_path: Path, rmqctl: Rmqctl) -> None:
    log, store = log_of("497-basic", tmp_path / "a"), unpack("497-basic", tmp_path)
    last = max((store / "consumequeue/OrderPaid/0").iterdir())
    os.truncate(last, last.stat().st_size - 20)
    with FakeMaster(log) as master:
        assert "file-length" in refused_at_once(rmqctl, master, store, 1)


def test_a_dry_run_beside_a_sync_master_of_4x_does_not_connect(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """A connection that acknowledges nothing would slow down each put."""
    log, store = log_of("497-basic", tmp_path / "a"), unpack("497-basic", tmp_path)

    def behave(connection: socket.socket) -> None:
        raise AssertionError("connected")

    with FakeMaster(log, behave, settings={"brokerRole": "SYNC_MASTER"}) as master:
        command = ("replicate", master.address, store, "--once", "--dry-run")
        assert rmqctl(*command).code == 2
        assert rmqctl(*command, "--as-slave", "-o", "json").document()["action"] == "continue"


def test_a_copy_of_a_store_that_was_shut_down_goes_on(tmp_path: Path, rmqctl: Rmqctl) -> None:
    log, store = log_of("497-basic", tmp_path / "a"), unpack("497-basic", tmp_path)
    with FakeMaster(log) as master:
        assert rmqctl("replicate", master.address, store, "--once", "--yes").code == 0
    assert log_bytes(store) == log.data


def test_nothing_is_done_unasked(tmp_path: Path, rmqctl: Rmqctl) -> None:
    log, new = log_of("497-basic", tmp_path), tmp_path / "new"
    with FakeMaster(log) as master:
        assert rmqctl("replicate", master.address, new, "--once").code == 12
        found = rmqctl("replicate", master.address, new, "--once", "--dry-run", "-o", "json")
        assert (found.code, found.document()["action"]) == (1, "create")
        assert not new.exists()
        assert rmqctl("replicate", master.address).code == 2
        assert rmqctl("replicate", master.address, new, "--verify-only").code == 2
    assert rmqctl("replicate", "nowhere", new).code == 2
    assert rmqctl("replicate", master.address, new, "--once", "--yes").code == 4
    assert not new.exists()


def test_a_copy_that_is_killed_goes_on_without_a_flag(tmp_path: Path, rmqctl: Rmqctl) -> None:
    whole, new = log_of("497-basic", tmp_path), tmp_path / "new"
    log = MemoryLog(whole.data[:1000], whole.file_size)
    rng = random.Random(os.getpid())
    with FakeMaster(log) as master:
        command = [sys.executable, "-m", "rmqctl", "replicate", master.address, str(new), "--yes"]
        for _ in range(3):
            with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
                end = time.monotonic() + 20
                while not (new / "abort").exists() and time.monotonic() < end:
                    time.sleep(0.01)
                for _ in range(rng.randrange(5, 40)):
                    master.grow(whole.data[: len(log.data) + rng.randrange(2000)])
                    time.sleep(0.01)
                process.send_signal(signal.SIGKILL)
            assert whole.data.startswith(log_bytes(new)) if (new / "commitlog").exists() else True
        log.data = whole.data
        found = rmqctl("replicate", master.address, new, "--once", "--yes", "-o", "json")
    assert found.code == 0, found.err
    assert log_bytes(new) == whole.data
    assert codes(new) <= NOT_OF_THIS_LOG


def test_a_copy_that_stays_connects_again(tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.operations.replicate.replication.RECONNECT_WAIT", 0.1)
    log, new, connections = log_of("497-basic", tmp_path), tmp_path / "new", []

    def behave(connection: socket.socket) -> None:
        at = int.from_bytes(connection.recv(8), "big")
        connections.append(at)
        if len(connections) == 2:
            return
        end = min(at + 60_000, len(log.data)) if len(connections) < 4 else at
        connection.sendall(encode_transfer(at, end - at) + log.data[at:end])
        if len(connections) == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.3)

    with FakeMaster(log, behave) as master:
        found = rmqctl("replicate", master.address, new, "--yes")
    assert found.code == 130
    assert found.err.count("trying again") == 2  # not for the second connection
    assert found.err.count("connected again") in (1, 2)  # perhaps not for the last
    assert connections[0] == 1
    assert connections[1:] == sorted(connections[1:])
    assert log.data.startswith(log_bytes(new))
    assert not (new / "abort").exists()


def test_the_same_length_is_not_the_same_log(tmp_path: Path, rmqctl: Rmqctl) -> None:
    log, store = log_of("497-basic", tmp_path), unpack("497-basic", tmp_path)
    topics = (store / "config/topics.json").read_bytes() if (store / "config/topics.json").exists() else b""
    other = bytearray(log.data)
    other[-5] ^= 1

    def behave(connection: socket.socket) -> None:
        at = int.from_bytes(connection.recv(8), "big")
        time.sleep(0.5)  # later than the copy waits
        connection.sendall(encode_transfer(at, len(other) - at) + other[at:])
        connection.recv(1)

    with FakeMaster(log, behave) as master:
        assert f"differ at offset {len(other) - 5}" in refused_at_once(rmqctl, master, store, 1)
    assert ((store / "config/topics.json").read_bytes() if topics else b"") == topics
    assert not (store / "rmqctl-mirror.json").exists()


def test_a_log_that_grows_is_verified_up_to_the_end_that_it_had(tmp_path: Path, rmqctl: Rmqctl) -> None:
    log = log_of("497-basic", tmp_path)
    end = next(item.end for item in golden_store(tmp_path).commit_log.scan() if item.end > len(log.data) // 2)

    def behave(connection: socket.socket) -> None:
        connection.recv(8)
        for at in range(1, end + 37, 20_000):
            body = log.data[at : min(at + 20_000, end + 37)]
            connection.sendall(encode_transfer(at, len(body)) + body)
        connection.recv(1)

    with FakeMaster(log, behave) as master:
        master.max_offset = end
        found = rmqctl("replicate", master.address, "--verify-only", "-o", "json")
    assert (found.code, found.document()["findings"]) == (0, [])
    assert found.document()["okUpTo"] == end


@pytest.mark.parametrize(
    "settings",
    [
        {"haListenPort": "70000"},
        {"haListenPort": "x"},
        {"maxIndexNum": str(2**31 - 1)},
        {"mappedFileSizeCommitLog": str(2**31)},
        {"mappedFileSizeCommitLog": "-5"},
    ],
)
def test_settings_that_no_broker_has_are_refused(settings: dict[str, str], tmp_path: Path, rmqctl: Rmqctl) -> None:
    with FakeMaster(log_of("497-basic", tmp_path), settings=settings) as master:
        found = rmqctl("replicate", master.address, tmp_path / "new", "--once", "--yes")
    assert (found.code, found.err.count("\n")) == (4, 1), found.err
    assert not (tmp_path / "new").exists()


def test_a_copy_that_another_process_writes_is_left_alone(tmp_path: Path, rmqctl: Rmqctl) -> None:
    log, new = log_of("497-basic", tmp_path), tmp_path / "new"
    with FakeMaster(log) as master:
        command = [sys.executable, "-m", "rmqctl", "replicate", master.address, str(new), "--yes"]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            end = time.monotonic() + 20
            while not (new / "config/topics.json").exists() and time.monotonic() < end:
                time.sleep(0.05)
            assert refused_at_once(rmqctl, master, new, 11)
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 130
    assert log_bytes(new) == log.data
    assert not (new / "abort").exists()


def test_a_killed_copy_that_is_damaged_is_left_alone(tmp_path: Path, rmqctl: Rmqctl) -> None:
    log, new = log_of("497-basic", tmp_path), tmp_path / "new"
    with FakeMaster(log) as master:
        assert rmqctl("replicate", master.address, new, "--once", "--yes").code == 0
        (new / "abort").touch()
        write_at(new / "commitlog" / f"{2 * log.file_size:020}", 4, b"xxxx")
        before = tree_hash(new)
        assert "would lose" in refused_at_once(rmqctl, master, new, 1)
    assert tree_hash(new) == before


def test_a_killed_copy_without_an_index_gets_the_one_of_its_master(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """The version of the master shows whether TAGS are indexed, if no index shows it."""
    log, new = log_of("533-basic", tmp_path), tmp_path / "new"
    with FakeMaster(log, version="V5_3_3") as master:
        assert rmqctl("replicate", master.address, new, "--once", "--yes").code == 0
        (new / "abort").touch()
        (new / "abort.bak").touch()
        shutil.rmtree(new / "index")
        assert rmqctl("rebuild", new, "index", "--dry-run").code == 2
        found = rmqctl("replicate", master.address, new, "--once", "--yes")
    assert found.code == 0, found.err
    assert "this mirror was killed: it goes on" in found.err
    assert list((new / "index").iterdir())


def test_a_killed_copy_of_another_log_can_be_undone(tmp_path: Path, rmqctl: Rmqctl) -> None:
    log, new = log_of("497-basic", tmp_path), tmp_path / "new"
    with FakeMaster(log) as master:
        assert rmqctl("replicate", master.address, new, "--once", "--yes").code == 0
        (new / "abort").touch()
        log.data = log.data[:-5] + b"other"
        found = rmqctl("replicate", master.address, new, "--once", "--yes")
        assert (found.code, "these are different logs" in found.err) == (1, True)
        assert rmqctl("undo", new, "--list", "-o", "json").document()["journals"]


def test_a_slave_acknowledges_nothing_before_its_end_is_compared(tmp_path: Path, rmqctl: Rmqctl) -> None:
    log, store, reports = log_of("497-basic", tmp_path), unpack("497-basic", tmp_path), []
    other = log.data[:-5] + b"other"

    def behave(connection: socket.socket) -> None:
        at = int.from_bytes(connection.recv(8), "big")
        connection.sendall(encode_transfer(at, 1000) + other[at : at + 1000])
        connection.settimeout(0.3)
        try:
            while data := connection.recv(8):
                reports.append(int.from_bytes(data, "big"))
        except TimeoutError:
            connection.sendall(encode_transfer(at + 1000, len(other) - at - 1000) + other[at + 1000 :])
            connection.recv(1)

    with FakeMaster(log, behave) as master:
        found = rmqctl("replicate", master.address, store, "--once", "--yes", "--as-slave")
    assert (found.code, "these are different logs" in found.err) == (1, True), found.err
    assert reports == []


@pytest.mark.parametrize("number", [0, 2, -1])
def test_an_append_that_was_killed_is_done_again(number: int, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Of an append, all but the first bytes are there."""
    log, new = log_of("497-basic", tmp_path), tmp_path / "new"
    starts = [item.physical_offset for item in golden_store(tmp_path).commit_log.scan()]
    last_file = (len(log.data) - 1) // log.file_size * log.file_size
    start = [at for at in starts if at >= last_file][number]
    with FakeMaster(log) as master:
        assert rmqctl("replicate", master.address, new, "--once", "--yes").code == 0
        (new / "abort").touch()
        write_at(new / "commitlog" / f"{last_file:020}", start - last_file, bytes(8))
        found = rmqctl("replicate", master.address, new, "--once", "--yes")
    assert found.code == 0, found.err
    assert f"goes on at offset {start}" in found.err
    assert log_bytes(new) == log.data
    assert codes(new) <= NOT_OF_THIS_LOG


def test_a_heartbeat_inside_a_record_is_no_end(tmp_path: Path, rmqctl: Rmqctl) -> None:
    log = log_of("497-basic", tmp_path)
    middle = len(log.data) - 30

    def behave(connection: socket.socket) -> None:
        at = int.from_bytes(connection.recv(8), "big")
        connection.sendall(encode_transfer(at, middle - at) + log.data[at:middle] + encode_transfer(middle, 0))
        time.sleep(0.1)
        connection.sendall(encode_transfer(middle, 30) + log.data[middle:])
        connection.recv(1)

    with FakeMaster(log, behave) as master:
        assert rmqctl("replicate", master.address, tmp_path / "new", "--once", "--yes").code == 0
        master.max_offset = log.max_offset - 100
        assert rmqctl("replicate", master.address, "--verify-only").code == 0


def test_a_bound_on_the_rate_holds(tmp_path: Path, rmqctl: Rmqctl) -> None:
    log = log_of("497-basic", tmp_path)
    with FakeMaster(log) as master:
        began = time.monotonic()
        found = rmqctl("replicate", master.address, "--verify-only", "--max-bytes-per-second", str(len(log.data) // 2))
        assert found.code == 0
        assert time.monotonic() - began > 1.5


class Answers:
    """A broker of 5.x; `topics_text` is its answer to request 21."""

    def __init__(self, topics_text: str = '{"dataVersion":{"counter":1},"topicConfigTable":{"a":{"perm":6}}}') -> None:
        self._topics = topics_text

    def topics(self) -> str:
        return self._topics

    def consumer_offsets(self) -> str:
        return '{"offsetTable":{"a@g":{0:5}}}'

    def delay_offsets(self) -> str:
        return '{"offsetTable":{}}'

    def subscription_groups(self) -> str:
        return '{"subscriptionGroupTable":{}}'

    def message_request_modes(self) -> str:
        return '{"messageRequestModeMap":{}}'

    def timer_metrics(self) -> None:
        return None

    def timer_checkpoint(self) -> bytes:
        return struct.pack(">7q", *TIMES)


def broker(answers: Answers | None = None) -> BrokerRequests:
    return cast("BrokerRequests", answers or Answers())


def test_each_answer_is_a_file(tmp_path: Path) -> None:
    write_texts(tmp_path, fetch_offsets(MASTER, broker()) | fetch_names(MASTER, broker()))
    assert sorted(path.name for path in (tmp_path / "config").iterdir()) == [
        "consumerOffset.json", "delayOffset.json", "messageRequestMode.json", "subscriptionGroup.json", "timercheck",
        "topics.json",
    ]  # fmt: skip
    assert (tmp_path / "config/consumerOffset.json").read_text() == '{"offsetTable":{"a@g":{0:5}}}'


def test_static_topics_have_a_file_of_their_own(tmp_path: Path) -> None:
    """The file is not written without static topics, but overwrites the last static topic when it is gone."""
    file = tmp_path / "config" / "topicQueueMapping.json"
    for mappings, expected in (("{}", None), ('{"s":{"hostedQueues":{0:[{"gen":0}]}}}', ["s"]), ("{}", [])):
        version = '"mappingDataVersion":{"counter":7}'
        said = f'{{"topicConfigTable":{{}},"dataVersion":{{}},{version},"topicQueueMappingDetailMap":{mappings}}}'
        write_texts(tmp_path, fetch_names(MASTER, broker(Answers(said))))
        topics = fastjson_loads((tmp_path / "config" / "topics.json").read_text())
        assert set(topics) == {"topicConfigTable", "dataVersion"}
        assert file.exists() == (expected is not None)
        if expected is not None:
            found = fastjson_loads(file.read_text())
            assert (found["dataVersion"], list(found["topicQueueMappingInfoMap"])) == ({"counter": 7}, expected)


def test_a_copy_has_no_timer_log() -> None:
    found = struct.unpack(">7q", fetch_offsets(MASTER, broker())["timercheck"])
    assert found == (TIMES[0], 0, 0, *TIMES[3:])


@pytest.mark.parametrize("said", ["", "[1]", "{", "<html>"])
def test_what_is_not_a_json_object_is_no_configuration(said: str) -> None:
    with pytest.raises(PeerError, match=r"topics\.json is not"):
        fetch_names(MASTER, broker(Answers(said)))
