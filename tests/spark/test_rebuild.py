"""Queues and index made from splits that were read one by one: the same bytes and the same plan as from one scan."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rmqctl.operations.rebuild.rebuild import Rebuild, Selection
from rmqctl.operations.rebuild.rebuild_plan import changes, index_plan, queue_plans
from rmqctl.spark.scan.cluster_scan import ClusterScan
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import READABLE_NAMES, apply_damage, damage_cases, each_damage, tree_hash, unpack
from tests.support.verified_by_tasks import SPLIT_SIZE, read_here

CASES = damage_cases()
Made = tuple[str, list[dict[str, Any]], dict[str, int] | None, list[dict[str, Any]], list[tuple[str, int]]]


def made(root: Path, staging: Path, split_size: int | None, *, all_topics: bool) -> Made:
    """What a rebuild leaves in `staging`, and what it plans; the log read by splits, or (None) by one scan."""
    staging.mkdir()
    with closing(ReadOnlyStore(root)) as store:
        scan = None if split_size is None else ClusterScan(read_here, store.commit_log, root, split_size).scan
        rebuild = Rebuild(store, Selection(all_topics=all_topics), staging, scan=scan)
        rebuild.run()
        rebuild.check()
        index = index_plan(rebuild, store)
        plan = [queue.to_json() for queue in queue_plans(rebuild, store)]
        todo = [change.to_json() for change in changes(rebuild, store, staging)]
        return tree_hash(staging), plan, index.to_json() if index else None, todo, rebuild.result.unchanged


def same_by_splits(root: Path, folder: Path, split_size: int = SPLIT_SIZE, *, all_topics: bool = False) -> bool:
    one = made(root, folder / "one", None, all_topics=all_topics)
    return made(root, folder / "splits", split_size, all_topics=all_topics) == one


@pytest.mark.parametrize("name", READABLE_NAMES)
def test_every_golden_store(name: str, tmp_path: Path) -> None:
    assert same_by_splits(unpack(name, tmp_path), tmp_path)


@each_damage()
def test_every_damage_case(name: str, tmp_path: Path) -> None:
    root = unpack(CASES[name]["base"], tmp_path)
    apply_damage(root, CASES[name]["ops"])
    assert same_by_splits(root, tmp_path, all_topics=True)


@pytest.mark.parametrize("split_size", [500, 1_000, 65_535, 65_536, 65_537, 10**9])
def test_splits_of_any_size(split_size: int, tmp_path: Path) -> None:
    assert same_by_splits(unpack("broker-533", tmp_path), tmp_path, split_size)
