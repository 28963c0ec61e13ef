"""`spark.read.format("rocketmq").load([STORE, ...])`: stores as tables, after `register(spark)`.

Executors need rmqctl and its libraries, with pyarrow. Batches are Arrow's, made of columns; no pandas. What the options are,
the sources' modules say: message_source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.jobs.message_schema import MESSAGE_COLUMNS, chosen, ddl
from rmqctl.jobs.message_source import MessageSource
from rmqctl.jobs.pushed_filter import wanted_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
    from pyspark.sql.types import StructType

MESSAGES = "rocketmq"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession, cache: Path | None = None) -> None:
    """Make the formats known to a session; tasks keep compiled kernels in the folder `cache`, where it is there.

    Filters are pushed down where the session has PUSHDOWN on at this moment: Spark refuses readers that can, where it is off.
    """
    pushed = spark.conf.get(PUSHDOWN, "false") == "true"
    spark.dataSource.register(_messages(None if cache is None else str(cache), pushed=pushed))


def _messages(cache: str | None, *, pushed: bool) -> type[DataSource]:
    from pyspark.sql.datasource import DataSource

    reader = _reader(pushed=pushed)

    class Messages(DataSource):
        @classmethod
        def name(cls) -> str:
            return MESSAGES

        def schema(self) -> str:
            return ddl(MESSAGE_COLUMNS, chosen(MESSAGE_COLUMNS, self.options.get("columns")))

        def reader(self, schema: StructType) -> DataSourceReader:
            return reader(MessageSource(self.options, schema.fieldNames(), cache))

    return Messages


def _reader(*, pushed: bool) -> Callable[[MessageSource], DataSourceReader]:
    from pyspark.sql.datasource import DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def __init__(self, source: MessageSource) -> None:
            self._source = source

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(task) for task in self._source.tasks()]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            return iter(()) if partition.value is None else self._source.read(partition.value)

    class FilteringReader(Reader):
        def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 -- Spark's name
            self._source.want(wanted_by(filters))
            return filters

    return FilteringReader if pushed else Reader
