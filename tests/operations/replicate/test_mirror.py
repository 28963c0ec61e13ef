"""A mirror whose run ends at any call to the system: the next run goes on, and loses nothing."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from rmqctl.format.message import Damage
from rmqctl.format.profile import PROFILE_5_4
from rmqctl.logfile.memory import allocate
from rmqctl.operations.replicate.master import Master
from rmqctl.operations.replicate.mirror import end_after_start, is_new, open_mirror
from rmqctl.remoting.address import Address
from rmqctl.store.config.broker_conf import broker_conf_of
from rmqctl.store.config.java_properties import JavaProperties
from rmqctl.store.ha.received_log import ReceivedLog
from tests.conftest import tree_hash
from tests.support.fake_master import golden_store, log_of
from tests.support.faulty_system import CRASHES, Fault, FaultySystem, crash_points
from tests.support.mirror_log import log_bytes
from tests.support.written_under_faults import Inline

RECORDS = 3
SIZES = {
    "mappedFileSizeConsumeQueue": "400", "maxHashSlotNum": "10", "maxIndexNum": "40",
}  # fmt: skip
MASTER = Master(
    address=Address("127.0.0.1", 10911),
    ha_port=10912,
    role="ASYNC_MASTER",
    version="V5_4_0",
    profile=PROFILE_5_4,
    conf=broker_conf_of(JavaProperties(Path("broker.conf"), SIZES)),
    controller_mode=False,
    slave_timeout=3.0,
)


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow, id="each"), pytest.param(7, id="some")])
@pytest.mark.parametrize("fault", CRASHES)
def test_a_crash_at_every_call(fault: Fault, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocate, "ThreadPoolExecutor", Inline)
    golden = log_of("497-basic", tmp_path)
    ends = [item.physical_offset for item in golden_store(tmp_path).commit_log.scan()][1 : RECORDS + 1]
    master = MASTER._replace(conf=MASTER.conf._replace(commitlog_file_size=golden.file_size))

    def replicate(root: Path) -> int:
        """Copy the records that are missing; return the physical offset at which the copy began."""
        store = open_mirror(root, master, 1, lambda _: None)
        start = store.max_phy_offset
        received = ReceivedLog(start, golden.file_size)
        for begin, end in pairwise([start, *(end for end in ends if end > start)]):
            received.add(memoryview(golden.data[begin:end]))
            for part in received.parts():
                assert not isinstance(part.item, Damage)
                store.append_to_commit_log(part.offset, part.data, part.item)
        store.close()
        return start

    def check(system: FaultySystem) -> None:
        before = tree_hash(system.root)
        foretold = 0 if is_new(system.root) else end_after_start(system.root, master, 1)
        assert tree_hash(system.root) == before
        start = replicate(system.root)
        assert foretold in (start, None)
        assert log_bytes(system.root) == golden.data[: ends[-1]]

    points = crash_points(tmp_path, fault, lambda root: None, replicate, check, step)
    assert points > (2 if fault is Fault.CRASH_WITHIN else 60) // step
