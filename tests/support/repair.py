"""A store that `recover` repairs, in tests of one damage: what it plans, and what must hold of every repair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmqctl.errors import ExitCode
from tests.conftest import Rmqctl, tree_hash
from tests.support.golden_store import ranges


def plan_of(rmqctl: Rmqctl, store: Path, *options: object) -> dict[str, Any]:
    """The document of recover's dry run."""
    return rmqctl("recover", store, *options, "--dry-run", "-o", "json").document()


@contextmanager
def repaired(rmqctl: Rmqctl, store: Path, *options: object) -> Iterator[dict[str, Any]]:
    """The plan, carried out for as long as the block lasts; then `undo` brings back every byte.

    As planned: the dry run changes no byte, verify finds what the plan leaves, and a second repair has nothing to do,
    loses nothing, and has the log and the queues end where the first one's plan says.
    """
    before = tree_hash(store)
    plan = plan_of(rmqctl, store, *options)
    assert tree_hash(store) == before
    assert rmqctl("recover", store, *options, "--yes").code == (
        ExitCode.REPAIRED if plan["actions"] else ExitCode.CLEAN
    )
    found: Counter[str] = Counter()
    for finding in rmqctl("verify", store, "-o", "json").document()["findings"]:
        found[finding["code"]] += finding.get("count", 1)
    assert found == {left["code"]: left["count"] for left in plan["leaves"]}
    again = plan_of(rmqctl, store, *options)
    assert (again["actions"], again["lost"]["records"], again["leaves"]) == ([], 0, plan["leaves"])
    assert (again["maxPhyOffset"], ranges(again["queues"])) == (plan["maxPhyOffset"], ranges(plan["queues"]))
    assert again["restart"].get("maxPhyOffset") == plan["maxPhyOffset"]
    yield plan
    if plan["actions"]:
        assert rmqctl("undo", store, "--yes").code == ExitCode.CLEAN
    assert tree_hash(store) == before
