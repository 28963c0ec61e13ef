"""`rmqctl job doctor` by a real Spark: the documents of `rmqctl doctor`, one row a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import Rmqctl, apply_damage, damage_cases, tree_hash, unpack
from tests.spark.conftest import without_seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CASES = damage_cases()
DAMAGED = [name for number, name in enumerate(sorted(CASES)) if number % 24 == 0]


def test_each_row_is_what_doctor_says(spark: SparkSession, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Of whole stores, damaged ones, one in RocksDB; and one that does not exist ends no other."""
    roots = [unpack(name, tmp_path / name) for name in ("533-basic", "broker-533-rocksdb", "497-lmq")]
    for name in DAMAGED:
        roots.append(unpack(CASES[name]["base"], tmp_path / name))
        apply_damage(roots[-1], CASES[name]["ops"])
    before = [tree_hash(root) for root in roots]
    found = rmqctl("job", "doctor", tmp_path / "none", *roots, "-o", "jsonl")
    assert found.code == 10
    first, *rows = found.rows()
    assert first == {"store": str(tmp_path / "none"), "exitCode": 10, "error": f"{tmp_path / 'none'}: no such folder"}
    assert [row["store"] for row in rows] == [str(root) for root in roots]
    for row in rows:
        here = rmqctl("doctor", row["store"], "-o", "json")
        assert row.pop("exitCode") == here.code
        document = here.document()
        del document["schema"]
        assert without_seconds(row) == without_seconds(document)
    assert [tree_hash(root) for root in roots] == before


def test_the_document_and_the_table(spark: SparkSession, tmp_path: Path, rmqctl: Rmqctl) -> None:
    whole, bad = unpack("533-basic", tmp_path / "whole"), unpack("497-basic", tmp_path / "bad")
    (bad / "commitlog" / f"{0:020d}").unlink()
    document = rmqctl("job", "doctor", whole, bad, "-o", "json").document()
    assert document["stores"] == [str(whole), str(bad)]
    assert [report["exitCode"] for report in document["reports"]] == [0, 1]
    table = rmqctl("job", "doctor", whole, bad)
    assert table.code == 1
    words = [line.split() for line in table.out.splitlines()]
    assert words[0] == ["STORE", "RESULT", "MESSAGES", "CAUSES", "NEXT"]
    assert words[2][:2] == [str(whole), "healthy"]
    assert words[3][:3] == [str(bad), "not", "healthy"]
    assert document["reports"][1]["causes"][0]["code"] in table.out
    assert document["reports"][1]["causes"][0]["next"].split("\n")[0] in table.out
