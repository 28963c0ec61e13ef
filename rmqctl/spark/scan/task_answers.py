"""Call functions of rmqctl in Spark's tasks, with one task for each call.

In a classic session, an RDD makes the calls, because its tasks start immediately. Spark Connect has no RDDs: there, a
data source makes them, with one partition and one row for each call. This is slower, because Spark must plan a query
and start three processes for the data source. Unlike mapInArrow, it does not need pandas.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

NAME = "rmqctl-calls"
T = TypeVar("T")
_REGISTERING = threading.Lock()  # a Connect server refuses a data source that another thread registers at the time


class Answer(NamedTuple):
    """The answer that a task sends to the driver."""

    number: int  # of the call
    size: int  # packed bytes before compression
    small: bytes  # the result of the call, packed and compressed


def answers(spark: SparkSession, calls: Sequence[Callable[[], T]]) -> dict[int, Callable[[], T]]:
    """Make all calls in one Spark job, and return their results.

    The keys are the numbers of the calls, from 0, and the values functions that unpack a result. Each call must be a
    function of a module, or a `functools.partial` of one. Several threads may use one session. Raises the errors of
    Spark and of the calls.
    """
    from pyspark.sql.utils import is_remote

    numbered = [(number, pickle.dumps(call, pickle.HIGHEST_PROTOCOL)) for number, call in enumerate(calls)]
    found = _by_query(spark, numbered) if is_remote() else _by_rdd(spark, numbered)
    return {answer.number: partial(Small.value, Small(answer.size, answer.small)) for answer in found}


def results(spark: SparkSession, calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make all calls as `answers` does, and return their results in order."""
    found = answers(spark, calls)
    return [found[number]() for number in range(len(calls))]


class Small(NamedTuple):
    """A value that was packed and compressed; `size` is the number of packed bytes."""

    size: int
    data: bytes

    @classmethod
    def of(cls, value: Any) -> Small:
        """Pack and compress a value."""
        found = packed(value)
        return cls(len(found), _codec().compress(found, asbytes=True))

    def value(self) -> Any:
        """Return the value. The rule of `unpacked` applies."""
        return unpacked(_codec().decompress(self.data, self.size))


def packed(result: Any) -> bytes:
    """Return the result of a call as bytes."""
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(result)
    return buffer.getvalue()


def unpacked(raw: bytes | pa.Buffer) -> Any:
    """Return the value that `packed` turned into bytes.

    They must come from the driver or from a task of the same job, because unpickling can run code.
    """
    return pickle.loads(raw)  # noqa: S301 -- by this job, over Spark's own channel


class _Pickler(pickle.Pickler):
    """A pickler that writes memoryviews as bytes.

    Bodies of messages are memoryviews, which Python's own pickler refuses.
    """

    def reducer_override(self, value: Any) -> Any:
        return (memoryview, (bytes(value),)) if isinstance(value, memoryview) else NotImplemented


def _answered(numbered: tuple[int, bytes]) -> Answer:
    number, call = numbered
    return Answer(number, *Small.of(unpacked(call)()))


def _by_rdd(spark: SparkSession, numbered: Sequence[tuple[int, bytes]]) -> list[Answer]:
    found: list[Answer] = spark.sparkContext.parallelize(numbered, len(numbered)).map(_answered).collect()
    return found


def _by_query(spark: SparkSession, numbered: Sequence[tuple[int, bytes]]) -> list[Answer]:
    with _REGISTERING:
        spark.dataSource.register(_source())
    calls = json.dumps([base64.b64encode(call).decode() for _, call in numbered])
    table = spark.read.format(NAME).options(calls=calls).load().toArrow()
    return [Answer(*row) for row in zip(*(table.column(name).to_pylist() for name in Answer._fields), strict=True)]


def _codec() -> pa.Codec:
    # makes columns 4 to 12 times smaller: uncompressed, their transfer to the driver takes longer than the tasks
    import pyarrow as pa

    return pa.Codec("zstd", compression_level=1)


def _source() -> type[DataSource]:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def __init__(self, options: Mapping[str, str]) -> None:
            self._calls = json.loads(options["calls"])  # unpacked in the task: the planner does not need numba

        def partitions(self) -> Sequence[InputPartition]:
            return [InputPartition(number) for number in range(len(self._calls))]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            import pyarrow as pa

            answer = _answered((partition.value, base64.b64decode(self._calls[partition.value])))
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
