"""`rmqctl job timeline`: how many messages were stored in each interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.spark.source.message_schema import messages_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MINUTE_MS = 60_000
COLUMNS = ("broker", "store", "topic", "storeTimestamp")


def timeline(records: DataFrame, interval_ms: int = MINUTE_MS, *, by_topic: bool = False) -> DataFrame:
    """Return the number of messages that a broker stored in each interval.

    Each interval is `interval_ms` long, and begins at a multiple of this length since 1970. Columns: broker, store,
    topic (with `by_topic`), `timestamp` (the beginning of the interval, ms since 1970), messages, bytes. An interval
    without messages has no row.
    """
    from pyspark.sql import functions as f

    messages = messages_of(records)
    begin = f.col("storeTimestamp") - f.pmod("storeTimestamp", f.lit(interval_ms))
    keys = ["broker", "store", *(["topic"] if by_topic else [])]
    return messages.groupBy(*keys, begin.alias("timestamp")).agg(
        f.count("*").alias("messages"), f.sum("size").alias("bytes")
    )
