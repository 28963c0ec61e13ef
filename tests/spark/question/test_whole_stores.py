"""A whole store verified by one task: the report of `verify`, if the task sees the store that the driver sees."""

from __future__ import annotations

import pickle
import shutil
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from rmqctl.errors import Unreadable
from rmqctl.forensics.verify import VerifyReport, verify
from rmqctl.spark.question import whole_stores
from rmqctl.spark.question.whole_stores import StoreCheck, check_of, is_whole
from rmqctl.spark.scan.task_answers import packed, unpacked
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import apply_damage, damage_cases, unpack
from tests.spark.conftest import without_seconds

CASES = damage_cases()
DAMAGED = [name for number, name in enumerate(sorted(CASES)) if number % 9 == 0]


def in_a_task(check: StoreCheck) -> VerifyReport:
    """As Spark's tasks do."""
    report: VerifyReport = unpacked(packed(pickle.loads(pickle.dumps(partial(StoreCheck.run, check)))()))
    return report


@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.parametrize("name", DAMAGED)
def test_a_damage_case(name: str, level: int, tmp_path: Path) -> None:
    root = unpack(CASES[name]["base"], tmp_path)
    apply_damage(root, CASES[name]["ops"])
    with closing(ReadOnlyStore(root)) as store:
        here, there = verify(store, level), in_a_task(check_of(store, level=level, receipts=True))
    assert without_seconds(there.to_json()) == without_seconds(here.to_json())


def test_a_task_that_sees_another_store(tmp_path: Path) -> None:
    root = unpack("533-basic", tmp_path / "a")
    with closing(ReadOnlyStore(root)) as store:
        check = check_of(store, level=3, receipts=True)
    shutil.rmtree(root)
    with pytest.raises(Unreadable, match="an executor finds there: No such file"):
        check.run()
    shutil.copytree(unpack("497-basic", tmp_path / "b"), root)
    with pytest.raises(Unreadable, match="another file than the driver sees"):
        check.run()


def test_a_store_without_a_log(tmp_path: Path) -> None:
    root = unpack("533-basic", tmp_path)
    shutil.rmtree(root / "commitlog")
    with closing(ReadOnlyStore(root)) as store:
        assert {finding.code for finding in in_a_task(check_of(store, level=3, receipts=True)).findings} >= {
            finding.code for finding in verify(store).findings
        }


def test_a_store_with_more_than_a_quarter_of_all_bytes_is_read_by_splits(tmp_path: Path) -> None:
    names = ["471-basic", "497-lmq", "533-basic", "497-basic"]
    stores = [ReadOnlyStore(unpack(name, tmp_path / name)) for name in names]
    sizes = {name: store.commit_log.size for name, store in zip(names, stores, strict=True)}
    assert [is_whole(store, stores) for store in stores] == [4 * sizes[name] <= sum(sizes.values()) for name in names]
    assert [is_whole(store, [store] * whole_stores.WHOLE_MAX) for store in stores] == [True] * 4
    assert not any(is_whole(store, [store] * (whole_stores.WHOLE_MAX - 1)) for store in stores)
