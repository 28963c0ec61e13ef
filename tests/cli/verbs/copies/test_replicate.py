"""The command line of `replicate`: what it prints on the way and in the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.cli.views.change.replicate_run import ReplicateProgress
from rmqctl.operations.replicate.log_pull import Progress
from tests.conftest import Rmqctl
from tests.support.fake_master import FakeMaster
from tests.support.ha_slave import MemoryLog

if TYPE_CHECKING:
    import pytest


def test_progress_has_rate_and_lag(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("rmqctl.cli.views.change.replicate_run.time.monotonic", lambda: now[0])
    shown = {mode: ReplicateProgress(mode) for mode in ("json", "auto", "none")}
    for seconds in (0.5, 10, 20):  # nothing has changed at the last
        now[0] = 100 + seconds
        for progress in shown.values():
            progress.show(Progress(bytes=4000, messages=7, max_offset=5000, master_offset=6500))
    first, second = capsys.readouterr().err.splitlines()
    assert json.loads(first) == {
        "progress": "replicate",
        "bytes": 4000,
        "maxPhyOffset": 5000,
        "bytesPerSecond": 400,
        "lagBytes": 1500,
    }
    assert second == "at 5000 of 6500, 1500 bytes behind, 400 bytes/s"


def test_the_table_says_what_was_copied(tmp_path: Path, rmqctl: Rmqctl) -> None:
    with FakeMaster(MemoryLog(b"", 65536)) as master:
        found = rmqctl("replicate", master.address, tmp_path / "new", "--once", "--yes")
        assert found.code == 0
        assert f"master        {master.address}" in found.out
        assert "maxPhyOffset  0" in found.out
        assert "store" not in rmqctl("replicate", master.address, "--verify-only").out


def test_what_is_not_an_address_is_wrong_usage(rmqctl: Rmqctl, tmp_path: Path) -> None:
    found = rmqctl("replicate", "10.1.2.3", tmp_path / "new", "--once", "--yes")
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert "expected HOST:PORT" in found.err


def test_a_copy_that_stores_nothing_acknowledges_nothing(rmqctl: Rmqctl) -> None:
    found = rmqctl("replicate", "10.1.2.3:10911", "--verify-only", "--as-slave")
    assert found.code == 2
    assert "leave out --as-slave" in found.err
