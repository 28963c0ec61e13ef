"""`checkpoint STORE show` and `set`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.format.checkpoint import CHECKPOINT
from tests.conftest import Result, Rmqctl, tree_hash

Golden = Callable[[str], Path]
MOMENT = 1795252516848


def values(store: Path) -> tuple[int, ...]:
    return CHECKPOINT.struct.unpack_from((store / "checkpoint").read_bytes())


def fields(result: Result) -> dict[str, dict[str, Any]]:
    return {row["field"]: row for row in result.document()["fields"]}


def test_shown_raw_and_as_time(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("533-basic")
    before = tree_hash(store)
    found = fields(rmqctl("checkpoint", store, "show", "-o", "json"))
    assert tuple(row["value"] for row in found.values()) == values(store)
    assert found["physicMsgTimestamp"]["time"].startswith("2026-11-21T")
    assert "time" not in found["confirmPhyOffset"]
    assert rmqctl("checkpoint", store).out == rmqctl("checkpoint", store, "show").out
    assert tree_hash(store) == before


@pytest.mark.parametrize("text", [str(MOMENT), "2026-11-21T09:15:16.848Z", "2026-11-21T10:15:16.848+01:00"])
def test_set(text: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("533-basic")
    before, old, mtime = tree_hash(store), values(store), (store / "checkpoint").stat().st_mtime_ns
    arguments = ("checkpoint", store, "set", "--physic-msg-timestamp", text, "--confirm-phy-offset", "77")
    plan = rmqctl(*arguments, "--dry-run", "-o", "json")
    assert plan.code == 1
    assert tree_hash(store) == before
    assert fields(plan)["physicMsgTimestamp"]["newTime"] == "2026-11-21T09:15:16.848Z"
    assert plan.document()["actions"] == [
        {"action": "write", "path": "checkpoint", "fileOffset": at, "bytes": 8} for at in (0, 32)
    ]
    result = rmqctl(*arguments, "--yes", "-o", "json")
    assert (result.code, result.out) == (0, plan.out)
    assert values(store) == (MOMENT, *old[1:4], 77, old[5])
    assert (store / "checkpoint").stat().st_mtime_ns == mtime
    again = rmqctl(*arguments, "--yes")
    assert (again.code, again.err) == (0, "nothing to do: the checkpoint already has these values\n")
    assert rmqctl("undo", store, "--yes").code == 0
    assert tree_hash(store) == before


@pytest.mark.parametrize("size", [None, 0, 47, 48, 100, 5000])
def test_a_checkpoint_that_is_missing_or_of_a_wrong_length_is_made_whole(
    size: int | None, golden: Golden, rmqctl: Rmqctl
) -> None:
    store = golden("471-basic")
    path = store / "checkpoint"
    data = path.read_bytes() + b"behind" * 200
    path.unlink()
    if size is not None:
        path.write_bytes(data[:size])
    before = tree_hash(store)
    shown = rmqctl("checkpoint", store, "-o", "json")
    assert shown.code == 1
    state = shown.document()["state"]
    assert len(shown.document()["fields"]) == (6 if size is not None and size >= 48 else 0)
    assert "1970" not in rmqctl("checkpoint", store).out or (size or 0) >= 48
    assert state == (
        "missing"
        if size is None
        else f"too short: {size} bytes"
        if size < 48
        else f"of a wrong length: {size} bytes instead of 4096"
    )
    assert rmqctl("checkpoint", store, "set", "--logics-msg-timestamp", "5", "--yes").code == 0
    kept = data[:size].ljust(4096, b"\0")[:4096] if size is not None and size >= 48 else bytes(4096)
    assert path.read_bytes() == kept[:8] + (5).to_bytes(8, "big") + kept[16:]
    assert rmqctl("undo", store, "--yes").code == 0
    assert tree_hash(store) == before


def test_a_link_is_not_written_through(golden: Golden, rmqctl: Rmqctl, tmp_path: Path) -> None:
    store = golden("471-basic")
    (store / "checkpoint").rename(tmp_path / "elsewhere")
    (store / "checkpoint").symlink_to(tmp_path / "elsewhere")
    result = rmqctl("checkpoint", store, "set", "--logics-msg-timestamp", "5", "--yes")
    assert (result.code, result.err.count("\n")) == (4, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("set",),
        ("show", "--physic-msg-timestamp", "5"),
        ("show", "--yes"),
        ("set", "--physic-msg-timestamp", "soon"),
        ("set", "--physic-msg-timestamp", "1969-01-01T00:00:00Z"),
        ("set", "--physic-msg-timestamp", "99999999999999999999"),
        ("set", "--confirm-phy-offset", "-1"),
        ("mend",),
    ],
)
def test_usage(arguments: tuple[str, ...], golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    before = tree_hash(store)
    assert rmqctl("checkpoint", store, *arguments).code == 2
    assert tree_hash(store) == before


def test_a_checkpoint_that_was_set_is_no_damage_until_something_else_writes_it(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("497-basic")
    assert (
        rmqctl("checkpoint", store, "set", "--physic-msg-timestamp", "0", "--logics-msg-timestamp", "0", "--yes").code
        == 0
    )
    found = rmqctl("verify", store, "-o", "json").document()
    assert found["findings"] == []
    assert "the checkpoint has the values that `rmqctl checkpoint set` gave it" in found["notes"]
    assert rmqctl("doctor", store, "-o", "json").document()["healthy"]
    assert rmqctl("checkpoint", store, "set", "--physic-msg-timestamp", "2027-01-01T00:00:00Z", "--yes").code == 0
    document = rmqctl("verify", store, "-o", "json").document()
    assert [one["code"] for one in document["findings"]] == ["checkpoint-ahead"]  # what it explains is the past alone
    data = bytearray((store / "checkpoint").read_bytes())
    data[:8] = bytes([0] * 7 + [1])
    (store / "checkpoint").write_bytes(data)
    assert [one["code"] for one in rmqctl("verify", store, "-o", "json").document()["findings"]] == [
        "checkpoint-behind"
    ]


def test_a_time_ahead_of_the_log_is_warned_of(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("497-basic")
    warned = rmqctl("checkpoint", store, "set", "--physic-msg-timestamp", "2027-01-01T00:00:00Z", "--dry-run")
    assert warned.code == 1
    assert "warning: physicMsgTimestamp is later than the log's last message, 2026-11-21T" in warned.err
    assert (
        rmqctl("checkpoint", store, "set", "--physic-msg-timestamp", "5", "--confirm-phy-offset", "9", "--dry-run").err
        == ""
    )
