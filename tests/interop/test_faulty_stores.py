"""What is left when the system fails under rmqctl, loaded by the real RocketMQ: all that was acknowledged and flushed
is there.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.store.config.store_path import ABORT
from tests.real_store.harness import Geometry, RealRocketMQ
from tests.store.engine.test_faults import GOLDEN, written_with
from tests.support.faulty_system import CRASHES, Fault, FaultySystem

pytestmark = pytest.mark.interop

SIZES = Geometry(
    GOLDEN.commitlog_file_size, GOLDEN.consumequeue_file_size // 20, GOLDEN.index_slots, GOLDEN.index_entries
)
# calls in the midst of it: of all calls, and of writes
AT = {fault: 230 if fault in (Fault.SHORT_WRITE, Fault.TORN_WRITE, Fault.CRASH_WITHIN) else 401 for fault in Fault}


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
@pytest.mark.parametrize("fault", [Fault.TORN_WRITE, Fault.FULL_DISK, Fault.DEAD_DISK, *CRASHES])
def test_the_real_store_loads_what_is_left(fault: Fault, version: str, tmp_path: Path) -> None:
    system = FaultySystem(tmp_path / "made", fault, AT[fault])
    written = written_with(system, GOLDEN, puts=200, size=2000, sync=True)
    assert system.happened
    assert (system.root / ABORT).exists() or fault is Fault.TORN_WRITE
    if system.crashed:
        system.after_power_failure(tmp_path / "left")
    else:
        shutil.copytree(system.root, tmp_path / "left")
    light = {"enableLmq": "true", "enableMultiDispatch": "true"}
    answer = RealRocketMQ(version).read(tmp_path / "left", start=True, geometry=SIZES, settings=light)
    assert answer["load"] is True
    consumable = {(message["physicalOffset"], message["queueOffset"]) for message in answer["messages"]}
    must = [kept for kept in written.acknowledged[: written.flushed] if kept.in_queue]
    assert len(must) > 20
    assert {(kept.physical_offset, kept.queue_offset) for kept in must} <= consumable
