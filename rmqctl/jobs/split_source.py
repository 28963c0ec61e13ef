"""Splits as a data source of Spark's: a partition each, a row each, with what its task found. Needs no pandas, unlike mapInArrow."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from rmqctl.jobs.log_split import Found, Reading, Split, unpacked
from rmqctl.jobs.spark_error import spark_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

NAME = "rocketmq-splits"


def read_splits(spark: SparkSession, splits: Sequence[Split], reading: Reading) -> dict[Split, Callable[[], Found]]:
    """What the tasks of one job found, still packed. Raises Unreadable where Spark gives up."""
    with spark_errors(f"{splits[0].root}: Spark could not read the log"):
        spark.dataSource.register(_source())
        table = spark.read.format(NAME).options(splits=json.dumps(splits), reading=json.dumps(reading)).load().toArrow()
    rows = zip(*(table.column(name) for name in ("number", "size", "found")), strict=True)
    return {splits[number.as_py()]: partial(_opened, small.as_buffer(), size.as_py()) for number, size, small in rows}


def _opened(small: pa.Buffer, size: int) -> Found:
    return unpacked(codec().decompress(small, size))


def codec() -> pa.Codec:
    """Makes columns of a log a fourth to a twelfth: without that, Spark takes longer to carry them than tasks to make them."""
    import pyarrow as pa

    return pa.Codec("zstd", compression_level=1)


def _source() -> type[DataSource]:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def __init__(self, options: Mapping[str, str]) -> None:
            self._splits = json.loads(options["splits"])
            self._reading = json.loads(options["reading"])

        def partitions(self) -> Sequence[InputPartition]:
            return [InputPartition(number) for number in range(len(self._splits))]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            # imported here: the processes that plan the job, each started anew, do without the compiler behind it
            import pyarrow as pa

            from rmqctl.jobs.log_split import Reading, Split, packed, read_split
            from rmqctl.jobs.split_source import codec

            found = packed(read_split(Split(*self._splits[partition.value]), Reading(*self._reading)))
            small = codec().compress(found, asbytes=True)
            columns = [pa.array([partition.value], pa.int32()), pa.array([len(found)], pa.int64()), pa.array([small], pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, names=["number", "size", "found"])

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            return "number int, size bigint, found binary"

        def reader(self, schema: object) -> Reader:
            del schema
            return Reader(self.options)

    return Source
