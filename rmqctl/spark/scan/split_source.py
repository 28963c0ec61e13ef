"""Read the splits of a log in a Spark job, with one task for each split.

In a classic session, an RDD reads the splits, because the tasks of an RDD start immediately. Spark Connect has no RDDs.
With Spark Connect, a data source reads the splits, with one partition and one row for each split. A data source is
slower than an RDD, because Spark must plan a query and start three processes for the data source. Unlike mapInArrow, a
data source does not need pandas.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.spark.scan.log_split import Found, Reading, packed, read_split, unpacked
from rmqctl.spark.scan.split import Split
from rmqctl.spark.session.spark_error import spark_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

NAME = "rocketmq-splits"


class Answer(NamedTuple):
    """The answer that a task sends to the driver.

    `number` is the number of the split. `small` is the result of the task, packed and compressed. `size` is the number
    of packed bytes before compression.
    """

    number: int
    size: int
    small: bytes


def read_splits(spark: SparkSession, splits: Sequence[Split], reading: Reading) -> dict[Split, Callable[[], Found]]:
    """Read splits in one Spark job, and return the results of the tasks.

    The result has a function for each split. The function unpacks and returns the `Found` of the split. Raises
    Unreadable if Spark fails.
    """
    from pyspark.sql.utils import is_remote

    with spark_errors(f"{splits[0].root}: Spark could not read the log"):
        answers = _by_query(spark, splits, reading) if is_remote() else _by_rdd(spark, splits, reading)
    return {splits[answer.number]: partial(_opened, answer) for answer in answers}


def answer_of(split: Split, number: int, reading: Reading) -> Answer:
    """Read one split in a task, and return the answer for the driver."""
    found = packed(read_split(split, reading))
    return Answer(number, len(found), _codec().compress(found, asbytes=True))


def _by_rdd(spark: SparkSession, splits: Sequence[Split], reading: Reading) -> list[Answer]:
    numbered = spark.sparkContext.parallelize(list(enumerate(splits)), len(splits))
    answers: list[Answer] = numbered.map(partial(_answered, reading)).collect()
    return answers


def _answered(reading: Reading, one: tuple[int, Split]) -> Answer:
    return answer_of(one[1], one[0], reading)


def _by_query(spark: SparkSession, splits: Sequence[Split], reading: Reading) -> list[Answer]:
    spark.dataSource.register(_source())
    table = spark.read.format(NAME).options(splits=json.dumps(splits), reading=json.dumps(reading)).load().toArrow()
    return [Answer(*row) for row in zip(*(table.column(name).to_pylist() for name in Answer._fields), strict=True)]


def _opened(answer: Answer) -> Found:
    return unpacked(_codec().decompress(answer.small, answer.size))


def _codec() -> pa.Codec:
    """Return the codec that compresses the results that tasks send to the driver.

    The codec makes columns 4 to 12 times smaller. Without compression, the transfer of columns to the driver takes
    longer than the tasks.
    """
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
            # imported here, because the new processes that plan the job do not need numba
            import pyarrow as pa

            from rmqctl.spark.scan.log_split import Reading
            from rmqctl.spark.scan.split import Split

            answer = answer_of(Split(*self._splits[partition.value]), partition.value, Reading(*self._reading))
            columns = [
                pa.array([answer.number], pa.int32()),
                pa.array([answer.size], pa.int64()),
                pa.array([answer.small], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, names=answer._fields)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            return "number int, size bigint, small binary"

        def reader(self, schema: object) -> Reader:
            del schema
            return Reader(self.options)

    return Source
