"""epochFileCheckpoint and brokerIdentity in `info` and `verify`; the content is from a run of 5.3.3."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Rmqctl

EPOCHS = "2\n1415619913\n1-0\n2-55884\n"
IDENTITY = "DefaultCluster#broker-a#2"


@pytest.fixture
def store(golden: Callable[[str], Path]) -> Path:
    root = golden("broker-533")
    (root / "epochFileCheckpoint").write_text(EPOCHS)
    (root / "brokerIdentity").write_text(IDENTITY)
    return root


def controller(rmqctl: Rmqctl, store: Path) -> dict[str, Any] | None:
    found: dict[str, Any] | None = rmqctl("info", store, "-o", "json").document()["controller"]
    return found


def codes(rmqctl: Rmqctl, store: Path) -> list[str]:
    return [row["code"] for row in rmqctl("verify", store, "-o", "json").document()["findings"]]


def test_both_files_are_shown(store: Path, rmqctl: Rmqctl) -> None:
    assert controller(rmqctl, store) == {
        "epochs": [{"epoch": 1, "startOffset": 0}, {"epoch": 2, "startOffset": 55884}],
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": 2,
        "problems": [],
    }
    shown = rmqctl("info", store).out
    assert "DefaultCluster#broker-a#2" in shown
    assert "1 from 0, 2 from 55884" in shown
    assert codes(rmqctl, store) == []


def test_a_store_of_another_broker_has_none(golden: Callable[[str], Path], rmqctl: Rmqctl) -> None:
    assert controller(rmqctl, golden("broker-533")) is None


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("epochFileCheckpoint", "", "epochs-invalid"),
        ("epochFileCheckpoint", "1\n1415619913\n1-0\n2-55884\n", "epochs-invalid"),
        ("epochFileCheckpoint", "2\n1415619914\n1-0\n2-55884\n", "epochs-invalid"),
        ("epochFileCheckpoint", "2\n0\n2-0\n1-55884\n", "epochs-invalid"),
        ("epochFileCheckpoint", "1\n0\n1\n", "epochs-invalid"),
        ("epochFileCheckpoint", "1\n0\n1-949188000\n", "epochs-beyond-log"),
        ("epochFileCheckpoint", "\xff", "epochs-invalid"),
        ("brokerIdentity", "DefaultCluster#broker-a", "identity-invalid"),
        ("brokerIdentity", "DefaultCluster#broker-a#x", "identity-invalid"),
        ("brokerIdentity", "\xff", "identity-invalid"),
    ],
)
def test_a_file_that_is_wrong_is_a_finding(name: str, content: str, code: str, store: Path, rmqctl: Rmqctl) -> None:
    (store / name).write_text(content, encoding="latin-1")
    assert codes(rmqctl, store) == [code]
    found = rmqctl("doctor", store, "-o", "json")
    assert found.code == 1
    assert [cause["code"] for cause in found.document()["causes"]] == ["controller-files-wrong"]


def test_a_good_backup_is_read_as_a_broker_does(store: Path, rmqctl: Rmqctl) -> None:
    (store / "epochFileCheckpoint").rename(store / "epochFileCheckpoint.bak")
    (store / "epochFileCheckpoint").write_text("1\n")
    shown = controller(rmqctl, store)
    assert shown is not None
    assert len(shown["epochs"]) == 2
    assert shown["problems"][0].endswith("; its .bak is good")
