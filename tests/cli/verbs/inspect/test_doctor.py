"""`rmqctl doctor` names the damage first, and a command that repairs it."""

from __future__ import annotations

import random
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import (
    GOLDEN_NAMES,
    Rmqctl,
    apply_damage,
    damage_cases,
    each_damage,
    tree_hash,
    unpack,
)
from tests.support.named_damage import is_named

CASES = damage_cases()
KEYS = {"code", "summary", "evidence", "means", "restart", "next", "confidence"}
FEW_GOLDEN = ("broker-497", "broker-533", "533-lmq", "471-crash")
# all messages of a queue were in the lost first file: its units keep the queue's offset, so they stay
WHOLE_QUEUE_LOST = ("533-propcrc--first-file-expired",)
ROUNDS = 3  # commands until nothing is wrong any more; two damages may need two


def diagnosis(store: Path, rmqctl: Rmqctl) -> dict[str, Any]:
    """The document of doctor; the store is as it was."""
    before = tree_hash(store)
    result = rmqctl("doctor", store, "-o", "json")
    assert tree_hash(store) == before
    found = result.document()
    assert result.code == (0 if found["healthy"] else 1)
    assert found["healthy"] == (not found["causes"])
    assert all(cause.keys() >= KEYS and all(cause[key] for key in KEYS) for cause in found["causes"])
    return found


def do_next(found: dict[str, Any], rmqctl: Rmqctl) -> None:
    """Run the next command of the first cause."""
    program, *words = shlex.split(found["causes"][0]["next"])
    assert program == "rmqctl"
    assert rmqctl(*words).code in (0, 3), words


def combined(count: int) -> list[tuple[str, str]]:
    """Pairs of cases of one store that can both be applied."""
    rng = random.Random("doctor")
    pairs: list[tuple[str, str]] = []
    while len(pairs) < count:
        one, other = rng.sample(sorted(CASES), 2)
        changed = [{op["path"] for op in CASES[name]["ops"] if op["path"] != "abort"} for name in (one, other)]
        if CASES[one]["base"] == CASES[other]["base"] and not changed[0] & changed[1]:
            pairs.append((one, other))
    return pairs


@each_damage()
def test_a_damage_is_named_and_repaired(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack(CASES[name]["base"], tmp_path)
    apply_damage(store, CASES[name]["ops"])
    found = diagnosis(store, rmqctl)
    assert is_named(found["causes"][0], CASES[name]["ops"])
    do_next(found, rmqctl)
    left = {finding["code"] for finding in rmqctl("verify", store, "-o", "json").document()["findings"]}
    assert left == ({"log-start-missing"} if name in WHOLE_QUEUE_LOST else set())
    assert diagnosis(store, rmqctl)["healthy"] == (not left)


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), combined(40))
def test_two_damages(one: str, other: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    operations = [*CASES[one]["ops"], *CASES[other]["ops"]]
    store = unpack(CASES[one]["base"], tmp_path)
    apply_damage(store, operations)
    found = diagnosis(store, rmqctl)
    assert is_named(found["causes"][0], operations)
    for _ in range(ROUNDS):
        if not found["healthy"]:
            do_next(found, rmqctl)
            found = diagnosis(store, rmqctl)
    lost = {name for name in (one, other) if name in WHOLE_QUEUE_LOST}
    assert found["healthy"] or (lost and found["causes"][0]["code"] == "log-head-gone"), found["causes"][0]
    assert rmqctl("verify", store).code == (1 if lost else 0)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FEW_GOLDEN else [pytest.mark.slow]) for name in GOLDEN_NAMES]
)
def test_an_undamaged_store_is_one_line(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack(name, tmp_path)
    if (store / "abort").exists():
        assert [cause["code"] for cause in diagnosis(store, rmqctl)["causes"]] == ["broker-died"]
    else:
        result = rmqctl("doctor", store)
        assert (result.code, len(result.out.splitlines()), result.err) == (0, 1, "")
        assert result.out.startswith("healthy: ")
