"""What broker.conf says about expiry."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.errors import BadRequest
from rmqctl.format.profile import PROFILE_4_7, PROFILE_4_9, PROFILE_5_3
from rmqctl.store.config.broker_conf import read_broker_conf
from rmqctl.store.config.clean_config import HOUR_MS, ExpirySettings, known_to, parse_hours


def settings(folder: Path, *lines: str) -> ExpirySettings:
    path = folder / "broker.conf"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    return read_broker_conf(path).expiry


def test_the_brokers_own(tmp_path: Path) -> None:
    own = ExpirySettings(
        reserved_ms=72 * HOUR_MS,
        delete_when=(4,),
        max_disk_percent=75,
        force_percent=85,
        warning_percent=90,
        clean_forcibly=True,
        batch=10,
        replicas_per_disk=1,
        logical_force_percent=80,
    )
    assert settings(tmp_path) == ExpirySettings() == own


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("fileReservedTime=48", {"reserved_ms": 48 * HOUR_MS}),
        ("fileReservedTime=0", {"reserved_ms": 0}),
        ("deleteWhen=05", {"delete_when": (5,)}),
        ("deleteWhen=04;16;23", {"delete_when": (4, 16, 23)}),
        ("diskMaxUsedSpaceRatio=88", {"max_disk_percent": 88}),
        ("diskSpaceCleanForciblyRatio=80", {"force_percent": 80}),
        ("diskSpaceWarningLevelRatio=82", {"warning_percent": 82}),
        ("cleanFileForciblyEnable=false", {"clean_forcibly": False}),
        ("cleanFileForciblyEnable=true", {"clean_forcibly": True}),
        ("deleteFileBatchMax=50", {"batch": 50}),
        ("replicasPerDiskPartition=3", {"replicas_per_disk": 3}),
        ("logicalDiskSpaceCleanForciblyThreshold=0.5", {"logical_force_percent": 50}),
    ],
)
def test_keys(line: str, changed: dict[str, object], tmp_path: Path) -> None:
    assert settings(tmp_path, line)._asdict() == ExpirySettings()._asdict() | changed


@pytest.mark.parametrize(
    "line",
    [
        "fileReservedTime=-3",
        "logicalDiskSpaceCleanForciblyThreshold=much",
        "deleteWhen=04,05",
        "deleteWhen=4h",
    ],
)
def test_what_is_no_number_is_an_error(line: str, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=line.partition("=")[0]):
        settings(tmp_path, line)


def test_4x_does_not_know_the_keys_of_5x(tmp_path: Path) -> None:
    lines = (
        "deleteFileBatchMax=50",
        "diskSpaceCleanForciblyRatio=80",
        "diskSpaceWarningLevelRatio=82",
        "fileReservedTime=48",
    )
    said = settings(tmp_path, *lines)
    assert known_to(PROFILE_5_3, said) == said
    for profile in (PROFILE_4_7, PROFILE_4_9):
        assert known_to(profile, said) == ExpirySettings(reserved_ms=48 * HOUR_MS)


@pytest.mark.parametrize(
    ("text", "hours"), [("04", (4,)), ("4", (4,)), ("04;05", (4, 5)), ("04;", (4,)), ("+4;-1;24", (4, -1, 24))]
)
def test_hours(text: str, hours: tuple[int, ...]) -> None:
    assert parse_hours(text) == hours


@pytest.mark.parametrize(
    "text", ["", ";", ";04", "04;;05", "04; 05", " 04", "04,05", "4.5", "four", "04:00", "99999999999"]
)
def test_on_what_is_no_hour_a_broker_fails(text: str) -> None:
    """Integer.parseInt of each word; then it never deletes a file, not even from a full disk."""
    with pytest.raises(ValueError, match="is no hour"):
        parse_hours(text)
