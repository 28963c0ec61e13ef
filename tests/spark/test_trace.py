"""`rmqctl job trace` by a real Spark: the lives that `rmqctl trace` shows of each store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import Rmqctl, tree_hash, unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KEY = ("--key", "o1")


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three brokers; the second has no message with the key, and the last keeps its queues in RocksDB."""
    folder = tmp_path_factory.mktemp("brokers")
    return [unpack(name, folder / name) for name in ("broker-497", "533-basic", "broker-533", "broker-533-rocksdb")]


@pytest.mark.parametrize("way", [KEY, (*KEY, "--scan"), (*KEY, "--topic", "payments", "--limit", "1")])
def test_each_report_is_what_trace_says(
    way: tuple[str, ...], spark: SparkSession, roots: list[Path], tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """A store that does not exist ends no other, and its exit code is the largest."""
    before = [tree_hash(root) for root in roots]
    missing = tmp_path / "none"
    found = rmqctl("job", "trace", missing, *roots, *way, "-o", "json")
    assert found.code == 10
    document = found.document()
    assert document["stores"] == [str(root) for root in (missing, *roots)]
    first, *reports = document["reports"]
    assert first == {"store": str(missing), "exitCode": 10, "error": f"{missing}: no such folder"}
    for root, report in zip(roots, reports, strict=True):
        here = rmqctl("trace", root, *way, "-o", "json")
        assert report.pop("exitCode") == here.code
        assert all(f"{root}: {note}\n" in found.err and f"{note}\n" in here.err for note in report.pop("notes"))
        assert {"schema": "rmqctl.trace/1"} | report == here.document()
    assert [tree_hash(root) for root in roots] == before


def test_the_lives_and_a_line_for_each_other_store(spark: SparkSession, roots: list[Path], rmqctl: Rmqctl) -> None:
    first, without, last = roots[:3]
    found = rmqctl("job", "trace", first, without, last, *KEY)
    lives = [f"{root}:\n{rmqctl('trace', root, *KEY).out}" for root in (first, last)]
    verdict = rmqctl("trace", without, *KEY).out.splitlines()[0]
    assert (found.code, found.out) == (1, "\n".join([*lives, f"{without}: {verdict}\n"]))
    both = rmqctl("job", "trace", first, first, last, *KEY)
    assert (both.code, both.out) == (0, "\n".join(lives))


def test_one_question_is_asked_before_spark_starts(roots: list[Path], rmqctl: Rmqctl) -> None:
    found = rmqctl("job", "trace", *roots, *KEY, "--offset", "0")
    assert (found.code, found.out) == (2, "")
    assert "ask one of" in found.err
