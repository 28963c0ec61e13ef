"""A rebuild that ends at any of its storage calls leaves the old store, the new one, or one that `undo` brings back."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from rmqctl.cli.main import run
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.store.journal.journals import list_journals
from rmqctl.store.journal.transaction import undo_last
from tests.support.faulty_system import CRASHES, Fault, FaultySystem, crash_points
from tests.support.log_maker import Record, write_log

CONF = "mappedFileSizeConsumeQueue=100\nmaxHashSlotNum=5\nmaxIndexNum=10\n"


def damaged_store(root: Path) -> None:
    """Seven messages of two queues; one has a wrong unit, the other is missing, a third has no message; the index is
    empty.
    """
    records = [Record(queue_offset=number // 2, queue_id=number % 2) for number in range(7)]
    write_log(root, records, file_size=4096)
    for queue_id in (0, 9):
        folder = root / "consumequeue" / "OrderPaid" / str(queue_id)
        folder.mkdir(parents=True)
        (folder / f"{0:020d}").write_bytes(bytes([0, 0, 0, 0, 0, 0, 7, 7, 0, 0, 1, 0]).ljust(100, b"\0"))
    (root / "index").mkdir()
    (root / "checkpoint").write_bytes(bytes(16) + b"\1" * 8 + bytes(4072))
    (root / "lock").write_bytes(b"lock")
    (root / "broker.conf").write_text(CONF)


def rebuild(root: Path) -> int:
    return run(["rebuild", str(root), "all", "--yes", "--threads", "1", "--broker-conf", str(root / "broker.conf")])


def content(root: Path) -> dict[str, bytes]:
    """Every file of the store, rmqctl's own aside."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and ".rmqctl" not in path.parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow, id="each"), pytest.param(5, id="some")])
@pytest.mark.parametrize("fault", CRASHES)
def test_a_crash_at_every_call(fault: Fault, step: int, tmp_path: Path) -> None:
    damaged_store(tmp_path / "old")
    damaged_store(tmp_path / "new")
    assert rebuild(tmp_path / "new") == 3
    old, new = content(tmp_path / "old"), content(tmp_path / "new")
    assert old != new
    seen = set()

    def check_left(root: Path) -> None:
        if any(entry.is_unfinished for entry in list_journals(WritableStorage(root), root)):
            seen.add("half")
            assert undo_last(root, WritableStorage(root), force=True) is not None
            assert content(root) == old
            assert not (root / ".rmqctl").exists()
        else:
            seen.add("old" if content(root) == old else "new")
            assert content(root) in (old, new)

    def check(system: FaultySystem) -> None:
        left = system.root.with_name(f"{system.root.name}-left")
        system.after_power_failure(left, random.Random(system.at) if system.at % 3 else None)
        check_left(left)
        shutil.rmtree(left)
        check_left(system.root)

    points = crash_points(tmp_path, fault, damaged_store, rebuild, check, step)
    assert points > (5 if fault is Fault.CRASH_WITHIN else 90) // step
    assert "old" in seen
    assert "half" in seen or fault is Fault.CRASH_WITHIN
