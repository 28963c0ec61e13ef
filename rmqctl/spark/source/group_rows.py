"""Make the rows of `rocketmq-groups` from a split of the log.

Each row counts the messages of one group in one split, so a query must add up the rows of a group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rmqctl.format.message import Message
from rmqctl.kernels.group_scan import BY_BROKER, BY_QUEUE, BY_TOPIC, GroupTable
from rmqctl.spark.source.message_schema import GROUP_COLUMNS, KIND_GROUP, record_batch
from rmqctl.spark.source.source_stores import broker_of

if TYPE_CHECKING:
    from rmqctl.format.columns import Rows
    from rmqctl.logfile.column_reader import Columns
    from rmqctl.spark.source.message_schema import Division
    from rmqctl.store.read.file_scan import ScanItem

_BY = {"broker": BY_BROKER, "topic": BY_TOPIC, "queue": BY_QUEUE}
_FIELDS = {
    "messages": "messages", "bytes": "bytes", "bodyBytes": "body_bytes", "minSize": "min_size", "maxSize": "max_size",
    "minQueueOffset": "min_queue_offset", "maxQueueOffset": "max_queue_offset",
    "firstStoreTimestamp": "first_store_timestamp", "lastStoreTimestamp": "last_store_timestamp",
}  # fmt: skip


class GroupRows:
    """Makes the rows that count the messages of a split.

    `root` is the folder of the store, and `schema` is the pyarrow schema of the rows.
    """

    def __init__(self, root: str, schema: Any, division: Division) -> None:
        self._division = division
        self._schema = schema
        self._same = {"broker": broker_of(root), "store": root, "kind": KIND_GROUP}
        self._by = _BY[division.by]
        self._table = GroupTable(self._by, division.interval_ms)

    def of_run(self, columns: Columns) -> Any:
        """Count the messages of a record run.

        Returns a record batch of the counted groups if the table of groups becomes full, else None.
        """
        full = self._table.add(columns.buffer, columns.rows)
        return self._batch(np.concatenate(full)) if full else None

    def of_item(self, item: ScanItem, path: str) -> list[dict[str, Any]]:
        """Return the row of a message that is too large for a record run.

        A blank or damage has none.
        """
        del path
        if not isinstance(item, Message):
            return []
        ms, offset, interval = item.store_timestamp, item.queue_offset, self._division.interval_ms
        row = self._same | {
            "topic": item.topic if self._by >= BY_TOPIC else None,
            "queueId": item.queue_id if self._by >= BY_QUEUE else None,
            "timestamp": ms - ms % interval if interval else None,
            "messages": 1,
            "bytes": item.size,
            "bodyBytes": len(item.body),
        }
        limits = {"Size": item.size, "QueueOffset": offset}
        row |= {f"{end}{name}": value for name, value in limits.items() for end in ("min", "max")}
        return [row | {"firstStoreTimestamp": ms, "lastStoreTimestamp": ms}]

    def rest(self) -> Any:
        """Return a record batch of all groups that were not returned yet."""
        return self._batch(self._table.taken())

    def _batch(self, groups: Rows) -> Any:
        import pyarrow as pa

        columns: dict[str, Any] = {name: np.ascontiguousarray(groups[field]) for name, field in _FIELDS.items()}
        if self._by >= BY_TOPIC:
            texts = pa.array([topic.decode("utf-8", "replace") for topic in self._table.topics.texts], pa.string())
            columns["topic"] = texts.take(pa.array(np.ascontiguousarray(groups["topic"])))
        if self._by >= BY_QUEUE:
            columns["queueId"] = np.ascontiguousarray(groups["queue_id"])
        if self._division.interval_ms:
            columns["timestamp"] = np.ascontiguousarray(groups["timestamp"])
        same = dict.fromkeys(GROUP_COLUMNS) | self._same
        return record_batch(self._schema, columns, same, len(groups))
