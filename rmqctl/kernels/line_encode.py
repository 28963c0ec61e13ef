"""Encode many JSON Lines as records of the commit log at once.

`encode` writes plain lines as records; then `place` fills in the offsets and the store time of each record. The code
for one line (`rmqctl.operations.append.message_from_json`, `rmqctl.format.encode`) writes the same bytes, as a test
checks. It also encodes the lines that are not plain, which are rare or have a fault, and reports faults. A line is
plain if all of this is true:

- It is one flat JSON object of ASCII characters, without a backslash and without a syntax error.
- Each key is one that `rmqctl dump` prints, and occurs once. Each value has the right type and range; that of a key
  that `rmqctl append` ignores is a string or an integer.
- Its queue is in the QueueTable. The topic has at most 127 bytes, and the queueId is not negative.
- `properties` has at most 64 names, each once and none in `_RARE`, and no empty name or value.
- With `physicalOffset`, it has a `body`: text, or base64 whose unused last bits are zero, that matches `bodyCrc`.
- Hosts are IPv4 addresses. sysFlag shows no transaction, no inner batch and no compression.
- No part of the line is longer than its limit, and the record fits into a log file.

Lines with `__CRC32#`, with `damage` or with `bodyEncoding` hex, and lines for V2 records, are rare and never plain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.format.columns import Bytes, Int, Numbers, Row, Rows

from typing import Any, NamedTuple

import numpy as np

from rmqctl.format import properties
from rmqctl.format.body.client_check import PORT_MAX
from rmqctl.format.crc import CRC_MASK
from rmqctl.format.encode import PROPERTIES_LENGTH_MAX, TOPIC_LENGTH_MAX_V1
from rmqctl.format.message import HEADS, MAGIC_V1
from rmqctl.format.sys_flag import BORNHOST_V6, COMPRESSED, INNER_BATCH, STOREHOST_V6, TRANSACTION_MASK
from rmqctl.kernels.compile import (
    BLOCK,
    call_crc32,
    copy_bytes,
    crc32_address,
    put_i32,
    put_i64,
    special_in_block,
    trailing_zeros,
)
from rmqctl.kernels.dispatch_scan import QueueTable, table_slot
from rmqctl.kernels.kernel import inline_kernel, kernel
from rmqctl.kernels.scan import RECORD_COLUMNS

_KEYS = (
    "topic", "body", "bodyEncoding", "properties", "queueId", "flag", "sysFlag", "reconsumeTimes", "bornTimestamp",
    "preparedTransactionOffset", "bodyCrc", "physicalOffset", "bornHost", "storeHost", "damage",
    # not read
    "queueOffset", "size", "bodyLength", "bornTime", "storeTimestamp", "storeTime", "msgId", "tagsCode", "path",
    "detail",
)  # fmt: skip
KEY_COUNT = len(_KEYS)
(
    _TOPIC, _BODY, _BODY_ENCODING, _PROPERTIES, _QUEUE_ID, _FLAG, _SYS_FLAG, _RECONSUME_TIMES, BORN_TIMESTAMP,
    _PREPARED, _BODY_CRC, _PHYSICAL_OFFSET, BORN_HOST, STORE_HOST, _DAMAGE, *_NOT_READ,
) = range(KEY_COUNT)  # fmt: skip
_IS_TEXT, _IS_PAIRS, _IS_INT, _IS_LONG, _IS_HOST, _IS_NOTHING, _IS_NOT_READ = range(7)
_KINDS = np.array([0, 0, 0, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 5, *(_IS_NOT_READ for _ in _NOT_READ)], np.uint8)
# names of properties that only the code for one line handles; then UNIQ_KEY
_RARE = (properties.DELAY, properties.INNER_MULTI_DISPATCH, properties.INNER_NUM, properties.CRC32)
_UNIQ_KEY = len(_RARE)
_ENCODINGS = ("utf8", "base64")
_BASE64 = 1
_SLOTS = 128  # of the table of keys
_NAMES_MAX = 64
_DIGITS_MAX = 18  # always fits into 64 bits
_UNIQUE_KEY_SIZE = 32
_NO_PLACE = -1

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

_QUOTE, _BACKSLASH, _SPACE, _COLON, _COMMA, _DOT, _MINUS, _OPEN, _CLOSE, _PADDING = (
    34,
    92,
    32,
    58,
    44,
    46,
    45,
    123,
    125,
    61,
)
_NEW_LINE, _BLOCK = 10, BLOCK
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_PORT_MAX = PORT_MAX
_UPPER = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_UNIQ_KEY_BYTES = np.frombuffer(properties.UNIQ_KEY.encode(), np.uint8)
_UNIQ_KEY_PAIR = len(properties.UNIQ_KEY) + 1 + _UNIQUE_KEY_SIZE
_SIX_BITS = np.full(256, 255, np.uint8)
_SIX_BITS[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = np.arange(64)


def _joined(texts: tuple[str, ...]) -> tuple[Bytes, Numbers]:
    return np.frombuffer("".join(texts).encode(), np.uint8), np.cumsum([len(text) for text in texts])


_KEY_BYTES, _KEY_ENDS = _joined(_KEYS)
_NAME_BYTES, _NAME_ENDS = _joined((*_RARE, properties.UNIQ_KEY))
_ENCODING_BYTES, _ENCODING_ENDS = _joined(_ENCODINGS)


@inline_kernel
def _key_slot(length: Int, first: Int, last: Int) -> Int:
    """Return a slot of `_KEY_SLOTS`; the slots of all keys differ."""
    return (np.int64(length) + np.int64(first) * 4 + np.int64(last) * 11) & (_SLOTS - 1)


_KEY_LENGTHS = np.array([len(key) for key in _KEYS], np.int64)
_KEY_SLOTS = np.zeros(_SLOTS, np.int64)
for _number, _key in enumerate(_KEYS):
    _KEY_SLOTS[_key_slot.plain(len(_key), ord(_key[0]), ord(_key[-1]))] = _number


@inline_kernel
def _which(b: Bytes, start: int, end: int, texts: Bytes, ends: Numbers) -> int:
    text_start = np.int64(0)
    for which in range(len(ends)):
        text_end = ends[which]
        if text_end - text_start == end - start:
            i = np.int64(0)
            while i < end - start and b[start + i] == texts[text_start + i]:
                i += 1
            if i == end - start:
                return which
        text_start = text_end
    return -1


@inline_kernel
def _key_at(b: Bytes, start: int, end: int) -> Int:
    if end == start:
        return -1
    key = _KEY_SLOTS[_key_slot(end - start, b[start], b[end - 1])]
    key_start = _KEY_ENDS[key] - _KEY_LENGTHS[key]
    if _KEY_LENGTHS[key] != end - start:
        return -1
    for i in range(end - start):
        if b[start + i] != _KEY_BYTES[key_start + i]:
            return -1
    return np.int64(key)


@inline_kernel
def _past_blanks(b: Bytes, p: int, end: int) -> int:
    while p < end and (b[p] == _SPACE or b[p] == 9 or b[p] == 13):
        p += 1
    return p


@inline_kernel
def _closing_quote(b: Bytes, p: Any, end: int) -> Any:
    """Return the position of the quote that ends a string; `p` is in the string.

    -1 if it is not plain. 64 bytes are tested at once.
    """
    while p + _BLOCK <= end:
        special = special_in_block(b, p)
        if special:
            p += trailing_zeros(special)
            return p if b[p] == _QUOTE else _NO_PLACE
        p += _BLOCK
    while p < end:
        c = b[p]
        if c == _QUOTE:
            return p
        if c < _SPACE or c > 127 or c == _BACKSLASH:
            return _NO_PLACE
        p += 1
    return _NO_PLACE


@inline_kernel
def _string(b: Bytes, p: int, end: int) -> int:
    """Return where the string at `p` has its closing quote; -1 if it is not plain."""
    return _closing_quote(b, p + 1, end) if p < end and b[p] == _QUOTE else _NO_PLACE


@inline_kernel
def _integer(b: Bytes, p: Any, end: int) -> tuple[Int, Int]:
    """Return the position after the integer at `p`, and its value.

    The position is -1 without an integer, and for more than 18 digits, a leading zero, and -0.
    """
    negative = p < end and b[p] == _MINUS
    if negative:
        p += 1
    start = p
    value = np.int64(0)
    while p < end and 48 <= b[p] <= 57 and p - start <= _DIGITS_MAX:
        value = value * 10 + np.int64(b[p]) - 48
        p += 1
    leads = p > start and b[start] == 48
    if p == start or p - start > _DIGITS_MAX or (leads and (p - start > 1 or negative)):
        return np.int64(_NO_PLACE), value
    return np.int64(p), -value if negative else value


@inline_kernel
def _host(b: Bytes, p: int, end: int) -> Int:
    """Return the host `a.b.c.d:port` in [p, end) as a number; -1 for any other text.

    The number is the host's eight bytes. No host has the number -1.
    """
    host = np.int64(0)
    for i in range(5):
        if p >= end or b[p] == _MINUS:
            return np.int64(_NO_PLACE)
        p, value = _integer(b, p, end)
        if p < 0 or value > (255 if i < 4 else _PORT_MAX):
            return np.int64(_NO_PLACE)
        host = (host << 8 | value) if i < 4 else (host << 32 | value)
        if i < 4:
            if p >= end or b[p] != (_DOT if i < 3 else _COLON):
                return np.int64(_NO_PLACE)
            p += 1
    return host if p == end else np.int64(_NO_PLACE)


@inline_kernel
def _is_new_name(b: Bytes, pairs: Numbers, count: int, start: int, end: int) -> bool:
    for i in range(count):
        if pairs[i, 1] - pairs[i, 0] == end - start:
            j = np.int64(0)
            while j < end - start and b[pairs[i, 0] + j] == b[start + j]:
                j += 1
            if j == end - start:
                return False
    return True


@inline_kernel
def _pairs(b: Bytes, p: int, end: int, pairs: Numbers, found: Numbers) -> int:
    """Return the position after the object `properties` at `p`; -1 if not plain.

    `pairs` gets the spans of the names and values. `found` gets the number of pairs, their size in bytes, and 1 if
    UNIQ_KEY is one of the names.
    """
    if p >= end or b[p] != _OPEN:
        return _NO_PLACE
    p = _past_blanks(b, p + 1, end)
    if p < end and b[p] == _CLOSE:
        return p + 1
    count = np.int64(0)
    while True:
        name_start = p + 1
        name_end = _string(b, p, end)
        if name_end <= name_start or count == _NAMES_MAX or not _is_new_name(b, pairs, count, name_start, name_end):
            return _NO_PLACE
        p = _past_blanks(b, name_end + 1, end)
        if p >= end or b[p] != _COLON:
            return _NO_PLACE
        p = _past_blanks(b, p + 1, end)
        value_start = p + 1
        value_end = _string(b, p, end)
        if value_end <= value_start:
            return _NO_PLACE
        which = _which(b, name_start, name_end, _NAME_BYTES, _NAME_ENDS)
        if 0 <= which < _UNIQ_KEY:
            return _NO_PLACE
        if which == _UNIQ_KEY:
            found[2] = 1
        pairs[count, 0], pairs[count, 1] = name_start, name_end
        pairs[count, 2], pairs[count, 3] = value_start, value_end
        count += 1
        found[0] = count
        found[1] += name_end - name_start + 1 + value_end - value_start
        p = _past_blanks(b, value_end + 1, end)
        if p >= end or (b[p] != _COMMA and b[p] != _CLOSE):
            return _NO_PLACE
        if b[p] == _CLOSE:
            return p + 1
        p = _past_blanks(b, p + 1, end)


@inline_kernel
def _value(
    b: Bytes, p: int, end: int, key: int, values: Numbers, spans: Numbers, pairs: Numbers, found: Numbers
) -> Any:
    """Return the position after the value at `p`, or -1 if the value is not plain."""
    kind = _KINDS[key]
    if kind == _IS_NOT_READ:
        kind = _IS_TEXT if p < end and b[p] == _QUOTE else _IS_LONG
    if kind == _IS_PAIRS:
        return _pairs(b, p, end, pairs, found)
    if kind in (_IS_INT, _IS_LONG):
        p, value = _integer(b, p, end)
        if kind == _IS_INT and not _INT_MIN <= value <= _INT_MAX:
            return _NO_PLACE
        values[key] = value
        return p
    start = p + 1
    p = _string(b, p, end)
    if p < 0 or kind == _IS_NOTHING:
        return _NO_PLACE
    if kind == _IS_HOST:
        values[key] = _host(b, start, p)
        if values[key] == _NO_PLACE:
            return _NO_PLACE
    else:
        spans[key, 0], spans[key, 1] = start, p
    return p + 1


@inline_kernel
def _parse(
    b: Bytes, p: Any, end: int, values: Numbers, spans: Numbers, pairs: Numbers, found: Numbers
) -> tuple[Int, Int]:
    """Read the keys and the values of the line that begins at `p`.

    Bit k of the first result is set if the line has key number k; it is -1 if the line is not plain. The second one is
    the position of the line feed, or `end` without one. `values` gets the numbers and hosts, `spans` the positions of
    texts.
    """
    seen, nothing = np.int64(0), (np.int64(_NO_PLACE), np.int64(end))
    p = _past_blanks(b, p, end)
    if p >= end or b[p] != _OPEN:
        return nothing
    while b[p] != _CLOSE:
        p = _past_blanks(b, p + 1, end)
        name_start = p + 1
        name_end = _string(b, p, end)
        if name_end < 0:
            return nothing
        key = _key_at(b, name_start, name_end)
        p = _past_blanks(b, name_end + 1, end)
        if p >= end or b[p] != _COLON or key < 0 or seen >> key & 1:
            return nothing
        seen |= np.int64(1) << key
        p = _value(b, _past_blanks(b, p + 1, end), end, key, values, spans, pairs, found)
        if p < 0:
            return nothing
        p = _past_blanks(b, p, end)
        if p >= end or (b[p] != _COMMA and b[p] != _CLOSE):
            return nothing
    p = _past_blanks(b, p + 1, end)
    return (seen, np.int64(p)) if p == end or b[p] == _NEW_LINE else nothing


@inline_kernel
def _base64(b: Bytes, start: int, end: int, out: Bytes, at: int, size: int) -> bool:
    """Decode into `size` bytes of `out`; return whether the text is strict base64."""
    behind = at + size
    for p in range(start, end, 4):
        bits = np.uint32(0)
        for i in range(4):
            six = np.uint32(_SIX_BITS[b[p + i]])
            if six == 255:
                if b[p + i] != _PADDING or at + i - 1 < behind:
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
        return _NO_PLACE
    return (end - start) // 4 * 3 - (b[end - 2] == _PADDING) - (b[end - 1] == _PADDING)


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
    put_i32(out, at + _QUEUE_ID_AT, values[_QUEUE_ID])
    put_i32(out, at + _FLAG_AT, values[_FLAG])
    put_i32(out, at + _SYS_FLAG_AT, values[_SYS_FLAG] & ~_V6)
    put_i64(out, at + _BORN_TIMESTAMP_AT, values[BORN_TIMESTAMP])
    put_i64(out, at + _BORN_HOST_AT, values[BORN_HOST])
    put_i64(out, at + _STORE_HOST_AT, values[STORE_HOST])
    put_i32(out, at + _RECONSUME_TIMES_AT, values[_RECONSUME_TIMES])
    put_i64(out, at + _PREPARED_AT, values[_PREPARED])
    put_i32(out, at + _BODY_LENGTH_AT, body_size)


@inline_kernel
def _fill_row(
    row: Row, position: int, values: Numbers, body_size: int, topic_size: int, properties_size: int, size: int
) -> None:
    row.position = position
    row.size = size
    row.queue_id = values[_QUEUE_ID]
    row.sys_flag = values[_SYS_FLAG] & ~_V6
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
        seen, end = _parse(b, p, len(b), values, spans, pairs, found)
        if seen < 0:
            break
        is_copy = seen >> _PHYSICAL_OFFSET & 1
        topic_start, topic_end = spans[_TOPIC, 0], spans[_TOPIC, 1]
        body_start, body_end = spans[_BODY, 0], spans[_BODY, 1]
        encoding = 0
        if seen >> _BODY_ENCODING & 1:
            encoding = _which(b, spans[_BODY_ENCODING, 0], spans[_BODY_ENCODING, 1], _ENCODING_BYTES, _ENCODING_ENDS)
        body_size = _body_size(b, body_start, body_end, encoding)
        topic_size = topic_end - topic_start
        with_unique = not is_copy and not found[2]
        names = found[0] + with_unique
        properties_size = found[1] + _UNIQ_KEY_PAIR * with_unique + (names if trailing or names == 0 else names - 1)
        size = _HEAD_SIZE + body_size + 1 + topic_size + 2 + properties_size
        sys_flag = values[_SYS_FLAG]
        if (
            encoding < 0
            or not 0 <= body_size <= body_max
            or not 0 < topic_size <= _TOPIC_MAX
            or properties_size > _PROPERTIES_MAX
            or size > record_max
            or used + size + 1 > len(out)
            or values[_QUEUE_ID] < 0
            or sys_flag < 0
            or sys_flag & _RARE_FLAGS
            or (is_copy and not seen >> _BODY & 1)
        ):
            break
        slot = table_slot(table, pool, b, topic_start, topic_size, values[_QUEUE_ID])
        if not table[slot].used:
            break
        body_at = used + _HEAD_SIZE
        if not _write_body(b, body_start, body_end, encoding, out, body_at, body_size):
            break
        body_crc = np.int64(call_crc32(crc32, address + body_at, np.uint32(body_size)) & _CRC_MASK)
        if seen >> _BODY_CRC & 1 and values[_BODY_CRC] != body_crc:
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
        np.zeros(KEY_COUNT, np.int64), np.zeros((KEY_COUNT, 2), np.int64), np.zeros((_NAMES_MAX, 4), np.int64),
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
