"""The keys of a record in JSON, CSV and exports, in their order: RocketMQ's names of fields, and times as text."""

from __future__ import annotations

RECORD_KEYS = (
    "topic", "queueId", "queueOffset", "physicalOffset", "size", "bodyCrc", "bodyLength", "flag", "sysFlag", "bornTimestamp", "bornTime",
    "bornHost", "storeTimestamp", "storeTime", "storeHost", "reconsumeTimes", "preparedTransactionOffset", "msgId", "tagsCode", "path",
    "properties",
)  # fmt: skip
TIMES = ("bornTime", "storeTime")  # the timestamps once more, as RFC 3339
TEXTS = frozenset(("topic", *TIMES, "bornHost", "storeHost", "msgId"))  # whose values are plain text in quotes
ROW_KEYS = (*RECORD_KEYS, "body", "bodyEncoding", "damage", "detail")
