"""Rows that tasks make of splits: those of `rmqctl dump --damaged`, on every golden store and damage case. No Spark runs here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rmqctl.forensics.dump import Dump
from rmqctl.forensics.message_filter import Filter
from rmqctl.format import properties
from rmqctl.jobs.coverage import coverage, range_of
from rmqctl.jobs.log_split import splits_of
from rmqctl.jobs.message_schema import MESSAGE_COLUMNS
from rmqctl.jobs.message_source import MessageSource, splits_to_json
from rmqctl.store.read_only_store import ReadOnlyStore
from tests.conftest import READABLE_NAMES, apply_damage, damage_cases, unpack

pytestmark = pytest.mark.spark  # for pyarrow

Row = dict[str, Any]
CASES = damage_cases()
SPLIT_SIZE = 10_000


def dumped(root: Path) -> list[Row]:
    """Dump's rows, in the source's columns."""
    with closing(ReadOnlyStore(root)) as store:
        rows = list(Dump(store, Filter(), body="hex", damaged=True, on_damage=lambda _: None).rows())
    return in_order([as_source(row) for row in rows])


def as_source(row: Row) -> Row:
    made: Row = {name: row.get(name) for name in MESSAGE_COLUMNS if name not in ("broker", "store", "kind")}
    made["kind"] = "damage" if "damage" in row else "message"
    if row.get("properties") is not None:
        made["properties"] = list(row["properties"].items())
        made["tags"] = row["properties"].get(properties.TAGS)
        made["keys"] = row["properties"].get(properties.KEYS)
        made["uniqKey"] = row["properties"].get(properties.UNIQ_KEY)
        made["body"] = bytes.fromhex(row["body"])
    return made


def as_dump(row: Row) -> Row:
    time = row["storeTime"]
    shown = time and f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z"
    return {name: value for name, value in row.items() if name not in ("broker", "store")} | {"storeTime": shown}


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["physicalOffset"], row["damage"] or "", row["path"]))


def rows_of(root: Path, columns: list[str] | None = None, **options: str) -> Iterator[Row]:
    source = MessageSource({"path": str(root), **options}, columns or list(MESSAGE_COLUMNS), None)
    for part in source.partitions():
        for batch in source.read(part):
            batch.validate(full=True)
            yield from batch.to_pylist()


def by_splits(root: Path, split_size: int = SPLIT_SIZE) -> tuple[list[Row], int]:
    """All rows, proved to be of splits that join; and how often they were read for that."""
    with closing(ReadOnlyStore(root)) as store:
        splits = splits_of(store.commit_log, root, split_size)
    for times in range(1, 100):
        rows = list(rows_of(root, ranges="true", splits=splits_to_json(splits)))
        ranges = [range_of(row["physicalOffset"], row["size"], row["detail"]) for row in rows if row["kind"] == "range"]
        found = coverage(ranges)
        if found.joined:
            return rows, times
        splits = list(found.splits)
    raise AssertionError("never joined")


def assert_as_dump(root: Path, split_size: int = SPLIT_SIZE) -> int:
    rows, times = by_splits(root, split_size)
    shown = [as_dump(row) for row in rows if row["kind"] in ("message", "damage")]
    assert in_order(shown) == dumped(root)
    assert {row["store"] for row in rows} == {str(root)}
    return times


@pytest.mark.parametrize("name", READABLE_NAMES)
def test_every_golden_store(name: str, tmp_path: Path) -> None:
    assert assert_as_dump(unpack(name, tmp_path)) == 1


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_damage_case(name: str, tmp_path: Path) -> None:
    root = unpack(CASES[name]["base"], tmp_path)
    apply_damage(root, CASES[name]["ops"])
    assert assert_as_dump(root) == 1


@pytest.mark.parametrize("split_size", [500, 1_000, 65_535, 65_536, 65_537, 10**9])
def test_splits_of_any_size(split_size: int, tmp_path: Path) -> None:
    assert_as_dump(unpack("533-basic", tmp_path), split_size)


def test_columns_are_made_alone(tmp_path: Path) -> None:
    root = unpack("533-basic", tmp_path)
    rows = list(rows_of(root))
    for name in MESSAGE_COLUMNS:
        assert list(rows_of(root, [name])) == [{name: row[name]} for row in rows]
