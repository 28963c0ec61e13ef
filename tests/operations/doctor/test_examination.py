"""How often an examination reads the log, and what it does without a simulated start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.operations.doctor.examination import Examination, Examiner
from rmqctl.store.read.commit_log import CommitLog
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.read.version_guess import guess_profile

Golden = Callable[[str], Path]


def examine(root: Path) -> Examination:
    store = ReadOnlyStore(root)
    return Examiner(store, guess_profile(store), 1).run()


@pytest.mark.parametrize("name", ["471-basic", "533-lmq"])
def test_a_healthy_store_is_read_once(name: str, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []
    scan_columns = CommitLog.scan_columns

    def counted(self: CommitLog, *arguments: Any, **options: Any) -> Any:
        passes.append(options.get("start"))
        return scan_columns(self, *arguments, **options)

    monkeypatch.setattr(CommitLog, "scan_columns", counted)
    found = examine(golden(name))
    assert (found.findings, found.repairs.plain, passes) == ((), None, [None])


def test_the_start_is_the_one_that_recover_simulates(golden: Golden) -> None:
    root = golden("497-crash")
    found = examine(root)
    assert found.restart is not None
    assert found.repairs.plain is not None
    assert found.restart == found.repairs.plain.restart


def test_a_start_beside_a_queue_file_off_its_grid_is_simulated(golden: Golden) -> None:
    root = golden("497-basic")
    path = next(path for path in (root / "consumequeue").rglob("0*") if path.is_file())
    path.rename(path.with_name(f"{int(path.name) + 7:020d}"))
    found = examine(root)
    assert found.restart is not None
    assert "file-length" in {finding.code for finding in found.findings}
    assert found.repairs.plain is not None
