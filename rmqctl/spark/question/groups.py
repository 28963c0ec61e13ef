"""Make tables of message groups for the jobs that count messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.spark.source.message_schema import messages_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# the columns of a group with one message, by the column of the message
_OF_ONE = {
    "size": ("bytes", "minSize", "maxSize"),
    "bodyLength": ("bodyBytes",),
    "queueOffset": ("minQueueOffset", "maxQueueOffset"),
    "storeTimestamp": ("firstStoreTimestamp", "lastStoreTimestamp"),
}


def groups_of(records: DataFrame) -> DataFrame:
    """Return a table of message groups, with the columns of `rocketmq-groups`.

    Records of `rocketmq-groups` stay unchanged. Each message of `rocketmq` becomes a group.
    """
    from pyspark.sql import functions as f

    if "messages" in records.columns:
        return records
    groups = messages_of(records)
    named = {name: f.col(of) for of, names in _OF_ONE.items() if of in records.columns for name in names}
    return groups.withColumns(named | {"messages": f.lit(1)})
