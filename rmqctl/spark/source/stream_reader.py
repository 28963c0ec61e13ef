"""The reader that Spark calls to read a stream, for PySpark 4.0 and later.

PySpark 4.2 and later also tell the reader where the last batch ended, and how much data Spark wants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

    from rmqctl.spark.source.stream_source import StreamSource

Offsets = dict[str, int]


def stream_reader_class() -> Callable[[StreamSource], DataSourceStreamReader]:
    """Return the class whose objects read a StreamSource for Spark."""
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

    class StreamReader(DataSourceStreamReader):
        def __init__(self, source: StreamSource) -> None:
            self._source = source
            self._reached: Offsets | None = None

        def initialOffset(self) -> Offsets:  # noqa: N802 -- Spark's names
            return self._source.begin()

        def latestOffset(self, start: Offsets | None = None, limit: Any = None) -> Offsets:  # noqa: N802
            known = start or self._reached or self._source.begin()
            self._reached = self._source.end(known, self._most(limit))
            return self._reached

        def getDefaultReadLimit(self) -> Any:  # noqa: N802
            from pyspark.sql.streaming.datasource import ReadMaxBytes

            return ReadMaxBytes(self._source.batch_size)

        def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
            self._reached = end
            return [InputPartition(task) for task in self._source.tasks(start, end)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            return self._source.read(partition.value)

        def _most(self, limit: Any) -> int | None:
            """Return the maximum size of the next batch in bytes.

            The result is None if Spark wants all available data. If Spark gives no limit, the result is the
            `batch_size` of the source.
            """
            if limit is None:
                return self._source.batch_size
            found: int | None = getattr(limit, "max_bytes", None)
            return found

    return StreamReader
