"""`rmqctl job stats`: the number, sizes, times and rate of messages by queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.spark.question.groups import groups_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = (
    "broker", "store", "topic", "queueId", "messages", "bytes", "bodyBytes", "minSize", "maxSize", "minQueueOffset",
    "maxQueueOffset", "firstStoreTimestamp", "lastStoreTimestamp",
)  # fmt: skip


def stats(records: DataFrame) -> DataFrame:
    """Return one row of statistics for each queue that has messages.

    A queue is identified by its broker, store, topic and queueId. `records` come from the data source `rocketmq`, or
    faster from `rocketmq-groups`. Sizes are bytes of whole records. `bodyBytes` is the total size of the stored bodies,
    which may be compressed. Timestamps are ms since 1970.

    `minQueueOffset` and `maxQueueOffset` are the lowest and the highest queue offset of a message. `messagesPerSecond`
    is the number of messages divided by the seconds between the first and the last one, and null if both have equal
    store times.
    """
    from pyspark.sql import functions as f

    seconds = (f.col("lastStoreTimestamp") - f.col("firstStoreTimestamp")) / 1000
    return (
        groups_of(records)
        .groupBy("broker", "store", "topic", "queueId")
        .agg(
            f.sum("messages").alias("messages"),
            f.sum("bytes").alias("bytes"),
            f.sum("bodyBytes").alias("bodyBytes"),
            f.min("minSize").alias("minSize"),
            (f.sum("bytes") / f.sum("messages")).alias("avgSize"),
            f.max("maxSize").alias("maxSize"),
            f.min("minQueueOffset").alias("minQueueOffset"),
            f.max("maxQueueOffset").alias("maxQueueOffset"),
            f.min("firstStoreTimestamp").alias("firstStoreTimestamp"),
            f.max("lastStoreTimestamp").alias("lastStoreTimestamp"),
        )
        .withColumn("messagesPerSecond", f.try_divide("messages", seconds))
    )
