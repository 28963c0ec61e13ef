"""`rmqctl job sql`: answer an SQL query about messages, queues and damage."""

from __future__ import annotations

import base64
import re
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from rmqctl.errors import BadRequest
from rmqctl.spark.question.plan_bounds import NAMED, bounds_of
from rmqctl.spark.session.spark_error import one_line, own_error
from rmqctl.spark.source.bounded_splits import NO_BOUNDS
from rmqctl.spark.source.index_source import INDEX_COLUMNS
from rmqctl.spark.source.message_schema import DIVISIONS, KIND_DAMAGE, MESSAGE_COLUMNS, ddl, messages_of
from rmqctl.spark.source.queue_source import QUEUE_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from rmqctl.spark.source.bounded_splits import Bounds

DAMAGE_COLUMNS = (
    "broker", "store", "path", "physicalOffset", "size", "damage", "detail", "topic", "queueId", "queueOffset",
    "storeTimestamp",
)  # fmt: skip
# columns that are equal in all messages of a group, with the division that they need; for queries that need no other
# columns, the tasks count the messages
_DIVISION_OF = {"broker": "broker", "store": "broker", "topic": "topic", "queueId": "queue"}
COPIES = 4096  # a group becomes rows in steps, which limits the memory
FIRST_TASKS = "spark.sql.limit.initialNumPartitions"
RUNS_LATER_MS = 10 * 60 * 1000
_NOW = re.compile(r"\b(now|current_timestamp|current_date|curdate|localtimestamp)\b", re.IGNORECASE)
_COLUMNS_LISTED = "`rmqctl job sql --help` lists the columns of each view"
_HINTS = {
    "PARSE_SYNTAX_ERROR": "QUERY must be a SELECT, in the syntax of Spark SQL",
    "TABLE_OR_VIEW_NOT_FOUND": f"the views are messages, damage, queues and index; {_COLUMNS_LISTED}",
}
_LINE = re.compile(r"\bline (\d+)(?=,? pos \d)")


def views(records: DataFrame) -> dict[str, DataFrame]:
    """Return the rows of the views `messages` and `damage` of `records`, by name.

    `records` come from the data source `rocketmq` or, for `messages` alone, `rocketmq-groups`.
    """
    from pyspark.sql import functions as f

    if "messages" in records.columns:
        return {"messages": _each_message(records)}
    messages = messages_of(records).drop("kind", "damage", "detail")
    shown = [name for name in DAMAGE_COLUMNS if name in records.columns]
    return {"messages": messages, "damage": records.where(f.col("kind") == KIND_DAMAGE).select(*shown)}


def _each_message(groups: DataFrame) -> DataFrame:
    # all messages of a group have the same columns
    from pyspark.sql import functions as f

    names = [name for name in _DIVISION_OF if name in groups.columns]
    count, begin = f.col("messages"), f.col("begin")
    begins = f.explode(f.sequence(f.lit(0), count - 1, f.lit(COPIES)))
    steps = groups.select(*names, count, begins.alias("begin"))
    copies = f.sequence(f.lit(1), f.least(f.lit(COPIES), count - begin))
    return steps.select(*names, f.explode(copies)).select(*names)


def division_of(query: str, columns: Sequence[str]) -> str | None:
    """Return into which groups the tasks can divide the messages that a query needs.

    `columns` are those of `columns_of`. All messages of a group are equal in them, so the tasks send counts, and not
    each message. None if the query needs other columns, or damage.
    """
    if is_named("damage", query) or not _DIVISION_OF.keys() >= set(columns):
        return None
    return max((_DIVISION_OF[name] for name in columns), key=DIVISIONS.index, default=DIVISIONS[0])


def make_views(records: DataFrame) -> None:
    """Define the views messages and damage for the next query."""
    for name, frame in views(records).items():
        frame.createOrReplaceTempView(name)


def needed(spark: SparkSession, query: str, columns: Sequence[str]) -> Bounds:
    """Return which physical offsets and store times a query needs.

    `columns` are those of `columns_of`. The views messages and damage are defined without rows. Raises BadRequest if
    Spark does not understand the query. With Spark Connect, all are needed (NO_BOUNDS), because the plan is not known.
    """
    from pyspark.sql.utils import is_remote

    if is_remote() or NAMED.search(query) is None:
        return NO_BOUNDS
    schema = ddl(MESSAGE_COLUMNS, dict.fromkeys(("kind", *columns)))
    make_views(spark.createDataFrame(spark.sparkContext.emptyRDD(), schema))
    with refusals():
        found = bounds_of(select(spark, query))
    if found.until is not None and _NOW.search(query):  # later, when Spark runs the query
        found = found._replace(until=found.until + RUNS_LATER_MS)
    return found


def is_named(view: str, query: str) -> bool:
    """Return whether the text of a query contains the name of a view."""
    return re.search(rf"\b{view}\b", query, re.IGNORECASE) is not None


def columns_of(query: str) -> list[str]:
    """Return the columns of `messages` and `damage` that a query may need.

    These are the ones that it names, or all if it may use unnamed ones (as with `*`).
    """
    words = {word.lower() for word in re.findall(r"\w+", query)}
    selects, tables = (len(re.findall(rf"\b{word}\b", query, re.IGNORECASE)) for word in ("select", "from"))
    stars = re.sub(r"\bcount\s*\(\s*\*\s*\)", "", query, flags=re.IGNORECASE)
    if "*" in stars or "|>" in query or selects < tables or words & {"table", "natural"}:
        return list(MESSAGE_COLUMNS)
    return [name for name in MESSAGE_COLUMNS if name.lower() in words]


def select(spark: SparkSession, query: str) -> DataFrame:
    """Return the answer to a query, as a DataFrame.

    Raises BadRequest if Spark does not understand the query, if it would change data, or if two columns of the answer
    have the same name, because each row becomes a JSON object.
    """
    from pyspark.errors import AnalysisException, ParseException

    with refusals(AnalysisException, ParseException):
        spark.sql(f"WITH asked AS (\n{query}\n) SELECT 1")  # only a query can have a name in WITH
        answer = spark.sql(query)
    answer = answer.alias("asked")  # otherwise Spark does not tell what was observed in the views
    names = answer.columns
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise BadRequest(
            f"two columns of the result have the name {twice[0]}",
            hint="AS renames one; JOIN ... USING makes one of both",
        )
    return answer


def rows(frame: DataFrame, limit: int) -> list[dict[str, Any]]:
    """Return the first rows as dicts, with values that can be written as JSON.

    The driver gets at most `limit` rows from Spark, so that a large answer does not need all its memory. Raises
    BadRequest if the query fails, or the rmqctl error that a task raised.
    """
    from pyspark.sql.utils import is_remote

    spark = frame.sparkSession
    if not is_remote():  # by default, Spark begins with one task, to see whether its rows are enough
        spark.conf.set(FIRST_TASKS, max(spark.sparkContext.defaultParallelism, 1))
    with refusals():
        return [dict(zip(frame.columns, map(plain, row), strict=True)) for row in frame.limit(limit).collect()]


@contextmanager
def refusals(*kinds: type[Exception]) -> Iterator[None]:
    """Turn Spark's errors of a query in the block into rmqctl's.

    `kinds` are the errors of Spark (default: all). They become the rmqctl error that caused them, or a BadRequest, in
    whose text line 1 is the first line of the user's query.
    """
    from pyspark.errors import PySparkException

    caught = kinds or (PySparkException,)
    try:
        yield
    except caught as error:
        said = _LINE.sub(lambda found: f"line {int(found[1]) - 1}", one_line(error)).rstrip(";")
        raise own_error(error) or BadRequest(f"the query is refused: {said}", hint=_hint(error)) from error


def _hint(error: Exception) -> str:
    from pyspark.errors import PySparkException

    condition = (error.getCondition() or "") if isinstance(error, PySparkException) else ""
    if isinstance(error, PySparkException) and condition.startswith("UNRESOLVED_COLUMN"):
        name = (error.getMessageParameters() or {}).get("objectName", "").rpartition(".")[2].strip("`")
        return _nearest(name)
    return _HINTS.get(condition, "")


def _nearest(name: str) -> str:
    """Return a hint on the name of an unknown column: the most similar one.

    If there is none, or if the column is one of another view, the hint says where the columns are listed. Spark cannot
    suggest all columns, because a job loads only columns that the query names.
    """
    known = {column.lower(): column for column in (*MESSAGE_COLUMNS, *DAMAGE_COLUMNS, *QUEUE_COLUMNS, *INDEX_COLUMNS)}
    near = get_close_matches(name.lower(), known, n=1)
    is_another = bool(near) and near[0] != name.lower()
    return f"did you mean {known[near[0]]}?" if is_another else _COLUMNS_LISTED


def plain(value: Any) -> Any:
    """Return a value of Spark in a form that can be written as JSON.

    Bytes become base64, times RFC 3339, decimals text, structs and maps objects.
    """
    simple: dict[type, Callable[[Any], Any]] = {
        bytearray: lambda data: base64.b64encode(data).decode(),
        bytes: lambda data: base64.b64encode(data).decode(),
        datetime: _moment,
        date: date.isoformat,
        Decimal: str,
    }
    if type(value) in simple:
        return simple[type(value)](value)
    if hasattr(value, "asDict"):
        return {name: plain(one) for name, one in value.asDict().items()}
    if isinstance(value, dict):
        return {str(plain(key)): plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def _moment(moment: datetime) -> str:
    """Return a time as RFC 3339 text in UTC, with milliseconds.

    PySpark gives times in the time zone of this process.
    """
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
