"""The stream reader that Spark asks, for PySpark 4.0 and later.

From 4.2 on, Spark says where the last batch ended, and how much it wants.
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
    """Return the class that reads a StreamSource."""
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
            """Return the bytes of a batch; None if Spark wants all available data."""
            if limit is None:
                return self._source.batch_size
            found: int | None = getattr(limit, "max_bytes", None)
            return found

    return StreamReader
