"""A kernel that counts messages in groups, such as the messages of each queue.

A group has a topic, a queueId and a time interval, each 0 if messages are not grouped by it. The topic is read from the
bytes of a record, all numbers from RECORD_COLUMNS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.format.columns import Bytes, Int, Row, Rows

import numpy as np

from rmqctl.format.columns import row_type
from rmqctl.kernels.compile import SPREAD
from rmqctl.kernels.kernel import inline_kernel, kernel
from rmqctl.kernels.row_scan import TextTable, text_number, topic_of
from rmqctl.kernels.scan import RECORD_COLUMNS

# a group: the number of its topic, its queueId, the start of its interval (ms since 1970), the number of its messages,
# their bytes, and the lowest and highest size, queue offset and store time; a row without messages is free
GROUPS = row_type(
    "i8 timestamp messages bytes body_bytes min_queue_offset max_queue_offset",
    "i8 first_store_timestamp last_store_timestamp",
    "i4 topic queue_id min_size max_size",
)
BY_BROKER, BY_TOPIC, BY_QUEUE = range(3)
SLOTS = 1 << 16
_JOINS = (
    (np.add, "messages bytes body_bytes"),
    (np.minimum, "min_size min_queue_offset first_store_timestamp"),
    (np.maximum, "max_size max_queue_offset last_store_timestamp"),
)
_BY_TOPIC, _BY_QUEUE = BY_TOPIC, BY_QUEUE


@inline_kernel
def _slot(groups: Rows, topic: int, queue_id: int, timestamp: int) -> Int:
    """Return the slot of a group in the table, or a free slot for it."""
    h = (np.uint64(topic + 1) * SPREAD ^ np.uint64(queue_id + 1)) * SPREAD
    h = (h ^ h >> np.uint64(32) ^ np.uint64(timestamp)) * SPREAD
    slot = np.int64((h ^ h >> np.uint64(32)) & np.uint64(len(groups) - 1))
    while groups[slot].messages and not (
        groups[slot].topic == topic and groups[slot].queue_id == queue_id and groups[slot].timestamp == timestamp
    ):
        slot = (slot + 1) & (len(groups) - 1)
    return slot


@inline_kernel
def _add(group: Row, record: Row) -> None:
    group.messages += 1
    group.bytes += record.size
    group.body_bytes += record.body_length
    group.min_size = min(group.min_size, record.size)
    group.max_size = max(group.max_size, record.size)
    group.min_queue_offset = min(group.min_queue_offset, record.queue_offset)
    group.max_queue_offset = max(group.max_queue_offset, record.queue_offset)
    group.first_store_timestamp = min(group.first_store_timestamp, record.store_timestamp)
    group.last_store_timestamp = max(group.last_store_timestamp, record.store_timestamp)


@kernel
def _count(
    buffer: Bytes,
    rows: Rows,
    row: int,
    topics: Rows,
    pool: Bytes,
    by: int,
    interval: int,
    groups: Rows,
    used: int,
    most: int,
) -> tuple[int, int]:
    """Add rows to their groups; return the next row and the number of used slots.

    The kernel stops at a topic that has no number yet, and, if `most` slots are used, at a message of a new group.
    """
    while row < len(rows):
        record = rows[row]
        topic, queue_id, timestamp = np.int32(0), np.int32(0), np.int64(0)
        if by >= _BY_TOPIC:
            topic_end = record.position + record.size - record.properties_length - 2
            topic = text_number(topics, pool, buffer, topic_end - record.topic_length, record.topic_length)
            if topic < 0:
                break
        if by >= _BY_QUEUE:
            queue_id = record.queue_id
        if interval:
            timestamp = record.store_timestamp - record.store_timestamp % interval
        group = groups[_slot(groups, topic, queue_id, timestamp)]
        if not group.messages:
            if used >= most:
                break
            used += 1
            group.topic, group.queue_id, group.timestamp = topic, queue_id, timestamp
            group.min_size = group.max_size = record.size
            group.min_queue_offset = group.max_queue_offset = record.queue_offset
            group.first_store_timestamp = group.last_store_timestamp = record.store_timestamp
        _add(group, record)
        row += 1
    return row, used


class GroupTable:
    """A table that counts messages by broker, topic or queue, and by time interval.

    `by` is BY_BROKER, BY_TOPIC or BY_QUEUE. `interval_ms` is the length of a time interval in ms, 0 for none. Each
    group has the number of its topic, an index of `topics`. The table has `slots` places, a power of 2 (None: SLOTS).
    Only one thread at a time may use it.
    """

    def __init__(self, by: int, interval_ms: int, slots: int | None = None) -> None:
        self.topics = TextTable()
        self._by = by
        self._interval_ms = interval_ms
        self._groups = np.zeros(slots or SLOTS, GROUPS)
        self._most = len(self._groups) // 4 * 3  # in a fuller table, a search for a free slot takes long
        self._used = 0

    def add(self, buffer: Bytes, rows: Rows) -> list[Rows]:
        """Count messages; when the table is full, return all groups and empty the table.

        `rows` are rows of RECORD_COLUMNS, the groups rows of GROUPS. A later message of a returned group begins a new
        group in the table.
        """
        full = []
        row = 0
        while row < len(rows):
            table = self.topics.table
            row, self._used = _count(
                buffer,
                rows,
                row,
                table.rows,
                table.pool,
                self._by,
                self._interval_ms,
                self._groups,
                self._used,
                self._most,
            )
            if row < len(rows) and self._used >= self._most:
                full.append(self.taken())
            elif row < len(rows):
                self.topics.add(topic_of(buffer, rows[row]))
        return full

    def taken(self) -> Rows:
        """Return all groups of the table (GROUPS), and empty the table."""
        slots = np.flatnonzero(self._groups["messages"])
        found: Rows = self._groups[slots]
        self._groups[slots] = np.zeros(1, GROUPS)
        self._used = 0
        return found


def merged(groups: Rows) -> Rows:
    """Return rows of GROUPS with one row for each topic, queueId and interval.

    They are sorted by these three.
    """
    keys = [groups[name] for name in ("timestamp", "queue_id", "topic")]
    order = np.lexsort(keys)
    groups = groups[order]
    begins = np.ones(len(groups), np.bool_)
    begins[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
    starts = np.flatnonzero(begins)
    found = groups[starts]
    for join, names in _JOINS:
        for name in names.split() if len(groups) else ():
            found[name] = join.reduceat(groups[name], starts)
    return found


def warm_up() -> None:
    """Compile or load the kernel of this module, by a call with empty input."""
    none, no_rows, table = np.zeros(0, np.uint8), np.empty(0, RECORD_COLUMNS), TextTable().table
    _count(none, no_rows, 0, table.rows, table.pool, BY_QUEUE, 0, np.zeros(1, GROUPS), 0, 1)
