"""Read the fields that RECORD_COLUMNS do not have, from many records at once.

These are fields of a record's head, and texts as spans (start, end). `gather` joins the bytes of many spans in the
layout of an Arrow array. Texts are not decoded: the caller must check whether they are UTF-8. Most stores have few
topics and hosts, so each is given as its number in a `TextTable`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.format.columns import Bytes, Int, Numbers, Row, Rows


import numpy as np

from rmqctl.format.columns import row_type
from rmqctl.format.message import HEADS, HOST_V4, HOST_V6
from rmqctl.format.sys_flag import BORNHOST_V6, STOREHOST_V6
from rmqctl.kernels.compile import copy_bytes, i32, i64, java_hash, u32
from rmqctl.kernels.dispatch_scan import (
    KEYS,
    TAGS,
    UNIQUE,
    QueueTable,
    find_values,
    no_spans,
    property_ends,
    table_slot,
)
from rmqctl.kernels.kernel import inline_kernel, kernel
from rmqctl.kernels.scan import RECORD_COLUMNS

# topic and hosts are numbers in TextTables; starts are positions in the buffer; lengths are in bytes, 0 for a missing
# property
ROW_COLUMNS = row_type(
    "i8 body_crc born_timestamp prepared_transaction_offset tags_code tags_start keys_start uniq_key_start",
    "i8 tags_length keys_length uniq_key_length",
    "i4 flag reconsume_times topic born_host store_host",
    "? is_text",
)
# a property: where its name and its value begin, and their lengths
PAIR_COLUMNS = row_type("i8 name_start name_length value_start value_length")
ID_ROOM = 2 * (HOST_V6 + 8)  # hex digits of the longest msgId

_HEAD = HEADS[0]
_BODYCRC, _FLAG, _BORNTIMESTAMP, _BORNHOST = (
    _HEAD.offset(name) for name in ("BODYCRC", "FLAG", "BORNTIMESTAMP", "BORNHOST")
)
_STORE_HOST_AT = _HEAD.offset("STOREHOST")
_TO_RECONSUME, _TO_PREPARED = (
    _HEAD.size - _HEAD.offset(name) for name in ("RECONSUMETIMES", "PREPAREDTRANSACTIONOFFSET")
)
_V4, _V6, _BORN_V6, _STORE_V6 = HOST_V4, HOST_V6, BORNHOST_V6, STOREHOST_V6
_UPPER = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_SHORT = 64  # bytes: copying a slice costs more than that
_PAIR_SIZE_MIN = 3  # a name, 0x01, a value; the last one has no 0x02 after it


@inline_kernel
def _hosts_at(row: Row) -> tuple[Int, int, Int, int]:
    """Return position and size of the born host, then of the store host."""
    born_size = _V6 if row.sys_flag & _BORN_V6 else _V4
    store_size = _V6 if row.sys_flag & _STORE_V6 else _V4
    return row.position + _BORNHOST, born_size, row.position + _STORE_HOST_AT + born_size - _V4, store_size


@inline_kernel
def text_number(rows: Rows, pool: Bytes, buffer: Bytes, start: int, length: int) -> Int:
    """Return the number of a text; -1 if the table does not have it."""
    slot = table_slot(rows, pool, buffer, start, length, 0)
    return rows[slot].number if rows[slot].used else np.int32(-1)


@kernel
def _describe(
    buffer: Bytes,
    rows: Rows,
    row: int,
    topics: Rows,
    topic_pool: Bytes,
    hosts: Rows,
    host_pool: Bytes,
    with_values: bool,
    columns: Rows,
    spans: Numbers,
) -> int:
    while row < len(rows):
        record = rows[row]
        out = columns[row]
        end = record.position + record.size
        properties_start = end - record.properties_length
        born_at, born_size, store_at, store_size = _hosts_at(record)
        topic_start = properties_start - 2 - record.topic_length
        out.topic = text_number(topics, topic_pool, buffer, topic_start, record.topic_length)
        out.born_host = text_number(hosts, host_pool, buffer, born_at, born_size)
        out.store_host = text_number(hosts, host_pool, buffer, store_at, store_size)
        if out.topic < 0 or out.born_host < 0 or out.store_host < 0:
            break
        out.body_crc = u32(buffer, record.position + _BODYCRC)
        out.flag = i32(buffer, record.position + _FLAG)
        out.born_timestamp = i64(buffer, record.position + _BORNTIMESTAMP)
        out.reconsume_times = i32(buffer, record.body_start - _TO_RECONSUME)
        out.prepared_transaction_offset = i64(buffer, record.body_start - _TO_PREPARED)
        if with_values:
            find_values(buffer, properties_start, end, spans)
            ok, code = java_hash(buffer, spans[TAGS, 0], spans[TAGS, 1], np.uint32(0))
            out.tags_code = np.int64(np.int32(code))
            out.is_text = ok
            out.tags_start, out.tags_length = spans[TAGS, 0], spans[TAGS, 1] - spans[TAGS, 0]
            out.keys_start, out.keys_length = spans[KEYS, 0], spans[KEYS, 1] - spans[KEYS, 0]
            out.uniq_key_start, out.uniq_key_length = spans[UNIQUE, 0], spans[UNIQUE, 1] - spans[UNIQUE, 0]
        row += 1
    return row


class TextTable:
    """A table that numbers texts (bytes) in the order of their first occurrence.

    Only one thread at a time may use it.
    """

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.table = QueueTable()
        self._known: set[bytes] = set()

    def add(self, text: bytes) -> None:
        """Add a text to the table, unless it is there."""
        if text not in self._known:
            self._known.add(text)
            self.table.add(text, 0, len(self.texts))
            self.texts.append(text)


def describe(buffer: Bytes, rows: Rows, topics: TextTable, hosts: TextTable, *, with_values: bool) -> Rows:
    """Return an array of ROW_COLUMNS, with one row for each of `rows`.

    `rows` are rows of RECORD_COLUMNS. New topics and hosts are added to the TextTables `topics` and `hosts`. Without
    `with_values`, tags_code, is_text and the spans stay 0. If `is_text` is not set, TAGS is not valid UTF-8, and
    `tags_code` (its hash) may be wrong.
    """
    columns, spans = np.zeros(len(rows), ROW_COLUMNS), no_spans()
    reached = 0
    while reached < len(rows):
        one, two = topics.table, hosts.table
        reached = int(
            _describe(buffer, rows, reached, one.rows, one.pool, two.rows, two.pool, with_values, columns, spans)
        )
        if reached < len(rows):
            _learn(buffer, rows[reached], topics, hosts)
    return columns


def topic_of(buffer: Bytes, row: Row) -> bytes:
    """Return the topic of a row of RECORD_COLUMNS."""
    topic_end = int(row["position"]) + int(row["size"]) - int(row["properties_length"]) - 2
    return bytes(buffer[topic_end - int(row["topic_length"]) : topic_end])


def _learn(buffer: Bytes, row: Row, topics: TextTable, hosts: TextTable) -> None:
    topics.add(topic_of(buffer, row))
    born_size = HOST_V6 if row["sys_flag"] & BORNHOST_V6 else HOST_V4
    store_size = HOST_V6 if row["sys_flag"] & STOREHOST_V6 else HOST_V4
    born_at = int(row["position"]) + _BORNHOST
    store_at = int(row["position"]) + _STORE_HOST_AT + born_size - HOST_V4
    hosts.add(bytes(buffer[born_at : born_at + born_size]))
    hosts.add(bytes(buffer[store_at : store_at + store_size]))


@kernel
def _gather(buffer: Bytes, starts: Numbers, lengths: Numbers, offsets: Numbers, out: Bytes) -> None:
    for i in range(len(starts)):
        start, at, length = starts[i], np.int64(offsets[i]), lengths[i]
        if length > _SHORT:
            copy_bytes(buffer, start, out, at, length)
        else:
            for j in range(length):
                out[at + j] = buffer[start + j]


def gather(buffer: Bytes, starts: Numbers, lengths: Numbers) -> tuple[Numbers, Bytes]:
    """Join the texts of many spans; return (offsets, bytes).

    `offsets` (int32) has the position where each text begins, and then the end of the last one. `bytes` is uint8, less
    than 2 GiB in total.
    """
    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    _gather(buffer, np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(lengths, np.int64), offsets, out)
    return offsets, out


@kernel
def _msg_ids(buffer: Bytes, base: int, rows: Rows, offsets: Numbers, out: Bytes) -> Int:
    used = np.int64(0)
    for i in range(len(rows)):
        _, _, at, size = _hosts_at(rows[i])
        for j in range(size):
            out[used] = _UPPER[buffer[at + j] >> 4]
            out[used + 1] = _UPPER[buffer[at + j] & 15]
            used += 2
        offset = np.uint64(base + rows[i].position)
        for j in range(8):
            byte = offset >> np.uint64(56 - 8 * j) & np.uint64(255)
            out[used] = _UPPER[byte >> np.uint64(4)]
            out[used + 1] = _UPPER[byte & np.uint64(15)]
            used += 2
        offsets[i + 1] = used
    return used


def msg_ids(buffer: Bytes, base: int, rows: Rows) -> tuple[Numbers, Bytes]:
    """Return the msgIds of `rows` as (offsets, bytes), as `gather` does.

    The first byte of `buffer` is at physical offset `base`.
    """
    offsets = np.zeros(len(rows) + 1, np.int32)
    out = np.empty(len(rows) * ID_ROOM, np.uint8)
    return offsets, out[: _msg_ids(buffer, base, rows, offsets, out)]


@inline_kernel
def _same(buffer: Bytes, one: int, other: int, length: int) -> bool:
    same = True
    for i in range(length):
        same = same and buffer[one + i] == buffer[other + i]
    return same


@kernel
def _pairs(buffer: Bytes, rows: Rows, offsets: Numbers, pairs: Rows) -> Int:
    used = np.int64(0)
    for i in range(len(rows)):
        first = used
        end = rows[i].position + rows[i].size
        p = end - rows[i].properties_length
        while p < end:
            name_end, value_end = property_ends(buffer, p, end)
            length = name_end - p
            if value_end > name_end + 1 and length > 0:
                at = first  # a repeated name keeps its first place, with the last value
                while at < used and not (
                    pairs[at].name_length == length and _same(buffer, pairs[at].name_start, p, length)
                ):
                    at += 1
                pairs[at].name_start, pairs[at].name_length = p, length
                pairs[at].value_start, pairs[at].value_length = name_end + 1, value_end - name_end - 1
                used = max(used, at + 1)
            p = value_end + 1
        offsets[i + 1] = used
    return used


def pairs(buffer: Bytes, rows: Rows) -> tuple[Numbers, Rows]:
    """Return the positions of the properties of `rows`, as (offsets, pairs).

    They are those that `rmqctl.format.properties.decode` finds. `pairs` are rows of PAIR_COLUMNS; those of row i are
    pairs[offsets[i]] to pairs[offsets[i + 1] - 1].
    """
    offsets = np.zeros(len(rows) + 1, np.int32)
    room = int(rows["properties_length"].sum()) // _PAIR_SIZE_MIN + len(rows)
    found = np.empty(room, PAIR_COLUMNS)
    return offsets, found[: _pairs(buffer, rows, offsets, found)]


def warm_up() -> None:
    """Compile or load each kernel of this module, by a call with empty input."""
    none, no_rows = np.zeros(0, np.uint8), np.empty(0, RECORD_COLUMNS)
    one, columns = QueueTable(), np.empty(0, ROW_COLUMNS)
    _describe(none, no_rows, 0, one.rows, one.pool, one.rows, one.pool, True, columns, no_spans())
    gather(none, np.zeros(0, np.int64), np.zeros(0, np.int64))
    msg_ids(none, 0, no_rows)
    pairs(none, no_rows)
