"""Rows of `rocketmq-groups`: the counts of the rows of `rocketmq`. No Spark runs here."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from rmqctl.errors import BadRequest
from rmqctl.logfile.column_reader import BUFFER_SIZE
from rmqctl.spark.scan.coverage import coverage, range_of
from rmqctl.spark.source.message_schema import GROUP_COLUMNS
from rmqctl.spark.source.message_source import GroupSource
from tests.conftest import unpack
from tests.support.log_maker import Record, write_log
from tests.support.source_rows import rows_of

pytestmark = pytest.mark.spark  # for pyarrow

Row = dict[str, Any]
KEYS = ("topic", "queueId")


def groups_of(root: Path, **options: str) -> list[Row]:
    source = GroupSource({"path": str(root), "ranges": "true"} | options, list(GROUP_COLUMNS))
    return [row for task in source.tasks() for batch in source.read(task) for row in batch.to_pylist()]


def test_a_large_message_and_damage(tmp_path: Path) -> None:
    records = [Record(topic=f"t{number % 2}", queue_id=number % 3, store_timestamp=number * 700) for number in range(9)]
    records.insert(4, Record(topic="t1", body=bytes(BUFFER_SIZE), store_timestamp=2_500))
    data = bytearray(write_log(tmp_path, records, file_size=BUFFER_SIZE + 4096))
    data[90] ^= 1  # in the first body
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(data)
    for by, known in (("broker", ()), ("topic", ("topic",)), ("queue", ("topic", "queueId"))):
        for interval in (0, 1000):
            wanted: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
            for row in rows_of(tmp_path):
                if row["kind"] == "message":
                    key = tuple(row[name] if name in known else None for name in KEYS)
                    begin = row["storeTimestamp"] // interval * interval if interval else None
                    add(wanted[*key, begin], 1, row["size"], row["bodyLength"])
            rows = groups_of(tmp_path, by=by, intervalMs=str(interval))
            found: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
            for row in rows[:-1]:
                assert row["kind"] == "group"
                key = tuple(row[name] for name in KEYS)
                add(found[*key, row["timestamp"]], row["messages"], row["bytes"], row["bodyBytes"])
            assert found == wanted
            counts = coverage([range_of(rows[-1]["detail"])]).counts
            assert (counts.messages, counts.damages) == (9, 1)


def add(total: list[int], *values: int) -> None:
    total[:] = [one + other for one, other in zip(total, values, strict=True)]


def test_by_must_be_known(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="by is 'day'"):
        groups_of(unpack("497-basic", tmp_path), by="day")
