"""A log with files of two stores: their messages contest places in the queues, and one repair settles it."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from rmqctl.operations.rebuild.built_queue import QueueCounts
from rmqctl.operations.rebuild.rebuild import Rebuild
from rmqctl.operations.rebuild.selection import Selection
from rmqctl.store.config.topics import QueueKey
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl, tree_hash, unpack

SECOND, THIRD = f"{65536:020d}", f"{131072:020d}"
KEEP_GOING = "--keep-going"


def mixed(store: str, other: str, file: str, to: Path) -> Path:
    """The store with a log file of the other one in the place of its own."""
    root = unpack(store, to / "store")
    shutil.copy2(unpack(other, to / "other") / "commitlog" / file, root / "commitlog" / file)
    return root


@pytest.mark.parametrize("options", [(), (KEEP_GOING,)])
@pytest.mark.parametrize(
    ("store", "other", "file"),
    [("471-basic", "471-crash", SECOND), ("471-basic", "497-basic", THIRD), ("497-lmq", "471-crash", SECOND)],
)
def test_one_repair_settles_it(
    store: str, other: str, file: str, options: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """A second repair, judged by the queues of the first, has nothing to do, and what the plan leaves is what verify
    finds.
    """
    root = mixed(store, other, file, tmp_path)
    before = tree_hash(root)
    done = rmqctl("recover", root, "--profile", "4.9", *options, "--yes", "-o", "json").document()
    again = rmqctl("recover", root, "--profile", "4.9", "--dry-run", "-o", "json").document()
    assert (again["actions"], again["lost"]["records"]) == ([], 0)
    found: Counter[str] = Counter()
    for finding in rmqctl("verify", root, "-o", "json").document()["findings"]:
        found[finding["code"]] += finding.get("count", 1)
    assert found == {left["code"]: left["count"] for left in done["leaves"]}
    assert again["leaves"] == done["leaves"]
    assert rmqctl("undo", root, "--yes").code == 0
    assert tree_hash(root) == before


def test_a_message_that_a_first_round_leaves_out_gets_its_place(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Judged by the queue on the disk it has the place of another message; judged by the new queue it gets the next
    one.
    """
    root = mixed("471-basic", "471-crash", SECOND, tmp_path)
    plan = rmqctl("recover", root, "--profile", "4.7", "--dry-run", "-o", "json").document()
    done = rmqctl("recover", root, "--profile", "4.7", "--yes", "-o", "json").document()
    assert (done["queues"], done["lost"], done["leaves"]) == (plan["queues"], plan["lost"], plan["leaves"])
    rows = rmqctl("queue", root, "-o", "jsonl").rows()
    ends = {(row["topic"], row["queueId"]): row["maxOffset"] for row in rows}
    assert ends == {(queue["topic"], queue["queueId"]): queue["maxOffset"] for queue in plan["queues"]}


def test_a_queue_is_rebuilt_alike_alone_and_among_others(tmp_path: Path) -> None:
    """What is found out for one queue takes nothing from what may be found out for another one."""
    store = ReadOnlyStore(mixed("471-basic", "471-crash", SECOND, tmp_path))
    together = built(store, frozenset(store.queues))
    alone = {key: built(store, frozenset((key,)))[key] for key in store.queues}
    assert alone == together


def built(store: ReadOnlyStore, keys: frozenset[QueueKey]) -> dict[QueueKey, QueueCounts]:
    rebuild = Rebuild(store, Selection(index=False, keys=keys, all_topics=True), None)
    rebuild.run()
    return {counts.key: counts for counts in rebuild.result.queues}
