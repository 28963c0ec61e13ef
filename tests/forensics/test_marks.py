"""Marks: what they cannot take the place of."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.forensics.marks import Marks
from rmqctl.format.damage import Damage
from rmqctl.format.profile import PROFILE_5_3
from rmqctl.store.read_only_store import ReadOnlyStore
from tests.conftest import unpack


def test_a_gap_that_is_no_number_of_files_gets_none(tmp_path: Path) -> None:
    root = unpack("533-basic", tmp_path)
    (root / "commitlog" / f"{65536:020d}").unlink()
    marks = Marks(ReadOnlyStore(root), PROFILE_5_3)
    whole, part = (Damage("file-gap", 65536, size, "") for size in (65536, 65000))
    with pytest.raises(ValueError, match="65000 bytes are missing"):
        marks.replace([part], 0, 131072)
    assert marks.all == []
    assert {mark.path for mark in marks.replace([whole], 0, 131072)} == {f"commitlog/{65536:020d}"}


def test_where_one_range_has_no_room_no_other_gets_any(tmp_path: Path) -> None:
    marks = Marks(ReadOnlyStore(unpack("533-basic", tmp_path)), PROFILE_5_3)
    roomy, tight = Damage("bad-magic", 1000, 500, ""), Damage("bad-magic", 70000, 20, "")
    with pytest.raises(ValueError, match="too few"):
        marks.replace([roomy, tight], 0, 131072)
    assert (marks.all, marks.added) == ([], {})
