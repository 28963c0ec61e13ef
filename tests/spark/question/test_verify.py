"""`rmqctl job verify` by a real Spark: the documents of `rmqctl verify`; and what is said where Spark cannot."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqctl.spark.question.verify import WHOLE_MAX, small_stores
from rmqctl.store.config import store_path
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl, apply_damage, damage_cases, tree_hash, unpack
from tests.spark.conftest import without_seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CASES = damage_cases()
DAMAGED = [name for number, name in enumerate(sorted(CASES)) if number % 18 == 0]
STORES = ["326-basic", "471-cqext", "497-lmq", "533-propcrc", "broker-533"]


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


@pytest.mark.parametrize("name", STORES)
def test_a_golden_store(spark: SparkSession, name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = unpack(name, tmp_path)
    before = tree_hash(root)
    here, there = rmqctl("verify", root, "-o", "json"), rmqctl("job", "verify", root, "-o", "json")
    assert there.code == here.code == 0
    assert without_seconds(there.document()) == without_seconds(here.document())
    assert tree_hash(root) == before


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damage_case(spark: SparkSession, name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = unpack(CASES[name]["base"], tmp_path)
    apply_damage(root, CASES[name]["ops"])
    here, there = rmqctl("verify", root, "-o", "json"), rmqctl("job", "verify", root, "-o", "json")
    assert there.code == here.code == 1
    assert without_seconds(there.document()) == without_seconds(here.document())


@pytest.fixture
def fleet(tmp_path: Path) -> list[Path]:
    """Stores of several brokers: whole ones, a damaged one, one in RocksDB, none, and a large one."""
    names = ["471-basic", "497-lmq", "broker-533-rocksdb", "533-basic", "broker-533"]
    case = CASES["497-basic--body-flip-first-abnormal"]
    damaged = unpack(case["base"], tmp_path / "damaged")
    apply_damage(damaged, case["ops"])
    return [damaged, tmp_path / "none", *(unpack(name, tmp_path / name) for name in names)]


@pytest.mark.parametrize(("level", "extra", "code"), [(1, True, 10), (3, True, 10), (3, False, 13)])
def test_several_stores(
    spark: SparkSession,
    level: int,
    extra: bool,
    code: int,
    fleet: list[Path],
    rmqctl: Rmqctl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The large one is read by splits, each other one by one task; without the extra `rocksdb`, one is not read."""
    monkeypatch.setattr(store_path, "can_read_databases", lambda: extra)
    before = [tree_hash(root) for root in fleet if root.exists()]
    words = [*fleet, "--level", level, "-o", "json"]
    here, there = rmqctl("verify", *words), rmqctl("job", "verify", *words)
    assert there.code == here.code == code
    documents = [there.document(), here.document()]
    assert len(documents[0]["reports"]) == len(fleet)
    for document in documents:
        document["reports"] = [without_seconds(report) for report in document["reports"]]
    assert documents[0] == documents[1]
    assert [tree_hash(root) for root in fleet if root.exists()] == before


def test_a_store_with_more_than_a_quarter_of_all_bytes_is_read_by_splits(tmp_path: Path) -> None:
    names = ["471-basic", "497-lmq", "533-basic", "497-basic"]
    stores = [ReadOnlyStore(unpack(name, tmp_path / name)) for name in names]
    sizes = {name: store.commit_log.size for name, store in zip(names, stores, strict=True)}
    small = [store for name, store in zip(names, stores, strict=True) if 4 * sizes[name] <= sum(sizes.values())]
    assert small_stores(stores) == small
    assert small_stores(stores[:1] * WHOLE_MAX) == stores[:1] * WHOLE_MAX
    assert small_stores(stores[:1] * (WHOLE_MAX - 1)) == []


def test_a_store_given_twice_and_one_that_is_half_changed(spark: SparkSession, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """As `verify` says it."""
    roots = [unpack(name, tmp_path / name) for name in ("471-basic", "497-lmq", "533-basic", "497-batch")]
    shutil.rmtree(roots[0] / "consumequeue")
    assert rmqctl("rebuild", roots[0], "all", "--yes").code == 3
    (done,) = (roots[0] / ".rmqctl").rglob("done")
    done.unlink()
    here, there = (rmqctl(*words, *roots, roots[1], "-o", "jsonl") for words in (["verify"], ["job", "verify"]))
    assert (there.code, there.out) == (here.code, here.out)
    notes = [[line for line in one.err.splitlines() if line.startswith("note: ")] for one in (here, there)]
    assert notes[0] == notes[1]
    assert "half changed" in notes[0][0]
    assert there.err.count(f"{roots[1]}:") == 2


def test_no_store_of_several(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Spark is not started."""
    result = rmqctl("job", "verify", tmp_path / "a", tmp_path / "b", "-o", "jsonl", "--master", "spark://127.0.0.1:1")
    assert (result.code, result.out) == (10, "")
    assert result.err.count("no such folder") == 2


@pytest.mark.parametrize("option", ["--master=spark://127.0.0.1:{}", "--remote=sc://127.0.0.1:{}"])
def test_nobody_answers(option: str, nobody: int, tmp_path: Path, rmqctl: Rmqctl) -> None:
    result = rmqctl("job", "verify", unpack("533-basic", tmp_path), option.format(nobody))
    assert (result.code, result.out) == (4, "")
    assert result.err.splitlines()[-1].endswith("no Spark answers there: Connection refused")


def test_no_such_folder(tmp_path: Path, rmqctl: Rmqctl) -> None:
    result = rmqctl("job", "verify", tmp_path / "none")
    assert (result.code, result.out) == (10, "")
