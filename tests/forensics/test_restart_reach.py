"""What verify says of a restart now is what the simulation of the restart says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.forensics.restart_reach import RestartReach
from rmqctl.forensics.verify import verify
from rmqctl.format.message import Message
from rmqctl.store.read.commit_log import ScanSummary
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.read.version_guess import guess_profile
from rmqctl.store.recovery.simulation import plan_restart
from tests.conftest import Rmqctl, apply_damage, damage_cases, each_damage, unpack
from tests.support.file_edits import flip_bits

BODY_CRC = 8  # in the first record
LOG = "commitlog/{:020d}"


def end_of_messages(store: ReadOnlyStore) -> int:
    """Where the last good message ends: a broker's log ends before a blank that no record follows."""
    return max(item.end for item in store.commit_log.scan(ScanSummary()) if isinstance(item, Message))


@each_damage()
def test_both_agree(name: str, tmp_path: Path) -> None:
    case = damage_cases()[name]
    root = unpack(case["base"], tmp_path)
    apply_damage(root, case["ops"])
    store = ReadOnlyStore(root)
    report = verify(store, 1)
    restart = plan_restart(store, guess_profile(store))
    now = report.restart_now
    if now is None:
        assert restart.refused is None
        assert restart.hangs or restart.max_phy_offset >= end_of_messages(store)
    elif now.refused or restart.refused:
        assert now.refused == restart.refused
    elif now.ends_at is None:
        assert restart.max_phy_offset >= report.summary.end
    else:
        assert now.ends_at == restart.max_phy_offset
        assert now.records <= restart.lost.records


def test_damage_before_the_start_of_the_scan_is_not_reached(golden: Callable[[str], Path], rmqctl: Rmqctl) -> None:
    """A normal start of 4.x begins at the third file from the end: damage in the first of four files is before it."""
    store = golden("broker-497")
    flip_bits(store / LOG.format(0), BODY_CRC)
    report = rmqctl("verify", store, "--level", 1, "-o", "json")
    document = report.document()
    assert document["behindDamage"]["records"] > 1000
    assert document["restartNow"] == {"profile": "4.9", "scansFrom": 262144, "offset": None, "records": 0, "bytes": 0}
    assert "a restart now drops nothing: its scan begins at 262144, after the damage" in report.err
    restart = rmqctl("recover", store, "--dry-run", "-o", "json").document()["restart"]
    assert restart["lost"] == {"records": 0, "bytes": 0}


def test_with_abort_a_start_reaches_it(golden: Callable[[str], Path], rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    flip_bits(store / LOG.format(0), BODY_CRC)
    (store / "abort").touch()
    (store / "checkpoint").unlink()
    report = rmqctl("verify", store, "--level", 1, "-o", "json")
    behind, now = report.document()["behindDamage"], report.document()["restartNow"]
    assert (now["offset"], now["records"], now["bytes"]) == (behind["offset"], behind["records"], behind["bytes"])
    assert f"a restart now ends the log at {behind['offset']} and drops {behind['records']} good messages" in report.err


@pytest.mark.parametrize("level", [1, 3])
def test_a_store_that_does_not_load(level: int, golden: Callable[[str], Path], rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    path = store / LOG.format(524288)
    path.write_bytes(path.read_bytes()[:-1])
    report = rmqctl("verify", store, "--level", level, "-o", "json")
    assert set(report.document()["restartNow"]) == {"profile", "refused"}
    assert "a restart now fails, because the broker does not load the store: commitlog:" in report.err


def test_a_whole_store_is_not_simulated(golden: Callable[[str], Path]) -> None:
    assert verify(ReadOnlyStore(golden("broker-497")), 1).restart_now is None


def test_a_reach_as_json() -> None:
    assert RestartReach("5.3", None, 5, 7, 2, 300).to_json() == {
        "profile": "5.3",
        "scansFrom": 5,
        "offset": 7,
        "records": 2,
        "bytes": 300,
    }
