"""`rmqctl job duplicates`: find messages that were stored more than once.

If a producer repeats a send after a timeout, the broker may store the message twice.
"""

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
    """Return a row for each message that was stored more than once.

    Copies of one message have the same topic, UNIQ_KEY and body (length and checksum).

    Columns: topic, uniqKey, bodyCrc, bodyLength, count, places. `places` has the broker, store, queueId, queueOffset,
    physicalOffset and storeTimestamp of each copy. `places` begins with the copy that was stored first.

    Brokers of 4.9 and later append the properties of a batch to each message of the batch. Different messages of a
    batch can have equal UNIQ_KEYs. Copies are not reported if all copies were stored in one queue in one millisecond.

    Without `all_topics`, the brokers' own topics are not searched.
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


def first(found: DataFrame, count: int) -> DataFrame:
    """Return the first `count` rows of `duplicates`, in the order that users see.

    Spark reads the whole log for these rows, but the driver gets no other rows.
    """
    from pyspark.sql import functions as f

    return found.orderBy("topic", f.col("places")[0]["storeTimestamp"], "uniqKey", "bodyCrc").limit(count)
