"""The data sources of rmqctl, which show stores as Spark tables.

`spark.read.format("rocketmq").load([STORE, ...])` reads a table. Spark finds the formats by itself if rmqctl is
installed in the Python that Spark's JVM starts: `PYSPARK_DRIVER_PYTHON`, or else `PYSPARK_PYTHON`, or else python3. It
looks for the class DefaultSource in packages whose names begin with `pyspark_`, and each of these has one format, such
as `pyspark_rocketmq`. For all other sessions, call `register`.

- `rocketmq`: the records of the log, as a table or as a stream.
- `rocketmq-groups`: counts of the messages by queue, topic or broker, and by store time.
- `rocketmq-queues`: the units of the consume queues.
- `rocketmq-index`: the entries of the index.

The modules message_source, stream_source, queue_source and index_source describe the options. Executors need rmqctl,
its libraries and pyarrow. Spark gets Arrow batches, so pandas is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rmqctl.errors import BadRequest
from rmqctl.forensics.message_filter import Filter
from rmqctl.spark.source.index_source import INDEX_COLUMNS, IndexSource
from rmqctl.spark.source.message_schema import BLOCK_COLUMNS, GROUP_COLUMNS, MESSAGE_COLUMNS, SEND_COLUMNS, chosen, ddl
from rmqctl.spark.source.message_source import BlockSource, GroupSource, MessageSource, SendSource, UnconfirmedSource
from rmqctl.spark.source.queue_source import QUEUE_COLUMNS, QueueSource
from rmqctl.spark.source.short_errors import batches_in_short, in_short
from rmqctl.spark.source.stream.stream_reader import stream_reader_class

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
    from pyspark.sql.datasource import Filter as SparkFilter
    from pyspark.sql.types import StructType

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_TEXTS = {"tags": "tag", "uniqKey": "key"}  # `key` also matches words of KEYS, so it leaves out fewer messages
_EQUAL = {"queueId": "queue_id", "queueOffset": "queue_offset"}
_LOW = {"storeTimestamp": "since", "physicalOffset": "from_offset"}


class Source(Protocol):
    """The part of a format that reads stores.

    The driver calls `tasks`, and each task `read`.
    """

    def tasks(self) -> Sequence[Any]:
        """Return one item for each task, which describes what it must read."""

    def read(self, task: Any, /) -> Iterator[Any]:
        """Return the record batches (pyarrow) of a task."""


class Format(NamedTuple):
    """A format of `spark.read.format`: its name, columns, source and readers."""

    name: str
    columns: Mapping[str, str]  # with their Spark types
    source: Callable[[Mapping[str, str], Sequence[str]], Source]  # for the options and the column names
    reader: Callable[[Any], DataSourceReader]
    # None: the format cannot be read as a stream
    stream: Callable[[Mapping[str, str], Sequence[str]], DataSourceStreamReader] | None = None


def register(spark: SparkSession) -> None:
    """Register the data sources of rmqctl in a Spark session.

    In Spark 4.0, this changes nothing if Spark has found them by itself.

    Spark pushes filters down to `rocketmq` if the setting PUSHDOWN is on when this is called, and if this version of
    Spark keeps the filters of a query out of other queries. Otherwise a reader without filters is registered: with
    PUSHDOWN off, Spark refuses one with filters.
    """
    filtering = keeps_filters_apart() and spark.conf.get(PUSHDOWN, "false") == "true"
    for one in (*formats(filtering=filtering).values(), *_formats_of_jobs()):
        _register(spark, one)


def keeps_filters_apart() -> bool:
    """Return whether this PySpark reads each query by its own filters only.

    Spark 4.0 gives no filters to Python. Spark 4.1 to 4.3 also uses the filters of a query for later queries on the
    same DataFrame, so these miss rows. The error was corrected together with SPARK-58551, which added `pushLimit`.
    """
    from pyspark.sql.datasource import DataSourceReader

    return hasattr(DataSourceReader, "pushLimit")


def _register(spark: SparkSession, source: type[DataSource]) -> None:
    from pyspark.errors import AnalysisException

    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def formats(*, filtering: bool = False) -> dict[str, type[DataSource]]:
    """Return Spark's class for each format, by the name of the format."""
    reader, filtering_reader = _readers()
    messages = filtering_reader if filtering else reader
    found = (
        Format("rocketmq", MESSAGE_COLUMNS, MessageSource, messages, _stream_reader),
        Format("rocketmq-groups", GROUP_COLUMNS, GroupSource, reader),
        Format("rocketmq-queues", QUEUE_COLUMNS, QueueSource, reader),
        Format("rocketmq-index", INDEX_COLUMNS, IndexSource, reader),
    )
    return {one.name: _data_source(one) for one in found}


def _formats_of_jobs() -> list[type[DataSource]]:
    reader, _ = _readers()
    found = (
        Format("rmqctl-sends", SEND_COLUMNS, SendSource, reader),
        Format("rmqctl-blocks", BLOCK_COLUMNS, BlockSource, reader),
        Format("rmqctl-unconfirmed", MESSAGE_COLUMNS, UnconfirmedSource, reader),
    )
    return [_data_source(one) for one in found]


def _stream_reader(options: Mapping[str, str], columns: Sequence[str]) -> DataSourceStreamReader:
    from rmqctl.spark.source.stream.stream_source import StreamSource  # imports numba, which planning does not need

    return stream_reader_class()(StreamSource(options, columns))


def _data_source(one: Format) -> type[DataSource]:
    from pyspark.sql.datasource import DataSource

    class Stores(DataSource):
        @classmethod
        def name(cls) -> str:
            return one.name

        @in_short
        def schema(self) -> str:
            return ddl(one.columns, chosen(one.columns, self.options.get("columns")))

        @in_short
        def reader(self, schema: StructType) -> DataSourceReader:
            return one.reader(one.source(self.options, schema.fieldNames()))

        @in_short
        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
            if one.stream is None:
                raise BadRequest(f"{one.name} cannot be read as a stream", hint="rocketmq can")
            return one.stream(self.options, schema.fieldNames())

    return Stores


def _readers() -> tuple[Callable[[Any], DataSourceReader], Callable[[Any], DataSourceReader]]:
    """Return two reader classes: one without and one with filter pushdown.

    The second can read only a MessageSource.
    """
    from pyspark.sql.datasource import DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def __init__(self, source: Any) -> None:
            self._source = source

        @in_short
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(task) for task in self._source.tasks()]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            # if there are no partitions, Spark calls `read` with the value None, and Spark 4.0 with None
            task = getattr(partition, "value", None)
            return iter(()) if task is None else batches_in_short(self._source.read(task))

    class FilteringReader(Reader):
        def pushFilters(self, filters: list[SparkFilter]) -> Iterable[SparkFilter]:  # noqa: N802 -- Spark's name
            self._source.want(wanted_by(filters))
            return filters

    return Reader, FilteringReader


def wanted_by(filters: Iterable[SparkFilter]) -> Filter:
    """Return one filter that selects all messages that meet all `filters`.

    It may select others, too: only the cheap filters are applied here, and Spark applies all of them again.
    """
    conditions: dict[str, Any] = {}
    for one in filters:
        for name, value in _conditions(one):
            conditions[name] = _both(name, conditions[name], value) if name in conditions else value
    return Filter(**conditions)


def _conditions(one: SparkFilter) -> list[tuple[str, Any]]:
    """Return the fields of Filter, with values, that correspond to a filter of Spark.

    They may select more messages than Spark's filter, but never fewer. The list is empty if no field corresponds.
    """
    from pyspark.sql import datasource as spark

    column = getattr(one, "attribute", ("",))[0]
    value = getattr(one, "value", None)
    if column == "topic" and isinstance(one, spark.EqualTo | spark.In):
        topics = frozenset(
            text for text in (one.value if isinstance(one, spark.In) else (value,)) if isinstance(text, str)
        )
        return [("topics", topics)] if topics else []  # no topic is equal to null
    if isinstance(one, spark.EqualTo) and column in _TEXTS:
        return [(_TEXTS[column], value)]
    if isinstance(one, spark.EqualTo) and column in _EQUAL:
        return [(_EQUAL[column], value)]
    if column not in _LOW or not isinstance(value, int):
        return []
    conditions = []
    if isinstance(one, spark.EqualTo | spark.GreaterThan | spark.GreaterThanOrEqual):
        conditions.append((_LOW[column], value + isinstance(one, spark.GreaterThan)))
    if isinstance(one, spark.EqualTo | spark.LessThan | spark.LessThanOrEqual):
        last = value - isinstance(one, spark.LessThan)
        conditions.append(("until", last) if column == "storeTimestamp" else ("to_offset", last + 1))
    return conditions


def _both(name: str, one: Any, other: Any) -> Any:
    # the combined condition may select too many messages, but misses none
    if name == "topics":
        return one & other or one
    if name in ("since", "from_offset"):
        return max(one, other)
    return min(one, other) if name in ("until", "to_offset") else one
