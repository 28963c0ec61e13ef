"""Stores of DLedger, or with queues in RocksDB: each job finds what the verb without Spark finds."""

from __future__ import annotations

import json
import shutil
import struct
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.spark.source.data_source import register
from rmqctl.spark.source.stream import stream_source
from rmqctl.spark.source.stream.boundary import written
from rmqctl.spark.source.stream.stream_source import StreamSource
from rmqctl.store.config import store_path
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl, tree_hash, unpack
from tests.spark.conftest import without_seconds
from tests.support.file_edits import write_at
from tests.support.log_maker import Record, entry, write_entries, write_log
from tests.support.source_rows import assert_as_dump

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
DLEDGER, CRASHED = "broker-550-dledger", "550-rocksdb-crash"
NAMES = (
    DLEDGER, "broker-550-rocksdb", "broker-533-rocksdb", CRASHED, "550-combined-samedir", "550-combined-separate",
)  # fmt: skip
HEADER, FILE_SIZE = 48, 2048
ENTRIES = f"dledger-n0/data/{0:020d}"
PLACE = ("store", "topic", "queueId", "queueOffset", "physicalOffset")


def upgraded(root: Path) -> Path:
    """A store whose broker joined a group: both logs."""
    write_log(root, [Record(queue_offset=at) for at in range(3)], file_size=FILE_SIZE, blank=True)
    write_entries(root, [4, 3], base=FILE_SIZE)
    return root


def place_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in PLACE)


def unit_count(store: Path, rmqctl: Rmqctl) -> int:
    return sum(row["messages"] for row in rmqctl("queue", store, "-o", "jsonl").rows())


def test_each_job(spark: SparkSession, tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    stores = [unpack(name, tmp_path / name) for name in NAMES]
    stores.append(upgraded(tmp_path / "upgraded" / "store"))
    before = [tree_hash(store) for store in stores]
    wanted: list[dict[str, Any]] = []
    for store in stores:
        rows = rmqctl("dump", store, "--body", "base64", "-o", "jsonl").rows()
        wanted += [row | {"broker": store.parent.name, "store": str(store)} for row in rows]
    places = Counter(place_of(row) for row in wanted)

    assert rmqctl("job", "export", *stores, "--to", tmp_path / "out", "--format", "jsonl").code == 0
    exported = [
        json.loads(line) for path in (tmp_path / "out").glob("*.json") for line in path.read_text().splitlines()
    ]
    assert sorted(exported, key=place_of) == sorted(wanted, key=place_of)
    counts = Counter((row["store"], row["topic"], row["queueId"]) for row in wanted)
    found = rmqctl("job", "stats", *stores, "-o", "json").document()["queues"]
    assert {(row["store"], row["topic"], row["queueId"]): row["messages"] for row in found} == counts
    found = rmqctl("job", "timeline", *stores, "--interval", "1s", "-o", "json").document()["intervals"]
    assert sum(row["messages"] for row in found) == len(wanted)
    found = rmqctl("job", "sql", f"SELECT {','.join(PLACE)} FROM messages", *stores, "-o", "json").document()["rows"]
    assert Counter(place_of(row) for row in found) == places

    queued = [store for store in stores if store.parent.name not in (CRASHED, "upgraded")]
    found = rmqctl("job", "sql", f"SELECT {','.join(PLACE)} FROM queues", *queued, "-o", "json").document()["rows"]
    assert len(found) == sum(unit_count(store, rmqctl) for store in queued)
    assert not Counter(place_of(row) for row in found) - places
    lost = rmqctl("job", "lost", *stores, "-o", "json").document()["queues"]
    assert {(row["store"], row["why"]) for row in lost} == {
        (str(store), "missing-unit") for store in stores if store not in queued
    }
    for store in (stores[0], stores[1], stores[-1]):
        there, here = (rmqctl(*words, store, "-o", "json") for words in (("job", "verify"), ("verify",)))
        assert (there.code, without_seconds(there.document())) == (here.code, without_seconds(here.document()))
    copy = Path(shutil.copytree(stores[0], tmp_path / "copy" / "store"))
    write_at(copy / ENTRIES, 9042 + 88, b"E")  # in the body of the message at 9042
    differences = rmqctl("job", "diff", stores[0], copy, "-o", "json").document()["differences"]
    assert [(row["physicalOffset"], row["difference"], row["b"]["damage"]) for row in differences] == [
        (9042, "different", "bad-body-crc")
    ]

    register(spark)
    reader = spark.readStream.format("rocketmq").option("columns", f"kind,{','.join(PLACE)}")
    table = reader.option("paths", json.dumps([*map(str, stores)])).load()
    query = table.writeStream.format("memory").queryName("layouts").trigger(availableNow=True).start()
    query.awaitTermination()
    streamed = spark.sql(f"SELECT {','.join(PLACE)} FROM layouts WHERE kind = 'message'").collect()
    assert Counter(map(tuple, streamed)) == places

    monkeypatch.setattr(store_path, "can_read_databases", lambda: False)
    for words in (("stats",), ("timeline",), ("duplicates",), ("sql", "SELECT max(size) FROM messages")):
        result = rmqctl("job", *words, stores[1])
        assert (result.code, "its queues are in RocksDB, and are not read" in result.err) == (0, True)
    for words in (("lost",), ("sql", "SELECT count(*) FROM queues")):
        result = rmqctl("job", *words, stores[1])
        assert (result.code, "install the extra `rocksdb`" in result.err) == (13, True)
    assert before == [tree_hash(store) for store in stores]


@pytest.mark.parametrize("split_size", [50, 148, 333, 10**9])
def test_splits_of_damaged_entries(split_size: int, tmp_path: Path) -> None:
    """A split may begin in a header, or behind the entry to whose index that of the next entry does not fit."""
    assert assert_as_dump(upgraded(tmp_path / "upgraded"), split_size) == 1
    for number, (at, data) in enumerate(
        ((8, struct.pack(">q", 9)), (20, b"\1"), (0, bytes(HEADER)), (HEADER, b"\1" * 9))
    ):
        starts = write_entries(tmp_path / str(number), [4, 3])
        write_at(tmp_path / str(number) / ENTRIES, starts[0][2] + at, data)
        assert assert_as_dump(tmp_path / str(number), split_size) == 1


def test_a_stream_of_a_log_that_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_source, "SETTLE_SECONDS", 0.0)
    at = write_entries(tmp_path, [3])[0][-1] + len(entry(Record(body=b"hello 0"), 0, 0))
    source = StreamSource({"path": str(tmp_path)}, ["kind", "queueOffset"])
    known, read = source.begin(), []
    for index in range(3, 9):
        data = entry(Record(queue_offset=index, body=b"x" * index), at, index)
        for size in (HEADER // 2, HEADER, HEADER + 20, len(data) - 1, len(data)):
            write_at(tmp_path / ENTRIES, at, data[:size])
            end = source.unmarked(source.marked(source.latest(known), {}))
            batches = [batch for task in source.tasks(known, end) for batch in source.read(task)]
            read += [(row["kind"], row["queueOffset"]) for batch in batches for row in batch.to_pylist()]
            known = end
        at += len(data)
    assert read == [("message", index) for index in range(9)]
    assert written(ReadOnlyStore(tmp_path).commit_log, 0).end == at - len(data)
