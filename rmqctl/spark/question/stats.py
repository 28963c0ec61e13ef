"""`rmqctl job stats`: the number, sizes, times and rate of messages by queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.spark.source.message_schema import messages_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = ("broker", "store", "topic", "queueId", "queueOffset", "bodyLength", "storeTimestamp")


def stats(records: DataFrame) -> DataFrame:
    """Return a row for each broker, store, topic and queueId of the messages.

    `records` come from the data source `rocketmq`. Sizes are bytes of records; `bodyBytes` are bytes of bodies as
    stored. Timestamps are ms since 1970. `minQueueOffset` and `maxQueueOffset` are offsets of messages, so the queue
    ends one offset after `maxQueueOffset`. `messagesPerSecond` is the rate between the first and the last message; it
    is null if there is no time between them.
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
