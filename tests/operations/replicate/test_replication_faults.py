"""`replicate` on a disk that fails: one line, exit 4, nothing wrong stored, and the same command goes on later."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rmqctl.store.ha.frames import encode_transfer
from rmqctl.store.ha.received_log import ReceivedLog
from tests.conftest import Rmqctl
from tests.support.fake_master import NOT_OF_THIS_LOG, FakeMaster, codes, golden_store, log_of
from tests.support.faulty_system import Fault, FaultySystem, every_fault
from tests.support.ha_slave import MemoryLog
from tests.support.mirror_log import log_bytes

SOME, SOME_WRITES = 149, 61  # each so-many-th call fails: all of them take minutes
SIZE = 60_000  # bytes of the log


@pytest.mark.parametrize(
    ("fault", "step"),
    [
        (Fault.FULL_DISK, SOME),
        (Fault.IO_ERROR, SOME),
        (Fault.NO_SPACE, 2 * SOME),
        (Fault.TORN_WRITE, SOME_WRITES),
    ],
)
def test_a_disk_that_fails_spoils_nothing(fault: Fault, step: int, tmp_path: Path, rmqctl: Rmqctl) -> None:
    golden = log_of("497-basic", tmp_path)
    log = MemoryLog(golden.data[:SIZE], golden.file_size)
    log.data = log.data[: whole_records(log)]
    failed = 0
    with FakeMaster(log) as master:
        for system in every_fault(tmp_path, fault, step):
            command = ("replicate", master.address, system.root, "--once", "--yes")
            with system:
                found = rmqctl(*command)
            failed += found.code == 4
            assert (found.code, found.err.count("\n")) in ((4, 1), (0, 0)), (str(system), found.err)
            assert "No space left" not in found.err or "make room, and run the same command again" in found.err
            if (system.root / "commitlog").exists():
                assert log.data.startswith(log_bytes(system.root)), str(system)
            again = rmqctl(*command)
            assert again.code == 0, (str(system), found.err, again.err)
            assert log_bytes(system.root) == log.data, str(system)
            assert codes(system.root) <= NOT_OF_THIS_LOG, str(system)
    assert failed


def test_what_a_disk_no_longer_stores_is_not_acknowledged(tmp_path: Path, rmqctl: Rmqctl) -> None:
    log, reports = log_of("497-basic", tmp_path), []
    ends = [item.end for item in golden_store(tmp_path).commit_log.scan()][9:30:10]
    system = FaultySystem(tmp_path / "new")

    def send_and_wait(connection: socket.socket) -> None:
        at = int.from_bytes(connection.recv(8), "big")
        for end in ends:
            if end == ends[-1]:
                system.strike(Fault.DEAD_DISK, 1)
            connection.sendall(encode_transfer(at, end - at) + log.data[at:end])
            while at < end and (report := connection.recv(8)):
                at = int.from_bytes(report, "big")
                reports.append(at)

    with FakeMaster(log, send_and_wait) as master, system:
        found = rmqctl("replicate", master.address, system.root, "--once", "--yes", "--as-slave")
    assert (found.code, sorted(set(reports))) == (4, ends[:-1])
    system.after_power_failure(tmp_path / "durable")
    assert log_bytes(tmp_path / "durable").startswith(log.data[: reports[-1]])


def whole_records(log: MemoryLog) -> int:
    """The end of the last whole record of a log."""
    received = ReceivedLog(0, log.file_size)
    received.add(memoryview(log.data))
    return max(part.offset + len(part.data) for part in received.parts())
