"""What dispatch needs of many records at once, into columns: their queue, tags code, and the hashes of their keys.

`describe` goes over the rows that `rmqctl.format.scan.walk` found. A queue, that is a topic and a queueId, has a number; which
one, a `QueueTable` says, and the kernel stops at a queue that is not in there yet. Text that is no UTF-8 is left to the
one-record decoder: such rows are marked UNUSUAL.

The columns are those of RocketMQ's DispatchRequest, a row a message.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rmqctl.format import properties
from rmqctl.format.kernel import find_byte, java_hash, kernel, part
from rmqctl.format.scan import RECORD_COLUMNS
from rmqctl.format.sys_flag import TRANSACTION_MASK, TransactionType

# offsets in bytes, queue_offset in units, store_timestamp in ms; `hashes` of the row are [hashes_start, hashes_start + hashes_count)
DISPATCH_COLUMNS = np.dtype(
    [
        ("physical_offset", np.int64),
        ("queue_offset", np.int64),
        ("tags_code", np.int64),
        ("store_timestamp", np.int64),
        ("size", np.int32),
        ("queue", np.int32),
        ("sys_flag", np.int32),
        ("hashes_start", np.int32),
        ("hashes_count", np.int32),
        ("marks", np.int32),
    ]
)
# marks of a row: it needs the one-record decoder; it has DELAY; it names LMQ queues; its first hash is UNIQ_KEY's
UNUSUAL, DELAYED, MULTI_DISPATCH, HAS_UNIQUE = 1, 2, 4, 8

QUEUE_TABLE_ROWS = np.dtype([("start", np.int64), ("length", np.int32), ("queue_id", np.int32), ("number", np.int32), ("used", np.int32)])
_TABLE_SIZE_FIRST = 1024
_NAMES = (
    properties.TAGS, properties.KEYS, properties.UNIQ_KEY, properties.DELAY, properties.INNER_MULTI_DISPATCH,
)  # fmt: skip
PROPERTIES_THAT_MATTER = len(_NAMES)
TAGS, KEYS, UNIQUE, DELAY, MULTI = range(PROPERTIES_THAT_MATTER)  # rows of `find_values`
_NAME_BYTES = np.frombuffer("".join(_NAMES).encode(), np.uint8)
_NAME_ENDS = tuple(np.cumsum([len(name) for name in _NAMES]).tolist())
_ROLLBACK, _MASK = int(TransactionType.ROLLBACK), TRANSACTION_MASK
_PROPERTY_END = np.uint8(2)


@kernel
def table_slot(rows: Any, pool: Any, buffer: Any, start: int, length: int, queue_id: int) -> Any:
    """Where a queue stands in the table, or the free place for it."""
    h = np.uint32(queue_id) * np.uint32(0x9E3779B1)
    for i in range(start, start + length):
        h = (h ^ np.uint32(buffer[i])) * np.uint32(0x01000193)
    slot: Any = np.int64(h ^ (h >> np.uint32(15))) & (len(rows) - 1)
    while rows[slot].used:
        row = rows[slot]
        if row.length == length and row.queue_id == queue_id:
            same = True
            for i in range(length):
                if pool[row.start + i] != buffer[start + i]:
                    same = False
                    break
            if same:
                return slot
        slot = (slot + 1) & (len(rows) - 1)
    return slot


class QueueTable:
    """Queues, by topic (bytes) and queueId, with the numbers that `number_of` gives them. Not for two threads at once."""

    def __init__(self) -> None:
        self.rows = np.zeros(_TABLE_SIZE_FIRST, QUEUE_TABLE_ROWS)
        self.pool = np.empty(_TABLE_SIZE_FIRST * 16, np.uint8)
        self._used = 0
        self._count = 0

    def add(self, topic: bytes, queue_id: int, number: int) -> None:
        """Take a queue in."""
        if 2 * self._count >= len(self.rows):
            self._grow()
        while self._used + len(topic) > len(self.pool):
            self.pool = np.concatenate((self.pool, np.empty_like(self.pool)))
        text = np.frombuffer(bytearray(topic), np.uint8)  # as writable as a buffer: one kernel for both
        slot = table_slot(self.rows, self.pool, text, 0, len(topic), queue_id)
        self.pool[self._used : self._used + len(topic)] = text
        self.rows[slot] = (self._used, len(topic), queue_id, number, 1)
        self._used += len(topic)
        self._count += 1

    def _grow(self) -> None:
        old = self.rows[self.rows["used"] == 1]
        self.rows = np.zeros(2 * len(self.rows), QUEUE_TABLE_ROWS)
        for row in old:
            start, length = int(row["start"]), int(row["length"])
            self.rows[table_slot(self.rows, self.pool, self.pool, start, length, int(row["queue_id"]))] = row


@part
def _name_at(buffer: Any, start: int, length: int) -> int:
    """Which of the names that matter stands at `start`; -1 for none."""
    name_start = 0
    for name in range(len(_NAME_ENDS)):
        name_end = _NAME_ENDS[name]
        if name_end - name_start == length:
            same = True
            for i in range(length):
                if buffer[start + i] != _NAME_BYTES[name_start + i]:
                    same = False
                    break
            if same:
                return name
        name_start = name_end
    return -1


@part
def find_values(buffer: Any, start: int, end: int, spans: Any) -> None:
    """Spans (start, end) of the values of the names that matter; (0, 0) for none. The last of equal names counts."""
    spans[:] = 0
    p = start
    while p < end:
        name_start = p
        while p < end and buffer[p] != 1 and buffer[p] != 2:
            p += 1
        name_end = p
        if p == end:
            return
        p += 1
        if buffer[name_end] == 2:
            continue
        value_start = p
        p = find_byte(buffer, p, end, _PROPERTY_END)
        if p > value_start and name_end > name_start:
            name = _name_at(buffer, name_start, name_end - name_start)
            if name >= 0:
                spans[name, 0] = value_start
                spans[name, 1] = p
        p += 1


@part
def _positive(h: Any) -> Any:
    """|h| as IndexFile has it: 0 for Integer.MIN_VALUE."""
    value = np.int64(np.int32(h))
    return np.int32(0 if value == -2147483648 else abs(value))


@part
def _hash_keys(buffer: Any, topic_start: int, topic_end: int, spans: Any, hashes: Any, used: int) -> tuple[bool, int]:
    """(True, how many of `hashes` are used now): UNIQ_KEY's first, then those of KEYS' words. False: no UTF-8."""
    ok, h = java_hash(buffer, topic_start, topic_end, np.uint32(0))
    h = np.uint32(h * np.uint32(31) + np.uint32(35))
    if ok and spans[UNIQUE, 1]:
        ok, full = java_hash(buffer, spans[UNIQUE, 0], spans[UNIQUE, 1], h)
        hashes[used] = _positive(full)
        used += 1
    p = spans[KEYS, 0]
    end = spans[KEYS, 1]
    while ok and p < end:
        word = p
        while p < end and buffer[p] != 32:
            p += 1
        if p > word:
            ok, full = java_hash(buffer, word, p, h)
            hashes[used] = _positive(full)
            used += 1
        p += 1
    return ok, used


@kernel
def _describe(
    buffer: Any, base: int, rows: Any, row: int, table: Any, pool: Any, with_keys: bool, columns: Any, hashes: Any, used: int
) -> tuple[int, int]:
    spans = np.zeros((PROPERTIES_THAT_MATTER, 2), np.int64)
    while row < len(rows):
        record = rows[row]
        end = record.position + record.size
        properties_start = end - record.properties_length
        topic_end = properties_start - 2
        topic_start = topic_end - record.topic_length
        slot = table_slot(table, pool, buffer, topic_start, record.topic_length, record.queue_id)
        if not table[slot].used:
            break
        out = columns[row]
        out.queue = table[slot].number
        out.physical_offset = base + record.position
        out.queue_offset = record.queue_offset
        out.store_timestamp = record.store_timestamp
        out.size = record.size
        out.sys_flag = record.sys_flag
        find_values(buffer, properties_start, end, spans)
        marks = 0
        ok, code = java_hash(buffer, spans[TAGS, 0], spans[TAGS, 1], np.uint32(0))
        out.tags_code = np.int64(np.int32(code))
        out.hashes_start = used
        if with_keys and ok and record.sys_flag & _MASK != _ROLLBACK:
            ok, behind = _hash_keys(buffer, topic_start, topic_end, spans, hashes, used)
            used = behind if ok else used
        out.hashes_count = used - out.hashes_start
        if not ok:
            marks |= UNUSUAL
        if spans[DELAY, 1]:
            marks |= DELAYED
        if spans[MULTI, 1]:
            marks |= MULTI_DISPATCH
        if spans[UNIQUE, 1] and out.hashes_count:
            marks |= HAS_UNIQUE
        out.marks = marks
        row += 1
    return row, used


def describe(
    buffer: Any, base: int, rows: Any, row: int, table: QueueTable, columns: Any, hashes: Any, used: int, *, with_keys: bool
) -> tuple[int, int]:
    """Fill `columns` (of DISPATCH_COLUMNS, as long as `rows`) from `row` on; the row that it came to, and how many `hashes` are used.

    `rows` are of RECORD_COLUMNS and tell of `buffer`, whose first byte is at physical offset `base`. Stops in front of a row
    whose queue `table` has not got. `hashes` (int32) must have room for a key in every two bytes of properties, and one more a
    row. Without `with_keys` no key is hashed; a rollback has none (IndexService).
    """
    reached, filled = _describe(buffer, base, rows, row, table.rows, table.pool, with_keys, columns, hashes, used)
    return int(reached), int(filled)


def warm_up() -> None:
    """Call each kernel with nothing to do."""
    none = np.zeros(0, np.uint8)
    table = QueueTable()
    table.add(b"T", 0, 0)
    describe(none, 0, np.empty(0, RECORD_COLUMNS), 0, table, np.empty(0, DISPATCH_COLUMNS), np.empty(0, np.int32), 0, with_keys=True)
