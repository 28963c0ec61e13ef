"""The same store gives the same document, whatever order threads come to its files in."""

from __future__ import annotations

import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from tests.conftest import Rmqctl, unpack
from tests.support.file_edits import write_at

Damage = Callable[[Path], None]
RUNS = [8, pytest.param(20, marks=pytest.mark.slow)]
VERBS = (
    "verify -o json",
    "dump -o jsonl",
    "recover --dry-run -o json",
    "recover --keep-going --dry-run -o json",
    "truncate --to 65536 --dry-run -o json",
    "rebuild all --dry-run -o json",
)


@pytest.fixture(autouse=True)
def _threads_come_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run of the log waits a moment of its own: threads overtake one another."""
    take, moments = DispatchRequestBuilder.take, random.Random(13)

    def late(builder: DispatchRequestBuilder, columns: Any) -> Any:
        time.sleep(moments.random() / 500)
        return take(builder, columns)

    monkeypatch.setattr(DispatchRequestBuilder, "take", late)


def without_queues(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    write_at(store / "commitlog" / f"{65536:020d}", 20000, b"\xee" * 300)


def with_a_bad_head(store: Path) -> None:
    write_at(store / "commitlog" / f"{65536:020d}", 0, bytes(60))
    shutil.rmtree(store / "consumequeue" / "OrderPaid")
    (store / "abort").touch()


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("base", "damage"), [("497-lmq", without_queues), ("533-basic", with_a_bad_head)])
def test_each_verb_says_the_same_each_time(
    base: str, damage: Damage, verb: str, runs: int, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    store = unpack(base, tmp_path)
    damage(store)
    name, *options = verb.split()
    results = [rmqctl(name, store, *options, "--threads", 8) for _ in range(runs)]
    assert results[0].out
    assert len({re.sub(r'"seconds": [^,]*', "", result.out) for result in results}) == 1
