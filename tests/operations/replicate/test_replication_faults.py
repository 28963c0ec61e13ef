"""`replicate` on a disk that fails: one line, exit 4, nothing wrong stored, and the same command goes on later."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.store.ha.received_log import ReceivedLog
from tests.conftest import Rmqctl
from tests.operations.replicate.test_replication import NOT_OF_THIS_LOG, codes, log_of
from tests.support.fake_master import FakeMaster
from tests.support.faulty_system import Fault, every_fault
from tests.support.ha_slave import MemoryLog
from tests.support.mirror_log import log_bytes

SOME = 149  # each so-many-th call fails: all of them take minutes
SIZE = 60_000  # bytes of the log


@pytest.mark.parametrize("fault", [Fault.FULL_DISK, Fault.IO_ERROR])
def test_a_disk_that_fails_spoils_nothing(fault: Fault, tmp_path: Path, rmqctl: Rmqctl) -> None:
    golden = log_of("497-basic", tmp_path)
    log = MemoryLog(golden.data[:SIZE], golden.file_size)
    log.data = log.data[: whole_records(log)]
    failed = 0
    with FakeMaster(log) as master:
        for system in every_fault(tmp_path, fault, SOME):
            command = ("replicate", master.address, system.root, "--once", "--yes")
            with system:
                found = rmqctl(*command)
            failed += found.code == 4
            assert (found.code, found.err.count("\n")) in ((4, 1), (0, 0)), (str(system), found.err)
            if (system.root / "commitlog").exists():
                assert log.data.startswith(log_bytes(system.root)), str(system)
            again = rmqctl(*command)
            assert again.code == 0, (str(system), found.err, again.err)
            assert log_bytes(system.root) == log.data, str(system)
            assert codes(system.root) <= NOT_OF_THIS_LOG, str(system)
    assert failed


def whole_records(log: MemoryLog) -> int:
    """The end of the last whole record of a log."""
    received = ReceivedLog(0, log.file_size)
    received.add(memoryview(log.data))
    return max(part.offset + len(part.data) for part in received.parts())
