"""Placeholders: what they cannot take the place of."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.format.message import Damage
from rmqctl.format.profile import PROFILE_5_3
from rmqctl.operations.placeholder import planner as planner_module
from rmqctl.operations.placeholder.planner import Placeholders
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import unpack


def test_a_gap_that_is_no_number_of_files_gets_none(tmp_path: Path) -> None:
    root = unpack("533-basic", tmp_path)
    (root / "commitlog" / f"{65536:020d}").unlink()
    placeholders = Placeholders(ReadOnlyStore(root), PROFILE_5_3)
    whole, part = (Damage("file-gap", 65536, size, "") for size in (65536, 65000))
    with pytest.raises(ValueError, match="65000 bytes are missing"):
        placeholders.replace([part], 0, 131072)
    assert [*placeholders.blocks] == []
    assert {placeholder.path for placeholder in placeholders.replace([whole], 0, 131072)} == {f"commitlog/{65536:020d}"}


def test_where_one_range_has_no_room_no_other_gets_any(tmp_path: Path) -> None:
    placeholders = Placeholders(ReadOnlyStore(unpack("533-basic", tmp_path)), PROFILE_5_3)
    roomy, tight = Damage("bad-magic", 1000, 500, ""), Damage("bad-magic", 70000, 20, "")
    with pytest.raises(ValueError, match="too few"):
        placeholders.replace([roomy, tight], 0, 131072)
    assert not placeholders.blocks


@pytest.mark.parametrize("base", ["471-batch", "497-lmq", "533-basic"])
def test_a_large_range_is_marked_part_by_part_alike(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = unpack(base, tmp_path)
    (root / "commitlog" / f"{65536:020d}").unlink()
    gap = Damage("file-gap", 65536, 65536, "")
    placeholders, parts = Placeholders(ReadOnlyStore(root), PROFILE_5_3), Placeholders(ReadOnlyStore(root), PROFILE_5_3)
    (whole,) = placeholders.replace([gap], 0, 131072)
    monkeypatch.setattr(planner_module, "WINDOW_SIZE", 5000)
    monkeypatch.setattr(planner_module, "BLOCK_SIZE", 3000)
    blocks = parts.replace([gap], 0, 131072)
    assert len(blocks) > 10
    assert b"".join(block.data for block in blocks) == whole.data
    assert parts.blocks.served == placeholders.blocks.served == whole.served > 50
    assert [block.physical_offset for block in parts.blocks] == [65536 + block.offset for block in blocks]
    for row in whole.columns().rows:
        at = whole.physical_offset + int(row["position"])
        assert parts.message_at(at) == placeholders.message_at(at) is not None
    assert parts.message_at(65537) is None
