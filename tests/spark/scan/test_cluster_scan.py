"""Splits read one by one, in any order, and joined: the same as from one scan, on every store and damage case."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmqctl.errors import Unreadable
from rmqctl.forensics.audit.index_proof import FileProof, prove_file
from rmqctl.forensics.verify import Verification, verify
from rmqctl.spark.scan.cluster_scan import ClusterScan
from rmqctl.spark.scan.index_by_tasks import IndexByTasks
from rmqctl.spark.scan.log_split import Found, Reading, read_split
from rmqctl.spark.scan.split import Split
from rmqctl.spark.scan.store_tasks import StoreTask, task_of
from rmqctl.spark.scan.task_answers import packed, unpacked
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.commit_log import ScanSummary
from rmqctl.store.read.file_scan import RecordRun, ScanItem
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import READABLE_NAMES, apply_damage, damage_cases, each_damage, unpack
from tests.spark.conftest import without_seconds

CASES = damage_cases()
SPLIT_SIZE = 10_000


def read_here(splits: Sequence[Split], reading: Reading) -> dict[Split, Callable[[], Found]]:
    """As Spark's tasks do, the last one first."""
    return {split: partial(unpacked, packed(read_split(split, reading))) for split in reversed(splits)}


def by_splits(root: Path, level: int, split_size: int = SPLIT_SIZE) -> dict[str, Any]:
    """On the driver: the tasks send all messages."""
    with closing(ReadOnlyStore(root)) as store:
        scan = ClusterScan(read_here, store.commit_log, root, split_size).scan
        verification = Verification(store, level, scan=scan)
        verification.run()
        return without_seconds(verification.report.to_json())


@pytest.fixture(params=[SPLIT_SIZE, 10**9])
def split_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The bytes of a split; tasks look up each queue, though a small split has few messages of a queue."""
    monkeypatch.setattr("rmqctl.forensics.audit.part_audit.MESSAGES_PER_QUEUE_MIN", 0)
    return int(request.param)


def by_tasks(root: Path, level: int, split_size: int) -> tuple[dict[str, Any], list[bool]]:
    """In the tasks: they send what they cannot confirm. And whether the driver read the log again for the index."""
    again: list[bool] = []

    def scan_again(summary: ScanSummary, builder: DispatchRequestBuilder | None) -> Iterator[ScanItem | RecordRun]:
        again.append(True)
        return ClusterScan(read_here, store.commit_log, root, split_size).scan(summary, builder)

    with closing(ReadOnlyStore(root)) as store:
        task = task_of(store)
        scan = ClusterScan(read_here, store.commit_log, root, split_size, compare_with=task)
        audit_index = partial(IndexByTasks, task=task, prove=prove_here, parts=scan, scan=scan_again)
        verification = Verification(store, level, scan=scan.scan, audit_index=audit_index)
        verification.run()
        return without_seconds(verification.report.to_json()), again


def prove_here(task: StoreTask, count: int) -> list[FileProof]:
    return [unpacked(packed(task.run(partial(prove_file, number=number)))) for number in range(count)]


def by_one_scan(root: Path, level: int) -> dict[str, Any]:
    with closing(ReadOnlyStore(root)) as store:
        return without_seconds(verify(store, level).to_json())


@pytest.mark.parametrize("name", READABLE_NAMES)
def test_every_golden_store(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    assert by_splits(root, 3) == by_one_scan(root, 3)


@pytest.mark.parametrize("name", READABLE_NAMES)
def test_every_golden_store_by_tasks(name: str, split_size: int, tmp_path: Path) -> None:
    """The tasks prove the whole index."""
    root = unpack(name, tmp_path)
    assert by_tasks(root, 3, split_size) == (by_one_scan(root, 3), [])


@each_damage()
def test_every_damage_case(name: str, tmp_path: Path) -> None:
    root = unpack(CASES[name]["base"], tmp_path)
    apply_damage(root, CASES[name]["ops"])
    assert by_splits(root, 3) == by_one_scan(root, 3)


@each_damage()
def test_every_damage_case_by_tasks(name: str, split_size: int, tmp_path: Path) -> None:
    root = unpack(CASES[name]["base"], tmp_path)
    apply_damage(root, CASES[name]["ops"])
    assert by_tasks(root, 3, split_size)[0] == by_one_scan(root, 3)


@pytest.mark.parametrize("split_size", [500, 1_000, 65_535, 65_536, 65_537, 10**9])
def test_splits_of_any_size(split_size: int, tmp_path: Path) -> None:
    root = unpack("533-basic", tmp_path)
    assert by_splits(root, 1, split_size) == by_one_scan(root, 1)


def test_a_split_that_no_task_read(tmp_path: Path) -> None:
    def read_but_one(splits: Sequence[Split], reading: Reading) -> dict[Split, Callable[[], Found]]:
        return read_here([*splits[:3], *splits[4:]], reading)

    with closing(ReadOnlyStore(unpack("533-basic", tmp_path))) as store:
        scan = ClusterScan(read_but_one, store.commit_log, store.path.root, SPLIT_SIZE).scan
        with pytest.raises(Unreadable, match=r"left out 1 of \d+ splits at offset 30000"):
            Verification(store, 1, scan=scan).run()


@pytest.mark.parametrize("there", [None, "471-basic"])
def test_an_executor_that_sees_another_store(there: str | None, tmp_path: Path) -> None:
    other = unpack(there, tmp_path / "other") if there else tmp_path / "nothing"

    def read_there(splits: Sequence[Split], reading: Reading) -> dict[Split, Callable[[], Found]]:
        return read_here([split._replace(path=split.path.replace(split.root, str(other))) for split in splits], reading)

    with closing(ReadOnlyStore(unpack("533-basic", tmp_path))) as store:
        scan = ClusterScan(read_there, store.commit_log, store.path.root, SPLIT_SIZE).scan
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
        verification = Verification(store, 3, scan=ClusterScan(read, store.commit_log, root, SPLIT_SIZE).scan)
        verification.run()
        assert without_seconds(verification.report.to_json()) == by_one_scan(root, 3)
    assert set(asked[:-1]) == {3}
    assert len(asked) > 2
