"""Encode many JSON Lines as records of the commit log at once.

`encode` writes plain lines as records; then `place` fills in the offsets and the store time of each record. The code
for one line (`rmqctl.operations.append.message_from_json`, `rmqctl.format.encode`) writes the same bytes, as a test
checks. It also encodes the lines that are not plain (see `line_parse`), which are rare or have a fault, and reports
faults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.format.columns import Bytes, Int, Numbers, Row, Rows

from typing import Any, NamedTuple

import numpy as np

from rmqctl.format import properties
from rmqctl.format.crc import CRC_MASK
from rmqctl.format.encode import PROPERTIES_LENGTH_MAX, TOPIC_LENGTH_MAX_V1
from rmqctl.format.message import HEADS, MAGIC_V1
from rmqctl.format.sys_flag import BORNHOST_V6, COMPRESSED, INNER_BATCH, STOREHOST_V6, TRANSACTION_MASK
from rmqctl.kernels.compile import (
    call_crc32,
    copy_bytes,
    crc32_address,
    put_i32,
    put_i64,
)
from rmqctl.kernels.dispatch_scan import QueueTable, table_slot
from rmqctl.kernels.kernel import inline_kernel, kernel
from rmqctl.kernels.line_parse import (
    BODY,
    BODY_CRC,
    BODY_ENCODING,
    BORN_HOST,
    BORN_TIMESTAMP,
    ENCODING_BYTES,
    ENCODING_ENDS,
    FLAG,
    KEY_COUNT,
    NAMES_MAX,
    NO_PLACE,
    PADDING,
    PHYSICAL_OFFSET,
    PREPARED,
    QUEUE_ID,
    RECONSUME_TIMES,
    STORE_HOST,
    SYS_FLAG,
    TOPIC,
    parse_line,
    which_text,
)
from rmqctl.kernels.scan import RECORD_COLUMNS

_BASE64 = 1
_UNIQUE_KEY_SIZE = 32

_HEAD = HEADS[0]
(
    _MAGIC_AT, _BODY_CRC_AT, _QUEUE_ID_AT, _FLAG_AT, _QUEUE_OFFSET_AT, _PHYSICAL_OFFSET_AT, _SYS_FLAG_AT,
    _BORN_TIMESTAMP_AT, _BORN_HOST_AT, _STORE_TIMESTAMP_AT, _STORE_HOST_AT, _RECONSUME_TIMES_AT, _PREPARED_AT,
    _BODY_LENGTH_AT,
) = (
    _HEAD.offset(name)
    for name in (
        "MAGICCODE", "BODYCRC", "QUEUEID", "FLAG", "QUEUEOFFSET", "PHYSICALOFFSET", "SYSFLAG", "BORNTIMESTAMP",
        "BORNHOST", "STORETIMESTAMP", "STOREHOST", "RECONSUMETIMES", "PREPAREDTRANSACTIONOFFSET", "BODYLENGTH",
    )
)  # fmt: skip
_HEAD_SIZE, _MAGIC, _CRC_MASK = _HEAD.size, MAGIC_V1, np.uint32(CRC_MASK)
_TOPIC_MAX, _PROPERTIES_MAX = TOPIC_LENGTH_MAX_V1, PROPERTIES_LENGTH_MAX
_RARE_FLAGS, _V6 = TRANSACTION_MASK | INNER_BATCH | COMPRESSED, BORNHOST_V6 | STOREHOST_V6
_UPPER = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_UNIQ_KEY_BYTES = np.frombuffer(properties.UNIQ_KEY.encode(), np.uint8)
_UNIQ_KEY_PAIR = len(properties.UNIQ_KEY) + 1 + _UNIQUE_KEY_SIZE
_SIX_BITS = np.full(256, 255, np.uint8)
_SIX_BITS[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = np.arange(64)


@inline_kernel
def _base64(b: Bytes, start: int, end: int, out: Bytes, at: int, size: int) -> bool:
    """Decode into `size` bytes of `out`; return whether the text is strict base64."""
    behind = at + size
    for p in range(start, end, 4):
        bits = np.uint32(0)
        for i in range(4):
            six = np.uint32(_SIX_BITS[b[p + i]])
            if six == 255:
                if b[p + i] != PADDING or at + i - 1 < behind:
                    return False
                six = np.uint32(0)
            bits = bits << np.uint32(6) | six
        for i in range(3):
            byte = np.uint8(bits >> np.uint32(16 - 8 * i) & np.uint32(255))
            if at < behind:
                out[at] = byte
                at += 1
            elif byte:
                return False
    return True


@inline_kernel
def _write_body(b: Bytes, start: int, end: int, encoding: int, out: Bytes, at: int, size: int) -> bool:
    if encoding == _BASE64:
        return bool(_base64(b, start, end, out, at, size))
    copy_bytes(b, start, out, at, size)
    return True


@inline_kernel
def _body_size(b: Bytes, start: int, end: int, encoding: int) -> Any:
    """Return the size of the body; -1 if a base64 text has an impossible length."""
    if encoding != _BASE64 or start == end:
        return end - start
    if (end - start) % 4:
        return NO_PLACE
    return (end - start) // 4 * 3 - (b[end - 2] == PADDING) - (b[end - 1] == PADDING)


@inline_kernel
def _write_properties(
    b: Bytes, pairs: Numbers, count: int, unique: Bytes, counter: int, trailing: bool, out: Bytes, at: int
) -> Any:
    """Write the properties, and return the position after them.

    If `counter` is not negative, a UNIQ_KEY made from `unique` and `counter` is added.
    """
    for i in range(count):
        at = copy_bytes(b, pairs[i, 0], out, at, pairs[i, 1] - pairs[i, 0])
        out[at] = 1
        at = copy_bytes(b, pairs[i, 2], out, at + 1, pairs[i, 3] - pairs[i, 2])
        out[at] = 2
        at += 1
    if counter >= 0:
        at = copy_bytes(_UNIQ_KEY_BYTES, 0, out, at, len(_UNIQ_KEY_BYTES))
        out[at] = 1
        at = copy_bytes(unique, 0, out, at + 1, len(unique))
        for i in range(8):
            out[at + i] = _UPPER[counter >> (28 - 4 * i) & 15]
        out[at + 8] = 2
        at += 9
    return at if trailing or at == 0 else at - 1


@inline_kernel
def _write_head(out: Bytes, at: int, size: int, values: Numbers, body_size: int, body_crc: int) -> None:
    put_i32(out, at, size)
    put_i32(out, at + _MAGIC_AT, _MAGIC)
    put_i32(out, at + _BODY_CRC_AT, body_crc)
    put_i32(out, at + _QUEUE_ID_AT, values[QUEUE_ID])
    put_i32(out, at + _FLAG_AT, values[FLAG])
    put_i32(out, at + _SYS_FLAG_AT, values[SYS_FLAG] & ~_V6)
    put_i64(out, at + _BORN_TIMESTAMP_AT, values[BORN_TIMESTAMP])
    put_i64(out, at + _BORN_HOST_AT, values[BORN_HOST])
    put_i64(out, at + _STORE_HOST_AT, values[STORE_HOST])
    put_i32(out, at + _RECONSUME_TIMES_AT, values[RECONSUME_TIMES])
    put_i64(out, at + _PREPARED_AT, values[PREPARED])
    put_i32(out, at + _BODY_LENGTH_AT, body_size)


@inline_kernel
def _fill_row(
    row: Row, position: int, values: Numbers, body_size: int, topic_size: int, properties_size: int, size: int
) -> None:
    row.position = position
    row.size = size
    row.queue_id = values[QUEUE_ID]
    row.sys_flag = values[SYS_FLAG] & ~_V6
    row.topic_length = topic_size
    row.body_start = position + _HEAD_SIZE
    row.body_length = body_size
    row.properties_length = properties_size


@kernel
def _encode(
    b: Bytes, p: Any, defaults: Numbers, table: Rows, pool: Bytes, trailing: bool, body_max: int, record_max: int,
    unique: Bytes, counter: Int, crc32: int, out: Bytes, address: int, rows: Rows, numbers: Numbers,
    values: Numbers, spans: Numbers, pairs: Numbers, found: Numbers,
) -> Any:  # fmt: skip
    used, count = np.int64(0), np.int64(0)
    while p < len(b) and count < len(rows):
        for key in range(KEY_COUNT):  # loops: numba counts references for each slice
            values[key] = defaults[key]
            spans[key, 0] = spans[key, 1] = 0
        found[0] = found[1] = found[2] = 0
        seen, end = parse_line(b, p, len(b), values, spans, pairs, found)
        if seen < 0:
            break
        is_copy = seen >> PHYSICAL_OFFSET & 1
        topic_start, topic_end = spans[TOPIC, 0], spans[TOPIC, 1]
        body_start, body_end = spans[BODY, 0], spans[BODY, 1]
        encoding = 0
        if seen >> BODY_ENCODING & 1:
            encoding = which_text(b, spans[BODY_ENCODING, 0], spans[BODY_ENCODING, 1], ENCODING_BYTES, ENCODING_ENDS)
        body_size = _body_size(b, body_start, body_end, encoding)
        topic_size = topic_end - topic_start
        with_unique = not is_copy and not found[2]
        names = found[0] + with_unique
        properties_size = found[1] + _UNIQ_KEY_PAIR * with_unique + (names if trailing or names == 0 else names - 1)
        size = _HEAD_SIZE + body_size + 1 + topic_size + 2 + properties_size
        sys_flag = values[SYS_FLAG]
        if (
            encoding < 0
            or not 0 <= body_size <= body_max
            or not 0 < topic_size <= _TOPIC_MAX
            or properties_size > _PROPERTIES_MAX
            or size > record_max
            or used + size + 1 > len(out)
            or values[QUEUE_ID] < 0
            or sys_flag < 0
            or sys_flag & _RARE_FLAGS
            or (is_copy and not seen >> BODY & 1)
        ):
            break
        slot = table_slot(table, pool, b, topic_start, topic_size, values[QUEUE_ID])
        if not table[slot].used:
            break
        body_at = used + _HEAD_SIZE
        if not _write_body(b, body_start, body_end, encoding, out, body_at, body_size):
            break
        body_crc = np.int64(call_crc32(crc32, address + body_at, np.uint32(body_size)) & _CRC_MASK)
        if seen >> BODY_CRC & 1 and values[BODY_CRC] != body_crc:
            break
        _write_head(out, used, size, values, body_size, body_crc)
        at = body_at + body_size
        out[at] = topic_size
        at = copy_bytes(b, topic_start, out, at + 1, topic_size)
        out[at], out[at + 1] = properties_size >> 8, properties_size & 255
        _write_properties(b, pairs, found[0], unique, counter if with_unique else -1, trailing, out, at + 2)
        _fill_row(rows[count], used, values, body_size, topic_size, properties_size, size)
        numbers[count] = table[slot].number
        counter = (counter + with_unique) & 0xFFFFFFFF
        used += size
        count += 1
        p = min(end + 1, len(b))
    return p, count, counter


class LineRules(NamedTuple):
    """The rules for encoding JSON Lines as records; sizes are in bytes."""

    ends_properties_with_separator: bool
    body_max: int
    record_max: int
    unique: Bytes  # uint8: the first 24 characters of each new UNIQ_KEY


def defaults_of(born_timestamp: int, born_host: bytes, store_host: bytes) -> Numbers:
    """Return the default values for keys that a line does not have.

    `born_timestamp` is in ms since 1970, and each host has eight bytes. All other values are 0.
    """
    values = np.zeros(KEY_COUNT, np.int64)
    values[BORN_TIMESTAMP] = born_timestamp
    values[BORN_HOST], values[STORE_HOST] = (
        int.from_bytes(host, "big", signed=True) for host in (born_host, store_host)
    )
    return values


def encode(
    lines: Bytes,
    position: int,
    defaults: Numbers,
    table: QueueTable,
    rules: LineRules,
    counter: int,
    out: Bytes,
    rows: Rows,
    numbers: Numbers,
) -> tuple[int, int, int]:
    """Write plain lines, from `position` on, to `out` as records.

    Stops at a line that is not plain, or when `out` or `rows` has no room for it. Returns the position after the last
    encoded line, the number of encoded lines, and the new `counter` of new UNIQ_KEYs.

    `rows` (RECORD_COLUMNS) describes the records, and `numbers` (int32, as long as `rows`) gets the numbers of their
    queues. `lines` and `out` are uint8 and writable; the last line may have no newline. `place` fills in QUEUEOFFSET,
    PHYSICALOFFSET and STORETIMESTAMP.
    """
    reached, count, counter = _encode(
        lines, position, defaults, table.rows, table.pool, rules.ends_properties_with_separator, rules.body_max,
        rules.record_max, rules.unique, counter, crc32_address(), out, out.ctypes.data, rows, numbers,
        np.zeros(KEY_COUNT, np.int64), np.zeros((KEY_COUNT, 2), np.int64), np.zeros((NAMES_MAX, 4), np.int64),
        np.zeros(3, np.int64),
    )  # fmt: skip
    return int(reached), int(count), int(counter)


@kernel
def _place(
    out: Bytes, rows: Rows, numbers: Numbers, next_offsets: Numbers, offset: int, stored: int, limit: int
) -> int:
    count = 0
    while count < len(rows) and offset + rows[count].size <= limit:
        row = rows[count]
        row.queue_offset = next_offsets[numbers[count]]
        row.store_timestamp = stored
        put_i64(out, row.position + _QUEUE_OFFSET_AT, row.queue_offset)
        put_i64(out, row.position + _PHYSICAL_OFFSET_AT, offset)
        put_i64(out, row.position + _STORE_TIMESTAMP_AT, stored)
        next_offsets[numbers[count]] += 1
        offset += row.size
        count += 1
    return count


def place(out: Bytes, rows: Rows, numbers: Numbers, next_offsets: Numbers, offset: int, stored: int, limit: int) -> int:
    """Set the offsets and the store time of records that `encode` wrote.

    The first one is placed at the physical offset `offset`, and all end at or before `limit`. Returns their number.
    `next_offsets` (int64) has the next offset of each queue, by its number, which each record increases by 1. `stored`
    is the store time in ms since 1970. The placed rows get their queue offset and store time, too.
    """
    return int(_place(out, rows, numbers, next_offsets, offset, stored, limit))


def warm_up() -> None:
    """Compile or load each kernel of this module, by a call with empty input."""
    none, rows, numbers = np.zeros(0, np.uint8), np.empty(0, RECORD_COLUMNS), np.empty(0, np.int32)
    rules = LineRules(False, 0, 0, none)
    encode(none, 0, defaults_of(0, bytes(8), bytes(8)), QueueTable(), rules, 0, none, rows, numbers)
    place(none, rows, numbers, np.zeros(0, np.int64), 0, 0, 0)
