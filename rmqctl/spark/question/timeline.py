"""`rmqctl job timeline`: the number of messages stored in each time interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.spark.question.groups import groups_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MINUTE_MS = 60_000
COLUMNS = ("broker", "store", "topic", "firstStoreTimestamp", "messages", "bytes")


def timeline(records: DataFrame, interval_ms: int = MINUTE_MS, *, by_topic: bool = False) -> DataFrame:
    """Return the number of messages that a broker stored in each time interval.

    Intervals are `interval_ms` long, counted from 1970-01-01T00:00:00Z; one without messages has no row. Columns:
    broker, store, topic (with `by_topic`), `timestamp` (the beginning of the interval, ms since 1970), messages, bytes.

    `records` come from the data source `rocketmq`, or faster from `rocketmq-groups`; then `interval_ms` must be a
    multiple of its option `intervalMs`.
    """
    from pyspark.sql import functions as f

    begin = f.col("firstStoreTimestamp") - f.pmod("firstStoreTimestamp", f.lit(interval_ms))
    keys = ["broker", "store", *(["topic"] if by_topic else [])]
    return (
        groups_of(records)
        .groupBy(*keys, begin.alias("timestamp"))
        .agg(f.sum("messages").alias("messages"), f.sum("bytes").alias("bytes"))
    )
