"""Percents as brokers reckon them. What they lead to is in test_expiry.py."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rmqctl.format.profile import PROFILE_4_7, PROFILE_4_9, PROFILE_5_3, Profile
from rmqctl.logfile.system.storage import DiskSpace, Storage
from rmqctl.operations.clean.disk_use import CANNOT_BE_READ, disk_use, without

SPACE = DiskSpace(total=1000, free=400, usable=350, device=7)  # 600 are used; 50 are kept for root


@pytest.mark.parametrize(
    ("space", "profile", "percent"),
    [
        (SPACE, PROFILE_4_7, 60.0),
        (SPACE, PROFILE_4_9, 64.0),  # 600 of 950 are 63.2 %
        (SPACE, PROFILE_5_3, 64.0),
        (SPACE._replace(usable=400), PROFILE_4_9, 60.0),  # nothing to be rounded
        (DiskSpace(1000, 1000, 1000, 7), PROFILE_4_9, 0.0),
        (DiskSpace(1000, 0, 0, 7), PROFILE_4_9, 100.0),
        (DiskSpace(1000, 999, 999, 7), PROFILE_4_9, 1.0),
        (DiskSpace(0, 0, 0, 7), PROFILE_4_9, CANNOT_BE_READ),  # such as /proc
        (None, PROFILE_4_9, CANNOT_BE_READ),
    ],
)
def test_a_disks_use(
    space: DiskSpace | None, profile: Profile, percent: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Storage, "disk_space", lambda _storage, _path: space)
    assert disk_use(Storage(tmp_path), tmp_path, profile).used_percent == percent


@pytest.mark.parametrize(("profile", "percents"), [(PROFILE_4_7, [59.9, 50.0, 0.0]), (PROFILE_4_9, [64.0, 53.0, 0.0])])
def test_what_is_given_back_is_used_no_more(
    profile: Profile, percents: list[float], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Storage, "disk_space", lambda _storage, _path: SPACE)
    disk = disk_use(Storage(tmp_path), tmp_path, profile)
    assert [without(disk, freed, profile).used_percent for freed in (1, 100, 5000)] == percents


def test_a_disk_whose_size_is_not_known_stays_as_full(tmp_path: Path) -> None:
    nowhere = disk_use(Storage(tmp_path), tmp_path / "no" / "where", PROFILE_4_9)
    assert nowhere.used_percent == CANNOT_BE_READ
    assert without(nowhere, 1000, PROFILE_4_9) == nowhere


def test_the_real_disk(tmp_path: Path) -> None:
    space = Storage(tmp_path).disk_space(tmp_path)
    found = os.statvfs(tmp_path)
    assert space is not None
    assert (space.total, space.device) == (found.f_blocks * found.f_frsize, tmp_path.stat().st_dev)
    assert space.total >= space.free >= space.usable > 0
    assert 0 < disk_use(Storage(tmp_path), tmp_path, PROFILE_4_9).used_percent <= 100


def test_a_folder_that_a_broker_has_yet_to_make_is_on_its_parents_disk(tmp_path: Path) -> None:
    found = disk_use(Storage(tmp_path), tmp_path / "consumequeue", PROFILE_4_9)
    assert (found.path, found.device, found.total) == (
        tmp_path / "consumequeue",
        tmp_path.stat().st_dev,
        shutil.disk_usage(tmp_path).total,
    )
