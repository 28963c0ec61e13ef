"""What is left when the system fails under rmqctl, loaded by the real RocketMQ: all that was acknowledged and flushed
is there.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.store.config.store_path import ABORT
from tests.interop.readings import about, for_harness
from tests.real_store.harness import RealRocketMQ
from tests.support.faulty_system import CRASHES, Fault, FaultySystem
from tests.support.golden_store import GOLDEN
from tests.support.written_under_faults import Written, written_with

pytestmark = pytest.mark.interop

SIZES = for_harness(GOLDEN)
# calls in the midst of it: of all calls, and of writes
AT = {fault: 230 if fault in (Fault.SHORT_WRITE, Fault.TORN_WRITE, Fault.CRASH_WITHIN) else 401 for fault in Fault}
LIGHT = {"enableLmq": "true", "enableMultiDispatch": "true"}


def test_the_real_store_loads_what_is_left(tmp_path: Path) -> None:
    left, must = {}, {}
    for fault in (Fault.TORN_WRITE, Fault.FULL_DISK, Fault.DEAD_DISK, *CRASHES):
        system = FaultySystem(tmp_path / f"made-{fault}", fault, AT[fault])
        written = Written()
        written_with(system, written, GOLDEN, puts=200, size=2000, sync=True)
        assert system.happened
        assert (system.root / ABORT).exists() or fault is Fault.TORN_WRITE
        left[fault] = tmp_path / f"left-{fault}"
        if system.crashed:
            system.after_power_failure(left[fault])
        else:
            shutil.copytree(system.root, left[fault])
        must[fault] = [kept for kept in written.acknowledged[: written.flushed] if kept.in_queue]
        assert len(must[fault]) > 20
    for version in ("4.9.7", "5.3.3"):
        copies = [shutil.copytree(root, tmp_path / f"{version}-{fault}") for fault, root in left.items()]
        answers = RealRocketMQ(version).read_all(copies, start=True, geometry=SIZES, settings=LIGHT)
        for fault, answer in zip(left, answers, strict=True):
            with about(fault, version):
                assert answer["load"] is True
                consumable = {(message["physicalOffset"], message["queueOffset"]) for message in answer["messages"]}
                assert {(kept.physical_offset, kept.queue_offset) for kept in must[fault]} <= consumable
