"""Splits read one by one, in any order, and joined: the same as from one scan, on every store and damage case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from rmqctl.errors import Unreadable
from rmqctl.forensics.verify import Verification, verify
from rmqctl.spark.scan.cluster_scan import ClusterScan
from rmqctl.spark.scan.log_split import Found, Reading
from rmqctl.spark.scan.split import Split
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.commit_log import ScanSummary
from rmqctl.store.read.file_scan import RecordRun
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import READABLE_NAMES, apply_damage, damage_cases, each_damage, unpack
from tests.spark.conftest import without_seconds
from tests.support.verified_by_tasks import SPLIT_SIZE, read_here, verified_by_tasks

CASES = damage_cases()


def by_splits(root: Path, level: int, split_size: int = SPLIT_SIZE) -> dict[str, Any]:
    """On the driver: the tasks send all messages."""
    with closing(ReadOnlyStore(root)) as store:
        scan = ClusterScan(read_here, store, split_size).scan
        verification = Verification(store, level, scan=scan)
        verification.run()
        return without_seconds(verification.report.to_json())


def by_one_scan(root: Path, level: int) -> dict[str, Any]:
    with closing(ReadOnlyStore(root)) as store:
        return without_seconds(verify(store, level).to_json())


@pytest.mark.parametrize("name", READABLE_NAMES)
def test_every_golden_store(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    assert by_splits(root, 3) == by_one_scan(root, 3)


@pytest.mark.parametrize("split_size", [SPLIT_SIZE, pytest.param(10**9, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", READABLE_NAMES)
def test_every_golden_store_by_tasks(name: str, split_size: int, tmp_path: Path) -> None:
    """The tasks prove the whole index."""
    root = unpack(name, tmp_path)
    found = verified_by_tasks(root, split_size=split_size)
    assert without_seconds(found.report.to_json()) == by_one_scan(root, 3)
    assert not found.read_again


@each_damage()
def test_every_damage_case(name: str, tmp_path: Path) -> None:
    root = unpack(CASES[name]["base"], tmp_path)
    apply_damage(root, CASES[name]["ops"])
    assert by_splits(root, 3) == by_one_scan(root, 3)


@pytest.mark.parametrize("split_size", [SPLIT_SIZE, 10**9])
@each_damage()
def test_every_damage_case_by_tasks(name: str, split_size: int, tmp_path: Path) -> None:
    root = unpack(CASES[name]["base"], tmp_path)
    apply_damage(root, CASES[name]["ops"])
    found = verified_by_tasks(root, split_size=split_size)
    assert without_seconds(found.report.to_json()) == by_one_scan(root, 3)


@pytest.mark.parametrize("split_size", [500, 1_000, 65_535, 65_536, 65_537, 10**9])
def test_splits_of_any_size(split_size: int, tmp_path: Path) -> None:
    root = unpack("533-basic", tmp_path)
    assert by_splits(root, 1, split_size) == by_one_scan(root, 1)


def test_a_split_that_no_task_read(tmp_path: Path) -> None:
    def read_but_one(splits: Sequence[Split], reading: Reading) -> dict[Split, Callable[[], Found]]:
        return read_here([*splits[:3], *splits[4:]], reading)

    with closing(ReadOnlyStore(unpack("533-basic", tmp_path))) as store:
        scan = ClusterScan(read_but_one, store, SPLIT_SIZE).scan
        with pytest.raises(Unreadable, match=r"left out 1 of \d+ splits at offset 30000"):
            Verification(store, 1, scan=scan).run()


@pytest.mark.parametrize("there", [None, "471-basic"])
def test_an_executor_that_sees_another_store(there: str | None, tmp_path: Path) -> None:
    other = unpack(there, tmp_path / "other") if there else tmp_path / "nothing"

    def read_there(splits: Sequence[Split], reading: Reading) -> dict[Split, Callable[[], Found]]:
        return read_here([split._replace(path=split.path.replace(split.root, str(other))) for split in splits], reading)

    with closing(ReadOnlyStore(unpack("533-basic", tmp_path))) as store:
        scan = ClusterScan(read_there, store, SPLIT_SIZE).scan
        with pytest.raises(
            Unreadable, match="another file than the driver sees" if there else "No such file or directory"
        ):
            Verification(store, 1, scan=scan).run()


def test_waves_come_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.spark.scan.cluster_scan.WAVE_SIZE", 3 * SPLIT_SIZE)
    asked: list[int] = []

    def read(splits: Sequence[Split], reading: Reading) -> dict[Split, Callable[[], Found]]:
        asked.append(len(splits))
        return read_here(splits, reading)

    root = unpack("533-basic", tmp_path)
    with closing(ReadOnlyStore(root)) as store:
        verification = Verification(store, 3, scan=ClusterScan(read, store, SPLIT_SIZE).scan)
        verification.run()
        assert without_seconds(verification.report.to_json()) == by_one_scan(root, 3)
    assert set(asked[:-1]) == {3}
    assert len(asked) > 2


def test_the_queues_of_a_part_are_numbered_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many record runs the part has; here, damage ends a run."""
    root = unpack("533-basic", tmp_path)
    log = min((root / "commitlog").iterdir())
    with log.open("r+b") as file:
        for at in range(5_000, 50_000, 5_000):
            file.seek(at)
            file.write(b"damage")
    builder = DispatchRequestBuilder(with_keys=False)
    asked = Mock(side_effect=builder.number)
    monkeypatch.setattr(builder, "number", asked)
    with closing(ReadOnlyStore(root)) as store:
        parts = ClusterScan(read_here, store, 10**9).scan(ScanSummary(), builder)
        runs = [item for item in parts if isinstance(item, RecordRun)]
        assert len(runs) > 2 * len(store.commit_log.queue.files)
    assert asked.call_count <= len(builder.keys) * len(store.commit_log.queue.files)
