"""Rows of the message source, beside those of dump."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from rmqctl.forensics.dump import Dump
from rmqctl.forensics.message_filter import Filter
from rmqctl.format import properties
from rmqctl.format.body.bodies import Bodies
from rmqctl.format.body.compression import BodyError, decompressed
from rmqctl.format.message import TIME_KEYS
from rmqctl.spark.scan.coverage import coverage, range_of
from rmqctl.spark.scan.split import Split, splits_of
from rmqctl.spark.source.message_schema import MESSAGE_COLUMNS
from rmqctl.spark.source.message_source import MessageSource, splits_to_json
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support.log_maker import Record, encode, write_log

Row = dict[str, Any]
SPLIT_SIZE = 10_000


def dumped(root: Path) -> list[Row]:
    """Dump's rows, in the source's columns."""
    with closing(ReadOnlyStore(root)) as store:
        rows = list(Dump(store, Filter(), bodies=Bodies("hex"), damaged=True, on_damage=lambda _: None).rows())
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
        made["bodyText"] = None
        with suppress(BodyError):
            made["bodyText"] = decompressed(row["sysFlag"], made["body"]).decode("utf-8", "replace")
    return made


def as_dump(row: Row) -> Row:
    times = {
        name: row[name] and f"{row[name]:%Y-%m-%dT%H:%M:%S}.{row[name].microsecond // 1000:03}Z" for name in TIME_KEYS
    }
    return {name: value for name, value in row.items() if name not in ("broker", "store")} | times


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["physicalOffset"], row["damage"] or "", row["path"]))


def rows_of(root: Path, columns: list[str] | None = None, **options: str) -> Iterator[Row]:
    source = MessageSource({"path": str(root), **options}, columns or list(MESSAGE_COLUMNS))
    for task in source.tasks():
        for batch in source.read(task):
            batch.validate(full=True)
            yield from batch.to_pylist()


def splits_before_a_record_in_a_body(root: Path) -> list[Split]:
    """Makes a store with three messages; the second one's body has a whole record in its own place, and the second
    split begins in it.
    """
    head, inner = 88, Record()
    first = Record(body=b"a" * 50)
    place = len(encode(first, 0)) + head + 10
    second = Record(body=b"b" * 10 + encode(inner, place) + b"b" * 500)
    data = write_log(root, [first, second, Record(queue_offset=2)])
    path, cut = str(root / "commitlog" / f"{0:020d}"), [0, place - 5, place + 300, len(data) + 1]
    return [Split(str(root), path, 0, 0, len(data), "", start, stop) for start, stop in pairwise(cut)]


def by_splits(root: Path, split_size: int = SPLIT_SIZE) -> tuple[list[Row], int]:
    """All rows, proved to be of splits that join; and how often they were read for that."""
    with closing(ReadOnlyStore(root)) as store:
        splits = splits_of(store.commit_log, root, split_size)
    for times in range(1, 100):
        rows = list(rows_of(root, ranges="true", splits=splits_to_json(splits)))
        ranges = [range_of(row["detail"]) for row in rows if row["kind"] == "range"]
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
