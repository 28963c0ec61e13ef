"""A small store is repaired without numba, and to the same result."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from rmqctl.errors import RmqctlError
from rmqctl.format.profile import PROFILES
from rmqctl.operations.rebuild.rebuild import Rebuild
from rmqctl.operations.rebuild.selection import Selection
from rmqctl.operations.repair.analysis import RecoveryPolicy
from rmqctl.operations.repair.recovery_plan import plan_recovery
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import tree_hash, unpack
from tests.support.file_edits import write_at
from tests.support.golden_store import CASES, damaged, profile_of
from tests.support.plain_kernels import plain_kernels


def planned(root: Path, profile: str) -> Any:
    """The plan of `recover --keep-going`, or why there is none."""
    try:
        plan = plan_recovery(ReadOnlyStore(root), RecoveryPolicy(PROFILES[profile], keep_going=True))
    except RmqctlError as error:
        return str(error)
    blocks = list(plan.repair.placeholders)
    return asdict(replace(plan, repair=replace(plan.repair, placeholders=blocks), seconds=0.0))  # type: ignore[arg-type]


def rebuilt(root: Path, staging: Path) -> str:
    """The digest of queues and index as a rebuild writes them."""
    staging.mkdir()
    Rebuild(ReadOnlyStore(root), Selection(), staging).run()
    return tree_hash(staging)


@pytest.mark.parametrize("name", sorted(CASES)[::9])
def test_plain_and_compiled_kernels_agree(name: str, tmp_path: Path) -> None:
    root, profile = damaged(name, tmp_path), profile_of(CASES[name]["base"])
    compiled = planned(root, profile), rebuilt(root, tmp_path / "compiled")
    with plain_kernels():
        assert (planned(root, profile), rebuilt(root, tmp_path / "plain")) == compiled


def test_a_queue_offset_at_the_end_of_int64(tmp_path: Path) -> None:
    """The first file of the queue would begin below the smallest int64."""
    root = unpack("497-basic", tmp_path)
    shutil.rmtree(root / "consumequeue")
    log = next((root / "commitlog").iterdir())
    write_at(log, 20, bytes.fromhex("8000000000000000"))
    compiled = planned(root, "4.9"), rebuilt(root, tmp_path / "compiled")
    with plain_kernels():
        assert (planned(root, "4.9"), rebuilt(root, tmp_path / "plain")) == compiled
