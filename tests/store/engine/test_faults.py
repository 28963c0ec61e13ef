"""Each call to the system fails, in each way: an error is told, nothing acknowledged is lost, and what
is left loads.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import closing, suppress
from copy import deepcopy
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import PRE_BLANK_SIZE
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.logfile.writable_mapped_file_queue import WritableMappedFileQueue
from rmqctl.operations.append.appender import Appender, Refused
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.write.consume_queue_writer import ConsumeQueueWriter
from rmqctl.store.write.put_message import AppendMessageResult, PutMessageStatus
from tests.conftest import tree_hash
from tests.support.faulty_system import (
    CRASHES,
    Crashed,
    CrashingSystem,
    Fault,
    FaultySystem,
    every_fault,
    open_descriptors,
)
from tests.support.golden_store import GOLDEN
from tests.support.small_store import SMALL, created, findings, message, stored
from tests.support.written_under_faults import Written, assert_goes_on, assert_whole, written_with

ONCE = (Fault.NO_SPACE, Fault.IO_ERROR, Fault.TORN_WRITE)  # the put after the one that failed is taken


def written_at(
    folder: Path, fault: Fault, step: int, geometry: Geometry, *, puts: int, size: int, sync: bool
) -> Iterator[tuple[FaultySystem, Written]]:
    """Every `step`-th call fails, in the last one none; what it was told of the puts."""
    if fault in CRASHES:
        written = Written()
        system = CrashingSystem(folder / fault.name, fault, step, partial(deepcopy, written))
        written_with(system, written, geometry, puts=puts, size=size, sync=sync)
        for left in system.left:
            yield left, left.noted
            shutil.rmtree(left.root, ignore_errors=True)
        yield system, written
        return
    for failing in every_fault(folder, fault, step):
        written = Written()
        written_with(failing, written, geometry, puts=puts, size=size, sync=sync)
        yield failing, written


def check(system: FaultySystem, written: Written, geometry: Geometry, seen: set[tuple[str, ...]]) -> None:
    """What is left, and after a crash also what a power failure would leave of it; what is in `seen` is not new."""
    if system.crashed:
        for number, chance in enumerate((None, random.Random(system.at))):
            left = system.root.with_name(f"{system.root.name}-left-{number}")
            system.after_power_failure(left, chance)
            check_left(left, written, geometry, seen, power_failed=True)
            shutil.rmtree(left, ignore_errors=True)
    check_left(system.root, written, geometry, seen, power_failed=False)


def check_left(
    root: Path, written: Written, geometry: Geometry, seen: set[tuple[str, ...]], *, power_failed: bool
) -> None:
    """Many calls change nothing on the disk, so that many crashes leave the same."""
    left = tree_hash(root)
    told = (left, repr(vars(written)), str(power_failed))
    if told not in seen:
        assert_whole(root, written, power_failed=power_failed)
    if (left,) not in seen:
        assert_goes_on(root, geometry)
    seen |= {told, (left,)}


def cross(
    folder: Path, fault: Fault, step: int, geometry: Geometry, *, puts: int, size: int, sync: bool = False
) -> int:
    """Every `step`-th call fails; how many calls there are."""
    seen: set[tuple[str, ...]] = set()
    for system, written in written_at(folder, fault, step, geometry, puts=puts, size=size, sync=sync):
        try:
            check(system, written, geometry, seen)
            assert written.broken or fault not in ONCE or written.refused <= 1
        except Exception as error:
            error.add_note(str(system))
            raise
    assert len(written.acknowledged) > puts  # the last time nothing failed
    assert not written.refused
    return system.calls


@pytest.mark.parametrize("fault", Fault)
def test_some_calls_fail(fault: Fault, tmp_path: Path) -> None:
    of_writes = fault in (Fault.TORN_WRITE, Fault.CRASH_WITHIN, Fault.SHORT_WRITE)
    calls = cross(tmp_path, fault, 5 if of_writes else 29, SMALL, puts=16, size=700)
    assert calls > (40 if of_writes else 150)


@pytest.mark.slow
@pytest.mark.parametrize("fault", Fault)
def test_many_calls_fail(fault: Fault, tmp_path: Path) -> None:
    """Each of them where the process ends: nobody then puts anything back; after a call is before the next one."""
    step = 1 if fault in (Fault.CRASH_BEFORE, Fault.CRASH_WITHIN) else 5
    assert cross(tmp_path, fault, step, SMALL, puts=24, size=700, sync=fault in CRASHES)


@pytest.mark.slow
@pytest.mark.parametrize("fault", Fault)
def test_some_calls_fail_with_the_sizes_of_the_golden_stores(fault: Fault, tmp_path: Path) -> None:
    assert cross(tmp_path, fault, 61, GOLDEN, puts=300, size=2000) > 900


def test_when_there_is_room_again_messages_are_taken_again(tmp_path: Path) -> None:
    """At each place where a disk can become full while messages are put, a file is made, or a record
    is half written.
    """
    refused = 0
    for system in every_fault(tmp_path, Fault.FULL_DISK):
        with closing(created(system.root)) as store, system:
            statuses = [store.put_message(message(number, body=bytes([number]) * 900)).status for number in range(12)]
            system.heal()
            assert store.put_message(message(13)).is_ok
            assert store.put_message(message(14)).is_ok
        assert findings(system.root) == []
        assert len(stored(system.root)) == statuses.count(PutMessageStatus.PUT_OK) + 2
        refused += len(statuses) - statuses.count(PutMessageStatus.PUT_OK)
    assert refused > 50


def test_a_message_is_told_as_stored_when_it_is_on_the_disk(tmp_path: Path) -> None:
    told: list[AppendMessageResult | Refused] = []
    system = FaultySystem(tmp_path / "s")
    store = created(system.root)
    appender = Appender(store, told.append, told.append, sync=True)

    def fail(name: str) -> None:
        if name == "fdatasync":
            raise OSError(errno.EIO, "Input/output error")

    with system:
        appender.put(1, message(1), is_copy=False)
        system.before_sync = fail
        with pytest.raises(OSError, match="Input/output error"):
            appender.put(2, message(2), is_copy=False)
        with pytest.raises(OSError, match="Input/output error"):
            store.close()
    assert [type(line) for line in told] == [AppendMessageResult]
    assert len(stored(system.root)) == 2


def test_a_log_that_cannot_be_read_leaves_no_gap_in_the_queues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = created(tmp_path / "s")
    assert store.put_message(message()).is_ok

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("rmqctl.logfile.system.storage.Storage.read_into", fail)
        patch.setattr("rmqctl.logfile.system.storage.Storage.read", fail)
        with pytest.raises(OSError, match="cannot be read"):
            store.dispatch()
    with pytest.raises(OSError, match="cannot be read"):
        store.close()
    assert (tmp_path / "s" / "abort").exists()


def test_pre_blank_units_never_stand_alone(tmp_path: Path) -> None:
    """4.x takes the end of such a queue for 2^31 - 1."""
    units = np.array([(100, 50, 0), (150, 50, 0)], UNITS)
    found = set()
    for fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER):
        for system in every_fault(tmp_path, fault):
            before = open_descriptors()
            folder = system.root / "queue"
            with system, suppress(Crashed):
                ConsumeQueueWriter(WritableMappedFileQueue(WritableStorage(system.root), [folder], 200)).put(
                    13, units, np.array([1, 2])
                )
            system.end_process(before)
            found |= {path.read_bytes() for path in folder.rglob("0*")}
    pre_blank = np.array([(0, PRE_BLANK_SIZE, 0)] * 3, UNITS)
    assert found == {bytes(200), pre_blank.tobytes() + units.tobytes() + bytes(100)}


def test_a_store_is_closed_once(tmp_path: Path) -> None:
    before = open_descriptors()
    store = created(tmp_path / "s")
    store.put_message(message())
    store.close()
    opened = os.open(tmp_path, os.O_RDONLY)  # it may have a number that the store had
    store.close()
    os.close(opened)
    assert open_descriptors() <= before
