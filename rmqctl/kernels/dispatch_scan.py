"""Read the fields that dispatch needs, from many records at once.

As in RocketMQ's DispatchRequest, these are a message's queue, its tags code and the hashes of its keys, in one row of
DISPATCH_COLUMNS. `describe` reads the rows that `rmqctl.kernels.scan.walk` has found. A `QueueTable` gives each queue
(a topic and a queueId) a number; `describe` stops at a message whose queue it does not have. If a text of a message is
not UTF-8, its row is marked UNUSUAL: the one-record decoder must read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.format.columns import Bytes, Int, Numbers, Row, Rows
    from rmqctl.kernels.tail_template import TailLayouts

from typing import Any

import numpy as np

from rmqctl.format import properties
from rmqctl.format.body.client_check import LZ4_START, PORT_MAX, ZSTD_START
from rmqctl.format.columns import row_type
from rmqctl.format.index_entry import TAG_KEY_PREFIX
from rmqctl.format.message import HEADS, HOST_V4, HOST_V6, PLACEHOLDER_SIGN
from rmqctl.format.properties import hash_code
from rmqctl.format.sys_flag import (
    BORNHOST_V6,
    COMPRESSED,
    COMPRESSION_TYPE_MASK,
    COMPRESSION_TYPE_SHIFT,
    TRANSACTION_MASK,
    TransactionType,
)
from rmqctl.kernels.compile import SPREAD, find_byte, find_either, i32, i64, java_hash, u16, u32, word
from rmqctl.kernels.kernel import inline_kernel, kernel
from rmqctl.kernels.scan import RECORD_COLUMNS
from rmqctl.kernels.tail_template import NAME_END, PROPERTY_END, QUEUE_IDS, layout_of, learn, no_layouts

# offsets in bytes, queue_offset in units, store_timestamp in ms; `hashes` of the row are [hashes_start, hashes_start +
# hashes_count)
DISPATCH_COLUMNS = row_type(
    "i8 physical_offset queue_offset tags_code store_timestamp",
    "i4 size queue sys_flag hashes_start hashes_count traits",
)
# traits of a row, in this order: the one-record decoder must read the message; it has DELAY; it names LMQ queues; its
# first hash is the hash of UNIQ_KEY; it is a placeholder that `recover --keep-going` wrote, with a place in a queue;
# its last hash is the hash of TAGS; clients reject a port; clients reject the body (`client_check`); its DELAY is more
# than 9 digits, or something else; it has no properties. WRONG_PORT and WRONG_COMPRESSION are never set
# for a rollback, which no client gets.
UNUSUAL, DELAYED, MULTI_DISPATCH, HAS_UNIQUE, IS_PLACEHOLDER = 1, 2, 4, 8, 16
HAS_TAG, WRONG_PORT, WRONG_COMPRESSION, ODD_DELAY, NO_PROPERTIES = 32, 64, 128, 256, 512
USUAL_DIGITS = 9  # of a number that fits into an int in any case

# `key_hash` is the hash of the topic and `#`, the text before each key in the index; 0 if the topic is not UTF-8
QUEUE_TABLE_ROWS = row_type("i8 start", "i4 length queue_id number", "u4 key_hash", "i4 is_text used")
Queue = tuple[bytes, int]  # topic and queueId
_TABLE_SIZE_FIRST = 1024
_NAMES = (
    properties.TAGS, properties.KEYS, properties.UNIQ_KEY, properties.DELAY, properties.INNER_MULTI_DISPATCH,
)  # fmt: skip
PROPERTIES_THAT_MATTER = len(_NAMES)
TAGS, KEYS, UNIQUE, DELAY, MULTI = range(PROPERTIES_THAT_MATTER)  # rows of `find_values`
_NAME_LENGTHS = tuple(len(name) for name in _NAMES)
_NAME_WORDS = np.array([np.frombuffer(name.encode().ljust(24, b"\0"), "<u8") for name in _NAMES])
_ZERO, _NINE = ord("0"), ord("9")
_ROLLBACK, _MASK = int(TransactionType.ROLLBACK), TRANSACTION_MASK
_KEY_END = np.uint8(32)
_KEY_MARK = np.uint32(ord("#"))
_TAG_PREFIX_FIRST, _TAG_PREFIX_SECOND = (np.uint32(ord(letter)) for letter in TAG_KEY_PREFIX)
_JAVA_HASH_FACTOR = np.uint32(31)
_PLACEHOLDER_SIGN, _QUEUE_IDS = PLACEHOLDER_SIGN, QUEUE_IDS
_PREPARED_TO_BODY = HEADS[0].size - HEADS[0].offset("PREPAREDTRANSACTIONOFFSET")
_STORE_PORT_TO_BODY = HEADS[0].size - HEADS[0].offset("RECONSUMETIMES") + 4
_BORN_PORT, _BORN_PORT_V6 = (HEADS[0].offset("BORNHOST") + size - 4 for size in (HOST_V4, HOST_V6))
_BORN_V6, _PORT_MAX, _COMPRESSED = BORNHOST_V6, PORT_MAX, COMPRESSED
_TYPE_MASK, _TYPE_SHIFT = COMPRESSION_TYPE_MASK, COMPRESSION_TYPE_SHIFT
_LZ4_START, _ZSTD_START = (int.from_bytes(start, "big") for start in (LZ4_START, ZSTD_START))


def no_spans() -> Numbers:
    """Return the room for the positions of property values that kernels need."""
    return np.zeros((PROPERTIES_THAT_MATTER, 2), np.int64)


@inline_kernel
def table_slot(rows: Rows, pool: Bytes, buffer: Bytes, start: int, length: int, queue_id: int) -> Any:
    """Return the slot of a queue in the table, or a free slot for it."""
    end = start + length
    h = np.uint64(queue_id + 1) * SPREAD
    for p in range(start, end, 8):
        h = (h ^ word(buffer, p, end)) * SPREAD
        h ^= h >> np.uint64(32)
    slot: Any = np.int64(h & np.uint64(len(rows) - 1))
    while rows[slot].used:
        row = rows[slot]
        if row.length == length and row.queue_id == queue_id:
            away = row.start - start
            same = True
            for p in range(start, end, 8):
                if word(pool, p + away, end + away) != word(buffer, p, end):
                    same = False
                    break
            if same:
                return slot
        slot = (slot + 1) & (len(rows) - 1)
    return slot


@kernel
def _table_slot(rows: Rows, pool: Bytes, buffer: Bytes, start: int, length: int, queue_id: int) -> Any:
    return table_slot(rows, pool, buffer, start, length, queue_id)


@kernel
def _move_rows(old: Rows, rows: Rows, pool: Bytes) -> None:
    for number in range(len(old)):
        row = old[number]
        if row.used:
            rows[table_slot(rows, pool, pool, row.start, row.length, row.queue_id)] = row


@kernel
def _add_missing(
    buffer: Bytes, records: Rows, record: int, rows: Rows, pool: Bytes, used: int, slots: Numbers
) -> tuple[int, int]:
    """Add the queues of records, from number `record` on, that a table does not have.

    `slots` gets the table slots of the new queues, without their numbers. Returns the number of new queues, and of used
    bytes of `pool` (`used` before). The kernel stops when `slots` or `pool` is full.
    """
    count = 0
    while record < len(records):
        found = records[record]
        start = found.position + found.size - found.properties_length - 2 - found.topic_length
        slot = table_slot(rows, pool, buffer, start, found.topic_length, found.queue_id)
        if not rows[slot].used:
            if count == len(slots) or used + found.topic_length > len(pool):
                break
            for i in range(found.topic_length):
                pool[used + i] = buffer[start + i]
            ok, topic_hash = java_hash(buffer, start, start + found.topic_length, np.uint32(0))
            row = rows[slot]
            row.start = used
            row.length = found.topic_length
            row.queue_id = found.queue_id
            row.key_hash = np.uint32(topic_hash) * _JAVA_HASH_FACTOR + _KEY_MARK if ok else np.uint32(0)
            row.is_text = 1 if ok else 0
            row.used = 1
            used += found.topic_length
            slots[count] = slot
            count += 1
        record += 1
    return count, used


class QueueTable:
    """A hash table that gives a queue's number, by topic (bytes) and queueId.

    Only one thread at a time may use it.
    """

    def __init__(self) -> None:
        self.rows = np.zeros(_TABLE_SIZE_FIRST, QUEUE_TABLE_ROWS)
        self.pool = np.empty(_TABLE_SIZE_FIRST * 16, np.uint8)
        self._used = 0
        self._count = 0

    def add(self, topic: bytes, queue_id: int, number: int) -> None:
        """Add a queue and its number to the table."""
        self._make_room(len(topic))
        text = np.frombuffer(bytearray(topic), np.uint8)  # writable like a buffer: one kernel for both
        slot = _table_slot(self.rows, self.pool, text, 0, len(topic), queue_id)
        self.pool[self._used : self._used + len(topic)] = text
        key_hash, is_text = _key_hash(topic)
        self.rows[slot] = (self._used, len(topic), queue_id, number, key_hash, is_text, 1)
        self._used += len(topic)
        self._count += 1

    def _make_room(self, topic_length: int) -> None:
        if 2 * self._count >= len(self.rows):
            self._grow()
        while self._used + topic_length > len(self.pool):
            self.pool = np.concatenate((self.pool, np.empty_like(self.pool)))

    def _grow(self) -> None:
        old = self.rows
        self.rows = np.zeros(2 * len(old), QUEUE_TABLE_ROWS)
        _move_rows(old, self.rows, self.pool)


class DispatchTable(QueueTable):
    """A QueueTable that also has the layouts of record tails (`TailLayouts`)."""

    def __init__(self) -> None:
        super().__init__()
        self.layouts = no_layouts(PROPERTIES_THAT_MATTER)

    def add_missing(self, buffer: Bytes, rows: Rows, row: int, numbers: Callable[[list[Queue]], list[int]]) -> None:
        """Add the queues of `rows` from number `row` on that are not in the table.

        `rows` (RECORD_COLUMNS) describe the records in `buffer`; the table does not have the queue of row `row`.
        `numbers` returns the numbers of new queues. It ends early if the table has no more room.
        """
        self._make_room(int(rows[row]["topic_length"]))
        slots = np.empty(len(self.rows) // 2 - self._count, np.int64)
        before = self._used
        count, used = _add_missing(buffer, rows, row, self.rows, self.pool, before, slots)
        self._count, self._used = self._count + int(count), int(used)
        new = self.rows[slots[:count]]
        topics = self.pool[before : self._used].tobytes()
        starts, ends = new["start"] - before, new["start"] - before + new["length"]
        places = zip(starts.tolist(), ends.tolist(), new["queue_id"].tolist(), strict=True)
        self.rows["number"][slots[:count]] = numbers([(topics[start:end], queue_id) for start, end, queue_id in places])

    def _grow(self) -> None:
        super()._grow()
        self.layouts.slots[:] = -1


def _key_hash(topic: bytes) -> tuple[int, bool]:
    """Return the hash of `TOPIC#`, the text before each key in the index, and True.

    If the topic is not valid UTF-8, return 0 and False.
    """
    try:
        return hash_code(f"{topic.decode()}#") & 0xFFFFFFFF, True
    except UnicodeDecodeError:
        return 0, False


@inline_kernel
def _name_at(buffer: Bytes, start: int, end: int) -> int:
    for name in range(len(_NAME_LENGTHS)):
        if _NAME_LENGTHS[name] == end - start:
            same = True
            for i in range(0, end - start, 8):
                if word(buffer, start + i, end) != _NAME_WORDS[name, i >> 3]:
                    same = False
                    break
            if same:
                return name
    return -1


@inline_kernel
def property_ends(buffer: Bytes, start: int, end: int) -> tuple[int, int]:
    """Return where the name and the value of the property at `start` end.

    Both are equal if it has no value.
    """
    name_end = find_either(buffer, start, end, NAME_END, PROPERTY_END)
    if name_end == end or buffer[name_end] == PROPERTY_END:
        return name_end, name_end
    return name_end, find_byte(buffer, name_end + 1, end, PROPERTY_END)


@inline_kernel
def find_values(buffer: Bytes, start: int, end: int, spans: Numbers) -> None:
    """Find the values of TAGS, KEYS, UNIQ_KEY, DELAY and INNER_MULTI_DISPATCH.

    `spans` gets the start and the end of each, (0, 0) for a missing property. If one occurs twice, the last value
    counts.
    """
    spans[:] = 0
    p = start
    while p < end:
        name_end, value_end = property_ends(buffer, p, end)
        if value_end > name_end + 1 and name_end > p:
            name = _name_at(buffer, p, name_end)
            if name >= 0:
                spans[name, 0] = name_end + 1
                spans[name, 1] = value_end
        p = value_end + 1


@inline_kernel
def _positive(h: Int) -> Int:
    """Return the absolute value of h, or 0 for Integer.MIN_VALUE, as IndexFile does."""
    value = np.int64(np.int32(h))
    return np.int32(0 if value == -2147483648 else abs(value))


@inline_kernel
def _hash_keys(buffer: Bytes, h: Int, spans: Numbers, with_tags: bool, hashes: Numbers, used: int) -> tuple[bool, int]:
    """Compute the hashes of UNIQ_KEY, of the words of KEYS, and of TAGS.

    Returns (True, the number of used elements of `hashes`), with False if a text is not UTF-8. `h` is the hash of the
    text `TOPIC#`.
    """
    ok = True
    if spans[UNIQUE, 1]:
        ok, full = java_hash(buffer, spans[UNIQUE, 0], spans[UNIQUE, 1], h)
        hashes[used] = _positive(full)
        used += 1
    p = spans[KEYS, 0]
    end = spans[KEYS, 1]
    while ok and p < end:
        start = p
        p = find_byte(buffer, p, end, _KEY_END)
        if p > start:
            ok, full = java_hash(buffer, start, p, h)
            hashes[used] = _positive(full)
            used += 1
        p += 1
    if ok and with_tags and spans[TAGS, 1]:
        h = (np.uint32(h) * _JAVA_HASH_FACTOR + _TAG_PREFIX_FIRST) * _JAVA_HASH_FACTOR + _TAG_PREFIX_SECOND
        ok, full = java_hash(buffer, spans[TAGS, 0], spans[TAGS, 1], h)
        hashes[used] = _positive(full)
        used += 1
    return ok, used


@inline_kernel
def _known_slot(layouts: TailLayouts, layout: int, table: Rows, queue_id: int) -> Int:
    """Return the table slot that a layout stores for a queue, or -1."""
    slot = layouts.slots[layout, queue_id & _QUEUE_IDS - 1]
    return np.int64(slot if slot >= 0 and table[slot].queue_id == queue_id else -1)


@inline_kernel
def _spans_of(layouts: TailLayouts, layout: int, start: int, spans: Numbers) -> None:
    for value in range(PROPERTIES_THAT_MATTER):
        away = start if layouts.spans[layout, value, 1] else 0
        spans[value, 0] = layouts.spans[layout, value, 0] + away
        spans[value, 1] = layouts.spans[layout, value, 1] + away


@inline_kernel
def _traits(spans: Numbers, has_keys: bool, with_tags: bool, is_placeholder: bool) -> int:
    flags = HAS_UNIQUE if spans[UNIQUE, 1] and has_keys else 0
    flags |= HAS_TAG if spans[TAGS, 1] and has_keys and with_tags else 0
    flags |= DELAYED if spans[DELAY, 1] else 0
    flags |= MULTI_DISPATCH if spans[MULTI, 1] else 0
    return flags | (IS_PLACEHOLDER if is_placeholder else 0)


@inline_kernel
def _is_odd_number(buffer: Bytes, start: int, end: int) -> Any:
    for at in range(start, end):
        if buffer[at] < _ZERO or buffer[at] > _NINE:
            return True
    return end - start > USUAL_DIGITS


@inline_kernel
def _has_bad_port(buffer: Bytes, record: Row) -> Any:
    """Return the same as `rmqctl.format.body.client_check.has_bad_port`."""
    born = i32(buffer, record.position + (_BORN_PORT_V6 if record.sys_flag & _BORN_V6 else _BORN_PORT))
    store = i32(buffer, record.body_start - _STORE_PORT_TO_BODY)
    return born < 0 or born > _PORT_MAX or store < 0 or store > _PORT_MAX


@inline_kernel
def _has_bad_compression(buffer: Bytes, record: Row) -> Any:
    """Return the same as `client_check.has_bad_compression`."""
    length, start = record.body_length, record.body_start
    if not record.sys_flag & _COMPRESSED or length == 0:
        return False
    kind = (record.sys_flag & _TYPE_MASK) >> _TYPE_SHIFT
    if kind in (0, 3):
        return (
            length < 2 or buffer[start] & 0x8F != 0x08 or buffer[start + 1] & 0x20 != 0 or u16(buffer, start) % 31 != 0
        )
    if kind > 2 or length < 4:
        return True
    return np.int64(u32(buffer, start)) != (_LZ4_START if kind == 1 else _ZSTD_START)


@inline_kernel
def _client_traits(buffer: Bytes, record: Row, is_rollback: bool) -> int:
    if is_rollback:
        return 0
    return (WRONG_PORT if _has_bad_port(buffer, record) else 0) | (
        WRONG_COMPRESSION if _has_bad_compression(buffer, record) else 0
    )


@kernel
def _describe(
    buffer: Bytes,
    base: int,
    rows: Rows,
    row: int,
    table: Rows,
    pool: Bytes,
    layouts: TailLayouts,
    with_keys: bool,
    with_tags: bool,
    columns: Rows,
    hashes: Numbers,
    used: int,
    spans: Numbers,
) -> tuple[int, int]:
    while row < len(rows):
        record = rows[row]
        end = record.position + record.size
        properties_start = end - record.properties_length
        start = properties_start - 2 - record.topic_length
        layout, known = layout_of(layouts, buffer, start, end, record.topic_length)
        slot = _known_slot(layouts, layout, table, record.queue_id) if known else np.int64(-1)
        if slot < 0:
            slot = table_slot(table, pool, buffer, start, record.topic_length, record.queue_id)
            if not table[slot].used:
                break
            if known:
                layouts.slots[layout, record.queue_id & _QUEUE_IDS - 1] = slot
        if known:
            _spans_of(layouts, layout, start, spans)
        else:
            find_values(buffer, properties_start, end, spans)
            learn(layouts, layout, buffer, start, end, record.topic_length, spans)
        out = columns[row]
        out.queue = table[slot].number
        out.physical_offset = base + record.position
        out.queue_offset = record.queue_offset
        out.store_timestamp = record.store_timestamp
        out.size = record.size
        out.sys_flag = record.sys_flag
        ok, code = java_hash(buffer, spans[TAGS, 0], spans[TAGS, 1], np.uint32(0))
        out.tags_code = np.int64(np.int32(code))
        out.hashes_start = used
        is_rollback = record.sys_flag & _MASK == _ROLLBACK
        if with_keys and ok and not is_rollback:
            ok, behind = table[slot].is_text != 0, used
            if ok:
                ok, behind = _hash_keys(buffer, table[slot].key_hash, spans, with_tags, hashes, used)
            used = behind if ok else used
        out.hashes_count = used - out.hashes_start
        is_placeholder = not is_rollback and i64(buffer, record.body_start - _PREPARED_TO_BODY) == _PLACEHOLDER_SIGN
        out.traits = _traits(spans, out.hashes_count > 0, with_tags, is_placeholder) | (0 if ok else UNUSUAL)
        out.traits |= _client_traits(buffer, record, is_rollback)
        if _is_odd_number(buffer, spans[DELAY, 0], spans[DELAY, 1]):
            out.traits |= ODD_DELAY
        out.traits |= 0 if record.properties_length else NO_PROPERTIES
        row += 1
    return row, used


def describe(
    buffer: Bytes,
    base: int,
    rows: Rows,
    row: int,
    table: DispatchTable,
    columns: Rows,
    hashes: Numbers,
    used: int,
    *,
    with_keys: bool,
    with_tags: bool,
) -> tuple[int, int]:
    """Fill `columns` with the fields that dispatch needs, from row `row` on.

    Returns the row at which the kernel stopped, and the number of used elements of `hashes`. It stops before a row
    whose queue is not in `table`.

    `rows` (RECORD_COLUMNS) describe the records in `buffer`, whose first byte is at physical offset `base`. `columns`
    (DISPATCH_COLUMNS) must be as long as `rows`, and `hashes` (int32) at least as long as the number of rows plus half
    the bytes of the properties. Keys are hashed `with_keys`, TAGS `with_keys` and `with_tags`. A rollback message gets
    no hashes, because RocketMQ's IndexService does not index it.
    """
    reached, filled = _describe(
        buffer, base, rows, row, table.rows, table.pool, table.layouts, with_keys, with_tags, columns, hashes, used,
        no_spans(),
    )  # fmt: skip
    return int(reached), int(filled)


def warm_up() -> None:
    """Compile or load each kernel of this module, by a call with empty input."""
    none = np.zeros(0, np.uint8)
    table = DispatchTable()
    table.add(b"T", 0, 0)
    rows = np.empty(0, RECORD_COLUMNS)
    _move_rows(table.rows, np.zeros_like(table.rows), table.pool)
    _add_missing(none, rows, 0, table.rows, table.pool, 0, np.empty(0, np.int64))
    describe(
        none,
        0,
        rows,
        0,
        table,
        np.empty(0, DISPATCH_COLUMNS),
        np.empty(0, np.int32),
        0,
        with_keys=True,
        with_tags=True,
    )
