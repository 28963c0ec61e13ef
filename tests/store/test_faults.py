"""Each call to the system fails, in each way: an error is told, nothing acknowledged is lost, and what is left loads."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqctl.store.message_store import Geometry
from tests.faulty_system import CRASHES, Crashed, Fault, FaultySystem, close_all, every_fault, open_descriptors
from tests.store.test_message_store import SMALL
from tests.store.written_under_faults import Written, assert_goes_on, assert_whole, write_everything

GOLDEN = Geometry(64 * 1024, 1000, 100, 400)  # the sizes of the golden stores


def written_with(system: FaultySystem, geometry: Geometry, *, puts: int, size: int, sync: bool) -> Written:
    """Write everything while `system` fails; no descriptor is left open but by a process that is gone."""
    written = Written()
    before = open_descriptors()
    with system:
        try:
            write_everything(system.root, written, geometry, puts=puts, size=size, sync=sync)
        except Crashed:
            close_all(open_descriptors() - before)
    assert open_descriptors() <= before
    return written


def check(system: FaultySystem, written: Written, geometry: Geometry) -> None:
    """What is left, and after a crash also what a power failure would leave of it."""
    if system.crashed:
        for number, chance in enumerate((None, random.Random(system.at))):
            left = system.root.with_name(f"{system.root.name}-left-{number}")
            system.after_power_failure(left, chance)
            assert_whole(left, written, power_failed=True)
            assert_goes_on(left, geometry)
    assert_whole(system.root, written)
    assert_goes_on(system.root, geometry)


def cross(folder: Path, fault: Fault, step: int, geometry: Geometry, *, puts: int, size: int, sync: bool = False) -> int:
    """Every `step`-th call fails; how many calls there are."""
    for system in every_fault(folder, fault, step):
        try:
            written = written_with(system, geometry, puts=puts, size=size, sync=sync)
            check(system, written, geometry)
        except Exception as error:
            error.add_note(str(system))
            raise
    assert len(written.acknowledged) > puts  # the last time nothing failed
    assert not written.refused
    return system.calls


@pytest.mark.parametrize("fault", Fault)
def test_some_calls_fail(fault: Fault, tmp_path: Path) -> None:
    of_writes = fault in (Fault.TORN_WRITE, Fault.CRASH_WITHIN, Fault.SHORT_WRITE)
    calls = cross(tmp_path, fault, 3 if of_writes else 13, SMALL, puts=16, size=700)
    assert calls > (60 if of_writes else 150)


@pytest.mark.slow
@pytest.mark.parametrize("fault", Fault)
def test_every_call_fails(fault: Fault, tmp_path: Path) -> None:
    assert cross(tmp_path, fault, 1, SMALL, puts=24, size=700, sync=fault in CRASHES)


@pytest.mark.slow
@pytest.mark.parametrize("fault", Fault)
def test_some_calls_fail_with_the_sizes_of_the_golden_stores(fault: Fault, tmp_path: Path) -> None:
    assert cross(tmp_path, fault, 61, GOLDEN, puts=300, size=2000) > 1000
