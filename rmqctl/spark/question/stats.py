"""`rmqctl job stats`: the number, sizes, times and rate of messages by queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.spark.source.message_schema import messages_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = ("broker", "store", "topic", "queueId", "queueOffset", "bodyLength", "storeTimestamp")


def stats(records: DataFrame) -> DataFrame:
    """Return one row of statistics for each queue that has messages.

    A queue is a broker, store, topic and queueId. `records` come from the data source `rocketmq`. Sizes are bytes of
    whole records. `bodyBytes` counts the bytes of bodies as they are stored. Timestamps are ms since 1970.
    `minQueueOffset` and `maxQueueOffset` are the queue offsets of messages, so the queue ends one offset after
    `maxQueueOffset`. `messagesPerSecond` is the number of messages divided by the seconds between the first and the
    last message. `messagesPerSecond` is null if the first and the last message were stored at the same time.
    """
    from pyspark.sql import functions as f

    messages = messages_of(records)
    seconds = (f.col("lastStoreTimestamp") - f.col("firstStoreTimestamp")) / 1000
    return (
        messages.groupBy("broker", "store", "topic", "queueId")
        .agg(
            f.count("*").alias("messages"),
            f.sum("size").alias("bytes"),
            f.sum(f.col("bodyLength").cast("bigint")).alias("bodyBytes"),
            f.min("size").alias("minSize"),
            f.avg("size").alias("avgSize"),
            f.max("size").alias("maxSize"),
            f.min("queueOffset").alias("minQueueOffset"),
            f.max("queueOffset").alias("maxQueueOffset"),
            f.min("storeTimestamp").alias("firstStoreTimestamp"),
            f.max("storeTimestamp").alias("lastStoreTimestamp"),
        )
        .withColumn("messagesPerSecond", f.try_divide("messages", seconds))
    )
