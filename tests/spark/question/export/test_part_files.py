"""The files of an export have about the wanted size, whatever the splits are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from rmqctl.spark.question.export.export_format import NO_PARTITION, ExportFormat, partition
from rmqctl.spark.question.export.export_task import merge_files, to_merge
from rmqctl.spark.question.export.part_files import OPEN_MAX, PartFile, PartFiles, Sink

SIZE = 100_000


def table(begin: int, rows: int) -> pa.Table:
    return pa.table({"number": range(begin, begin + rows), "body": [bytes([row % 251]) * 10 for row in range(rows)]})


def sink(folder: Path, name: str = "parquet") -> Sink:
    return Sink(str(folder), ExportFormat(name, body="binary"), SIZE)


def test_a_file_ends_at_the_wanted_size(tmp_path: Path) -> None:
    files = PartFiles(sink(tmp_path), "task")
    for number in range(10):
        files.add("topic=T", table(number * 10_000, 10_000), 10_000)
    found = files.close()
    assert sum(file.messages for file in found) == 100_000
    assert all(SIZE / 2 < file.size <= SIZE * 1.1 for file in found[:-1])
    assert [Path(file.path).stat().st_size for file in found] == [file.size for file in found]
    numbers = [number for file in found for number in parquet.read_table(file.path)["number"].to_pylist()]
    assert numbers == list(range(100_000))


def test_a_task_has_few_files_open(tmp_path: Path) -> None:
    files = PartFiles(sink(tmp_path), "task")
    for _ in range(2):
        for number in range(OPEN_MAX + 1):
            files.add(f"topic={number}", table(0, 1), 1)
    assert len(files._open) <= OPEN_MAX
    found = files.close()
    assert sum(file.messages for file in found) == 2 * (OPEN_MAX + 1)
    assert len({file.path for file in found}) == len(found)
    rows = Counter({file.partition: 0 for file in found})
    for file in found:
        rows[file.partition] += parquet.read_table(file.path).num_rows
    assert set(rows.values()) == {2}


@pytest.mark.parametrize("name", ["parquet", "csv", "jsonl"])
def test_small_files_are_merged(name: str, tmp_path: Path) -> None:
    small = []
    there = sink(tmp_path, name)
    for number in range(3):
        files = PartFiles(there, f"task-{number}")
        piece = table(number, 1) if name == "parquet" else f"{number}\n".encode()
        files.add("topic=T", piece, 1)
        small += files.close()
    (merged,) = merge_files(small, there)
    assert (merged.partition, merged.messages) == ("topic=T", 3)
    if name == "parquet":
        assert parquet.read_table(merged.path)["number"].to_pylist() == [0, 1, 2]
    else:
        assert Path(merged.path).read_bytes() == there.format.header + b"0\n1\n2\n"


def test_what_is_merged() -> None:
    sizes = [("a", 40), ("b", 10), ("a", 70), ("a", 40), ("a", 40), ("b", 49), ("c", 1)]
    files = [PartFile(str(number), place, 1, size) for number, (place, size) in enumerate(sizes)]
    groups = to_merge(files, 100)
    assert [[file.path for file in group] for group in groups] == [["0", "3"], ["1", "5"]]


def test_partitions() -> None:
    assert partition("%RETRY%a/b", "2026-11-21") == "topic=%25RETRY%25a%2Fb/day=2026-11-21"
    assert partition("", None) == f"topic={NO_PARTITION}/day={NO_PARTITION}"
