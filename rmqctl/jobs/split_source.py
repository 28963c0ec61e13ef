"""Splits as a data source of Spark's: a partition each, a row each, with what its task found. Needs no pandas, unlike mapInArrow."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from rmqctl.errors import Unreadable
from rmqctl.jobs.cluster_scan import ClusterScan
from rmqctl.jobs.log_split import Found, Reading, Split, packed, read_split, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

    from rmqctl.forensics.verify import Scan
    from rmqctl.store.read_only_store import ReadOnlyStore

NAME = "rocketmq-splits"
SPLIT_SIZE = 128 * 1024 * 1024  # bytes: a task costs 50 ms beside its reading


def scan_by_tasks(spark: SparkSession, store: ReadOnlyStore, cache: Path | None, split_size: int = SPLIT_SIZE) -> Scan:
    """Reads the log of a store whose folder every executor sees under the same path; tasks keep kernels in `cache`. Raises Unreadable."""
    return ClusterScan(partial(read_splits, spark), store.commit_log, store.path.root, cache, split_size).scan


def read_splits(spark: SparkSession, splits: Sequence[Split], reading: Reading) -> dict[Split, Found]:
    """What the tasks of one job found. Raises Unreadable where Spark gives up."""
    from pyspark.errors import PySparkException

    spark.dataSource.register(_source())
    try:
        table = spark.read.format(NAME).options(splits=json.dumps(splits), reading=json.dumps(reading)).load().toArrow()
    except PySparkException as error:
        raise Unreadable(f"Spark could not read the log: {_why(error)}", path=splits[0].root) from error
    numbers, found = table.column("number").to_pylist(), table.column("found")
    return {splits[number]: unpacked(one.as_buffer()) for number, one in zip(numbers, found, strict=True)}


def _why(error: PySparkException) -> str:
    """What a task of ours said, below the traceback that Spark makes of it; else what Spark says."""
    lines = str(error).strip().splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith(f"{Unreadable.__module__}.")), lines[0])


def _source() -> type[DataSource]:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def __init__(self, options: Mapping[str, str]) -> None:
            self._splits = [Split(*split) for split in json.loads(options["splits"])]
            self._reading = Reading(*json.loads(options["reading"]))

        def partitions(self) -> Sequence[InputPartition]:
            return [InputPartition(number) for number in range(len(self._splits))]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            import pyarrow as pa

            found = packed(read_split(self._splits[partition.value], self._reading))
            columns = [pa.array([partition.value], pa.int32()), pa.array([found], pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, names=["number", "found"])

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            return "number int, found binary"

        def reader(self, schema: object) -> Reader:
            del schema
            return Reader(self.options)

    return Source
