"""A whole store in one task: the report of `verify`, if the task sees the store that the driver sees."""

from __future__ import annotations

import pickle
import shutil
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from rmqctl.cli.job.by_store import doctor
from rmqctl.errors import Unreadable
from rmqctl.forensics.verify import VerifyReport, verify
from rmqctl.kernels import warm_up
from rmqctl.spark.question.verify import whole_report
from rmqctl.spark.scan.store_tasks import KERNELS, StoreTask, task_of
from rmqctl.spark.scan.task_answers import packed, unpacked
from rmqctl.spark.scan.task_kernels import warm_up_once
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import apply_damage, damage_cases, unpack
from tests.spark.conftest import without_seconds

CASES = damage_cases()
DAMAGED = [name for number, name in enumerate(sorted(CASES)) if number % 9 == 0]


def in_a_task(store: ReadOnlyStore, level: int) -> VerifyReport:
    """As Spark's tasks do."""
    call = partial(StoreTask.run, task_of(store), partial(whole_report, level=level, receipts=True))
    report: VerifyReport = unpacked(packed(pickle.loads(pickle.dumps(call))()))
    return report


@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.parametrize("name", DAMAGED)
def test_a_damage_case(name: str, level: int, tmp_path: Path) -> None:
    root = unpack(CASES[name]["base"], tmp_path)
    apply_damage(root, CASES[name]["ops"])
    with closing(ReadOnlyStore(root)) as store:
        here, there = verify(store, level), in_a_task(store, level)
    assert without_seconds(there.to_json()) == without_seconds(here.to_json())


def test_a_task_that_sees_another_store(tmp_path: Path) -> None:
    root = unpack("533-basic", tmp_path / "a")
    with closing(ReadOnlyStore(root)) as store:
        task = task_of(store)
    shutil.rmtree(root)
    with pytest.raises(Unreadable, match="an executor finds there: No such file"):
        task.run(verify)
    shutil.copytree(unpack("497-basic", tmp_path / "b"), root)
    with pytest.raises(Unreadable, match="another file than the driver sees"):
        task.run(verify)


def test_a_store_without_a_log(tmp_path: Path) -> None:
    root = unpack("533-basic", tmp_path)
    shutil.rmtree(root / "commitlog")
    with closing(ReadOnlyStore(root)) as store:
        assert in_a_task(store, 3).findings == verify(store).findings != []


def test_the_kernels_of_a_task_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, the driver would not compile them before the tasks do; `doctor` with a repair needs the most."""
    ready: set[str] = set()
    monkeypatch.setattr(warm_up, "_READY", ready)
    warm_up_once.cache_clear()
    root = unpack("497-basic", tmp_path)
    (root / "commitlog" / f"{0:020d}").unlink()
    with closing(ReadOnlyStore(root)) as store:
        row = task_of(store).run(partial(doctor.report_of, target="", profile=None))
    assert row["causes"]
    assert ready == {module.__name__ for module in KERNELS}
