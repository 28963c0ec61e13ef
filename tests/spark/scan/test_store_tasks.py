"""A whole store in one task: the report of `verify`, if the task sees the store that the driver sees.

Stores that share a job share no failure.
"""

from __future__ import annotations

import pickle
import shutil
from contextlib import ExitStack, closing
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqctl.cli.job.by_store import doctor
from rmqctl.errors import NotAStore, Unreadable
from rmqctl.forensics.verify import VerifyReport, verify
from rmqctl.kernels import warm_up
from rmqctl.spark.question.verify import whole_report
from rmqctl.spark.scan import store_tasks
from rmqctl.spark.scan.store_tasks import KERNELS, StoreTask, in_tasks, task_of
from rmqctl.spark.scan.task_answers import answers, packed, unpacked
from rmqctl.spark.scan.task_kernels import warm_up_once
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import apply_damage, damage_cases, unpack
from tests.spark.conftest import without_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

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


# functions that workers can import: they do not have the tests
size_of = attrgetter("commit_log.size")
failing = attrgetter("commit_log.nothing")


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[list[ReadOnlyStore]]:
    """Five small stores."""
    with ExitStack() as stack:
        roots = [unpack("497-basic", tmp_path / name) for name in "abcde"]
        yield [stack.enter_context(closing(ReadOnlyStore(root))) for root in roots]


@pytest.mark.spark
def test_a_store_that_fails_gets_a_job_of_its_own(
    stores: list[ReadOnlyStore], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other stores are not examined again."""
    jobs_of: list[int] = []

    def counted(spark: SparkSession, calls: Sequence[Callable[[], object]]) -> dict[int, Callable[[], object]]:
        jobs_of.append(len(calls))
        return answers(spark, calls)

    monkeypatch.setattr(store_tasks, "answers", counted)
    shutil.rmtree(stores[1].path.root)
    with in_tasks(spark, dict.fromkeys(stores, size_of)) as jobs:
        others = [store for number, store in enumerate(stores) if number != 1]
        assert [jobs[store]() for store in others] == [store.commit_log.size for store in others]
        with pytest.raises(NotAStore, match="/b/store: no such folder"):
            jobs[stores[1]]()
    assert jobs_of == [5, 1]


@pytest.mark.spark
@pytest.mark.parametrize("stores_a_job", [1, 2, 3, 256])
def test_a_failure_ends_no_other_store(
    stores_a_job: int, stores: list[ReadOnlyStore], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One store is gone when its task begins, and the task of another ends its job."""
    monkeypatch.setattr(store_tasks, "JOB_STORES_MAX", stores_a_job)
    shutil.rmtree(stores[1].path.root)
    work = {store: failing if number == 3 else size_of for number, store in enumerate(stores)}
    with in_tasks(spark, work) as jobs:
        whole = [stores[number] for number in (0, 2, 4)]
        assert [jobs[store]() for store in whole] == [store.commit_log.size for store in whole]
        with pytest.raises(NotAStore, match="/b/store: no such folder"):
            jobs[stores[1]]()
        with pytest.raises(Unreadable, match=r"d/store: Spark could not examine the store: AttributeError: .*nothing"):
            jobs[stores[3]]()


def test_stores_share_a_job_up_to_a_size_and_a_number(
    stores: list[ReadOnlyStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = stores[0].commit_log.size
    assert list(store_tasks.groups(stores)) == [stores]
    monkeypatch.setattr(store_tasks, "JOB_STORES_MAX", 4)
    assert list(store_tasks.groups(stores)) == [stores[:4], stores[4:]]
    monkeypatch.setattr(store_tasks, "JOB_SIZE", 2 * size)
    assert list(store_tasks.groups(stores)) == [stores[:2], stores[2:4], stores[4:]]
    monkeypatch.setattr(store_tasks, "JOB_SIZE", size - 1)
    assert list(store_tasks.groups(stores)) == [[store] for store in stores]
    assert list(store_tasks.groups([])) == []
