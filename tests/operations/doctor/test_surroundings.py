"""A full disk and a broker that runs are causes of doctor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from rmqctl.logfile.system.storage import DiskSpace, Storage
from tests.conftest import Rmqctl
from tests.support.lock_holder import lock_held

Golden = Callable[[str], Path]


def causes(store: Path, rmqctl: Rmqctl, *options: object, used: int = 0) -> dict[str, str]:
    """The next command of each cause, on a disk of which `used` % are used."""
    space = DiskSpace(total=1000, free=1000 - 10 * used, usable=1000 - 10 * used, device=1)
    with patch.object(Storage, "disk_space", return_value=space):
        document = rmqctl("doctor", store, *options, "-o", "json").document()
    return {cause["code"]: cause["next"] for cause in document["causes"]}


@pytest.mark.parametrize(
    ("name", "said", "used", "is_full"),
    [
        ("497-basic", "", 91, True),
        ("497-basic", "", 90, False),
        ("497-basic", "diskSpaceWarningLevelRatio=95\n", 91, True),  # 4.x does not read it
        ("broker-533", "diskSpaceWarningLevelRatio=50\n", 60, True),
    ],
)
def test_a_full_disk_is_a_cause(
    name: str, said: str, used: int, is_full: bool, golden: Golden, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    store, conf = golden(name), tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={store}\n{said}")
    found = causes(store, rmqctl, "--broker-conf", conf, used=used)
    assert list(found) == (["disk-full"] if is_full else [])
    assert all(command.startswith("rmqctl clean ") and "--dry-run" in command for command in found.values())
    assert causes(store, rmqctl, used=99) == {}  # perhaps a copy, on another disk


def test_with_a_broker_alive_the_next_begins_with_stopping_it(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("497-basic")
    with lock_held(store) as pid:
        assert causes(store, rmqctl) == {}
        found = causes(store, rmqctl, used=99)
        assert list(found) == ["disk-full", "broker-runs"]
        assert found["disk-full"].startswith(f"kill {pid} && tail --pid={pid} -f /dev/null; rmqctl clean ")
        assert found["broker-runs"] == f"kill {pid}"
