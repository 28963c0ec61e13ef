"""The reader that Spark calls to read a stream, for PySpark 4.0 and later.

PySpark 4.2 and later also tell it where the last batch ended, and how much data Spark wants, and for the trigger
`availableNow` ask it to end where the logs end now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqctl.spark.source.short_errors import batches_in_short, in_short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

    from rmqctl.spark.source.stream.stream_source import Mark, StreamSource

    Offsets = dict[str, Mark | int]


def stream_reader_class() -> Callable[[StreamSource], DataSourceStreamReader]:
    """Return the class that reads a StreamSource for Spark."""
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

    class StreamReader(DataSourceStreamReader):
        def __init__(self, source: StreamSource) -> None:
            self._source = source
            self._last: dict[str, int] | None = None

        @in_short
        def initialOffset(self) -> Offsets:  # noqa: N802 -- Spark's names
            return self._source.marked(self._source.begin(), {})

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self._last = self._source.latest({})

        @in_short
        def latestOffset(self, start: Offsets | None = None, limit: Any = None) -> Offsets:  # noqa: N802
            known = self._source.unmarked(start or {})
            latest = self._last or self._source.latest(known)
            return self._source.marked(self._source.end(known, latest, getattr(limit, "max_bytes", None)), start or {})

        def getDefaultReadLimit(self) -> Any:  # noqa: N802
            from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

            return ReadMaxBytes(self._source.batch_size) if self._source.batch_size else ReadAllAvailable()

        @in_short
        def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
            first, last = self._source.unmarked(start), self._source.unmarked(end)
            return [InputPartition(task) for task in self._source.tasks(first, last)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            return batches_in_short(self._source.read(partition.value))

    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # PySpark 4.0 and 4.1: their availableNow reads one batch
        return StreamReader
    SupportsTriggerAvailableNow.register(StreamReader)
    return StreamReader
