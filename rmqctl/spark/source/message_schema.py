"""The columns of `rocketmq` and `rocketmq-groups`, with their types.

In `rocketmq`, each message, blank and damaged place is one row; in `rocketmq-groups`, a row has the counts of a group
of messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

# offsets and sizes in bytes, queueOffset in units, timestamps in ms since 1970; null in rows of blanks and of bytes
# that are no record
MESSAGE_COLUMNS = {
    "broker": "string", "store": "string", "path": "string", "kind": "string", "physicalOffset": "bigint",
    "size": "bigint", "topic": "string", "queueId": "int", "queueOffset": "bigint", "bodyCrc": "bigint",
    "bodyLength": "int", "flag": "int", "sysFlag": "int", "bornTimestamp": "bigint", "bornTime": "timestamp",
    "bornHost": "string",
    "storeTimestamp": "bigint", "storeTime": "timestamp", "storeHost": "string", "reconsumeTimes": "int",
    "preparedTransactionOffset": "bigint", "msgId": "string", "tagsCode": "bigint", "tags": "string", "keys": "string",
    "uniqKey": "string", "properties": "map<string,string>", "body": "binary", "bodyText": "string",
    "damage": "string", "detail": "string",
}  # fmt: skip
# sizes in bytes, queue offsets in units, timestamps in ms since 1970; `timestamp` is where an interval begins;
# physicalOffset, size and detail only in rows of kind 'range'
GROUP_COLUMNS = {
    "broker": "string", "store": "string", "kind": "string", "physicalOffset": "bigint", "size": "bigint",
    "detail": "string", "topic": "string", "queueId": "int", "timestamp": "bigint", "messages": "bigint",
    "bytes": "bigint", "bodyBytes": "bigint", "minSize": "bigint", "maxSize": "bigint", "minQueueOffset": "bigint",
    "maxQueueOffset": "bigint", "firstStoreTimestamp": "bigint", "lastStoreTimestamp": "bigint",
}  # fmt: skip
# a message with a UNIQ_KEY: the number of its store (of all stores of the table), the number of its file in the log,
# its position in the file in bytes, and a hash that is equal for equal topic, UNIQ_KEY and body checksum
SEND_COLUMNS = {
    "kind": "string", "detail": "string", "storeNumber": "int", "fileNumber": "int", "position": "bigint",
    "hash": "bigint",
}  # fmt: skip
# a part [begin, end) (physical offsets) of a block of the log, in the file `fileNumber` (-1: between files); `digest`
# is null if the part has damage or a very large message
BLOCK_COLUMNS = {
    "kind": "string", "detail": "string", "block": "bigint", "fileNumber": "int", "begin": "bigint", "end": "bigint",
    "messages": "bigint", "digest": "binary",
}  # fmt: skip
KIND_MESSAGE, KIND_BLANK, KIND_DAMAGE, KIND_RANGE, KIND_GROUP = "message", "blank", "damage", "range", "group"
KIND_SEND, KIND_BLOCK = "send", "block"
CONFIRMED = "confirmed"  # `detail` of a message whose unit was found, with `Unconfirmed`
DIVISIONS = ("broker", "topic", "queue")


class Division(NamedTuple):
    """The fields by which messages are divided into groups."""

    by: str  # one of DIVISIONS: broker, topic or queue
    interval_ms: int  # length of an interval of store time; 0: not divided by time


class Sends(NamedTuple):
    """Rows of SEND_COLUMNS, for the stores `roots`."""

    roots: tuple[str, ...]
    all_topics: bool  # else the brokers' own topics have no rows


class Blocks(NamedTuple):
    """Rows of BLOCK_COLUMNS."""

    bodies: bool  # digests are of whole records, not only of the fields that `job diff` compares


class Unconfirmed(NamedTuple):
    """Rows of MESSAGE_COLUMNS for the messages that their queues do not confirm.

    Blanks, damage and messages at queue offset 0 also have rows; if the queue confirms such a message, `detail` is
    CONFIRMED. Prepared messages and rollback records have none.
    """


Summary = Division | Sends | Blocks | Unconfirmed


def columns_for(summary: Summary | None) -> Mapping[str, str]:
    """Return the columns of the rows, with their types."""
    if isinstance(summary, Division):
        return GROUP_COLUMNS
    if isinstance(summary, Sends):
        return SEND_COLUMNS
    return BLOCK_COLUMNS if isinstance(summary, Blocks) else MESSAGE_COLUMNS


def ddl(columns: Mapping[str, str], names: Iterable[str]) -> str:
    """Return the schema of the columns `names`, as the text that Spark reads.

    `columns` has their Spark types.
    """
    return ", ".join(f"{name} {columns[name]}" for name in names)


def chosen(columns: Mapping[str, str], wanted: str | None) -> list[str]:
    """Return the column names in the comma-separated list `wanted`, in its order.

    None means all. Raises BadRequest if the list is empty or names an unknown column.
    """
    if wanted is None:
        return list(columns)
    names = list(dict.fromkeys(name.strip() for name in wanted.split(",") if name.strip()))
    unknown = [name for name in names if name not in columns]
    if unknown or not names:
        what = f"there is no column {unknown[0]!r}" if unknown else "no column is named"
        raise BadRequest(what, hint=f"there are {', '.join(columns)}")
    return names


def arrow_schema(columns: Mapping[str, str], names: Sequence[str]) -> Any:
    """Return the pyarrow schema that Spark expects for the columns `names`."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "binary": pa.binary(),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
    }
    return pa.schema([(name, types[columns[name]]) for name in names])


def messages_of(records: DataFrame) -> DataFrame:
    """Return the rows of whole messages."""
    from pyspark.sql import functions as f

    return records.where(f.col("kind") == KIND_MESSAGE)


def record_batch(schema: Any, columns: Mapping[str, Any], same: Mapping[str, Any], count: int) -> Any:
    """Return a record batch of `count` rows, with the columns of `schema` (pyarrow).

    `columns` has the columns whose values differ by row, `same` the value of the others.
    """
    import pyarrow as pa

    arrays = [
        pa.array(columns[field.name], field.type)
        if field.name in columns
        else pa.repeat(pa.scalar(same[field.name], field.type), count)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def gathered(batches: Iterable[Any], size_of: Callable[[Any], int], most: int) -> Iterator[Any]:
    """Yield the rows of record batches as tables (pyarrow), in order.

    `size_of` measures a record batch. A table ends with the one by which it has `most` or more.
    """
    import pyarrow as pa

    pending: list[Any] = []
    size = 0
    for batch in batches:
        pending.append(batch)
        size += size_of(batch)
        if size >= most:
            yield pa.Table.from_batches(pending)
            pending, size = [], 0
    if pending:
        yield pa.Table.from_batches(pending)
