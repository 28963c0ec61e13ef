"""`rmqctl job duplicates`: messages that were stored more than once, as when a producer sends again what a broker had taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.spark.source.message_schema import messages_of
from rmqctl.store.config.topics import GROUP_PREFIXES, SCHEDULE_TOPIC, SYSTEM_PREFIXES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = (
    "broker", "store", "topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "uniqKey", "bodyCrc",
    "bodyLength",
)  # fmt: skip
# where brokers keep copies of messages by design: delays, half messages and their placeholders, retries, dead letters
BROKERS_OWN_TOPICS = f"^({SCHEDULE_TOPIC}$|{'|'.join((*SYSTEM_PREFIXES, *GROUP_PREFIXES))})"


def duplicates(records: DataFrame, *, all_topics: bool = False) -> DataFrame:
    """Return a row for each message with the same topic, UNIQ_KEY and body (length and checksum) that was stored more than once.

    Columns: topic, uniqKey, bodyCrc, bodyLength, count, places: broker, store, queueId, queueOffset, physicalOffset,
    storeTimestamp of each, the first stored first. Messages of one batch have one UNIQ_KEY on brokers from 4.9 on (the
    batch's properties are appended to each): those stored in one queue in the same millisecond are one. Only
    `all_topics` looks at the brokers' own topics, too.
    """
    from pyspark.sql import functions as f

    messages = messages_of(records).where(f.col("uniqKey").isNotNull())
    if not all_topics:
        messages = messages.where(~f.col("topic").rlike(BROKERS_OWN_TOPICS))
    place = f.struct("storeTimestamp", "broker", "store", "queueId", "queueOffset", "physicalOffset")
    found = messages.groupBy("topic", "uniqKey", "bodyCrc", "bodyLength").agg(
        f.count("*").alias("count"), f.sort_array(f.collect_list(place)).alias("places")
    )
    stored = f.transform("places", lambda one: f.struct(one["store"], one["queueId"], one["storeTimestamp"]))
    return found.where((f.col("count") > 1) & (f.size(f.array_distinct(stored)) > 1))
