"""Write many records at once as JSON Lines, for `rmqctl dump -o jsonl`.

The code for one record (`rmqctl.format.body.message_row`) writes the same bytes, as a test checks, and handles rare
cases: IPv6 hosts, a repeated property, a time that is not a date, a text that is not UTF-8 or has characters that must
be escaped for JSON or for a terminal, and messages of the topic `skipped_topic`, whose records do not contain the
tagsCode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.format.columns import Bytes, Int, Numbers, Row, Rows

from typing import Any

import numpy as np

from rmqctl.format.message import HEADS, RECORD_KEYS, TEXT_KEYS
from rmqctl.format.sys_flag import BORNHOST_V6, STOREHOST_V6
from rmqctl.format.timestamp import MAX_MS, MIN_MS
from rmqctl.kernels.compile import i32, i64, java_hash, u32
from rmqctl.kernels.dispatch_scan import TAGS, find_values, no_spans
from rmqctl.kernels.kernel import inline_kernel, kernel
from rmqctl.kernels.scan import RECORD_COLUMNS

BODY_NONE, BODY_HEX, BODY_BASE64 = 0, 1, 2
BODIES = {"none": BODY_NONE, "hex": BODY_HEX, "base64": BODY_BASE64}
ROOM_OF_A_LINE = 1024  # for the parts of a line that are not counted separately


def _texts() -> list[str]:
    found, quote = [], ""
    for key in RECORD_KEYS:
        quoted = '"' if key in TEXT_KEYS else ""
        found.append(f'{quote},"{key}":{quoted}')
        quote = quoted
    found[0] = "{" + found[0].removeprefix(",")
    found[-1] += "{"  # the object of properties
    return [*found, "}", ',"body":"', '","bodyEncoding":"hex"}\n', '","bodyEncoding":"base64"}\n', "}\n"]


_TEXTS = _texts()
_TEXT_BYTES = np.frombuffer("".join(_TEXTS).encode(), np.uint8)
_TEXT_ENDS = np.cumsum([len(text) for text in _TEXTS])
# numpy integers, because numba compiles a function again for each literal int argument
_TOPIC, _QUEUE_ID = np.int64(0), np.int64(1)
_MSG_ID, _TAGS_CODE, _PATH, _PROPERTIES, _PROPERTIES_END, _BODY, _END_HEX, _END_BASE64, _END = np.arange(
    17, len(_TEXTS)
)
_IS_NUMBER, _IS_TIME, _IS_HOST = range(3)
_KINDS = np.array([0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 1, 2, 0, 0], np.uint8)  # of the fields from QUEUE_ID to PREPARED
_BODYCRC_AT, _FLAG_AT, _BORN_TIMESTAMP_AT, _BORN_HOST_AT, _STORE_HOST_AT, _RECONSUME_AT, _PREPARED_AT = (
    HEADS[0].offset(name)
    for name in (
        "BODYCRC",
        "FLAG",
        "BORNTIMESTAMP",
        "BORNHOST",
        "STOREHOST",
        "RECONSUMETIMES",
        "PREPAREDTRANSACTIONOFFSET",
    )
)
_V6 = BORNHOST_V6 | STOREHOST_V6
_QUOTE, _BACKSLASH, _COLON, _DOT, _COMMA = 34, 92, 58, 46, 44
_UPPER = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_LOWER = np.frombuffer(b"0123456789abcdef", np.uint8)
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_DAY_MS = 86_400_000
_MIN_MS, _MAX_MS = MIN_MS, MAX_MS
_NAMES_MAX = 64
_TWO, _THREE, _FOUR = np.arange(2, 5)


@inline_kernel
def _text(out: Bytes, used: int, which: int) -> int:
    start = 0 if which == 0 else _TEXT_ENDS[which - 1]
    for i in range(start, _TEXT_ENDS[which]):
        out[used] = _TEXT_BYTES[i]
        used += 1
    return used


@inline_kernel
def _number(out: Bytes, used: int, value: int) -> int:
    rest = np.uint64(value)
    if value < 0:
        out[used] = 45
        used += 1
        rest = np.uint64(0) - rest
    digits = 1
    limit = np.uint64(10)
    while digits < 20 and rest >= limit:
        digits += 1
        limit = limit * np.uint64(10) if digits < 20 else np.uint64(0xFFFFFFFFFFFFFFFF)
    for i in range(digits):
        quotient = rest // np.uint64(10)
        out[used + digits - 1 - i] = np.uint8(48 + (rest - quotient * np.uint64(10)))
        rest = quotient
    return used + digits


@inline_kernel
def _padded(out: Bytes, used: int, value: int, digits: int) -> int:
    for i in range(digits):
        out[used + digits - 1 - i] = np.uint8(48 + value % 10)
        value //= 10
    return used + digits


@inline_kernel
def _time(out: Bytes, used: int, ms: int) -> int:
    """Write a time such as `2026-11-21T09:15:16.848Z`; return the end position.

    Days are counted from 1 March of year 0, in periods of 400 years.
    """
    days = ms // _DAY_MS
    rest = ms - days * _DAY_MS
    shifted = days + 719_468
    era = shifted // 146_097
    day_of_era = shifted - era * 146_097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    from_march = (5 * day_of_year + 2) // 153
    month = from_march + 3 if from_march < 10 else from_march - 9
    used = _padded(out, used, year_of_era + era * 400 + (1 if month <= 2 else 0), _FOUR)
    out[used] = 45
    used = _padded(out, used + 1, month, _TWO)
    out[used] = 45
    used = _padded(out, used + 1, day_of_year - (153 * from_march + 2) // 5 + 1, _TWO)
    out[used] = 84
    used = _padded(out, used + 1, rest // 3_600_000, _TWO)
    out[used] = _COLON
    used = _padded(out, used + 1, rest // 60_000 % 60, _TWO)
    out[used] = _COLON
    used = _padded(out, used + 1, rest // 1000 % 60, _TWO)
    out[used] = _DOT
    used = _padded(out, used + 1, rest % 1000, _THREE)
    out[used] = 90
    return used + 1


@inline_kernel
def _host(buffer: Bytes, at: int, out: Bytes, used: int) -> Any:
    for i in range(4):
        used = _number(out, used, np.int64(buffer[at + i]))
        out[used] = _DOT if i < 3 else _COLON
        used += 1
    return _number(out, used, i32(buffer, at + 4))


@inline_kernel
def _hex(buffer: Bytes, start: int, end: int, digits: Bytes, out: Bytes, used: int) -> int:
    for i in range(start, end):
        out[used] = digits[buffer[i] >> 4]
        out[used + 1] = digits[buffer[i] & 15]
        used += 2
    return used


@inline_kernel
def _base64(buffer: Bytes, start: int, end: int, out: Bytes, used: int) -> int:
    for at in range(start, end, 3):
        count = min(end - at, 3)
        three = np.uint32(buffer[at]) << np.uint32(16)
        if count > 1:
            three |= np.uint32(buffer[at + 1]) << np.uint32(8)
        if count > 2:
            three |= np.uint32(buffer[at + 2])
        for i in range(4):
            out[used + i] = _BASE64[(three >> np.uint32(18 - 6 * i)) & np.uint32(63)] if i <= count else 61
        used += 4
    return used


@inline_kernel
def _is_plain(buffer: Bytes, start: int, end: int) -> bool:
    """Return whether a text needs no escapes in JSON.

    ASCII characters are plain, except control characters, the quote and the backslash. Characters from U+3000 to U+CFFF
    (three bytes in UTF-8) are plain, except U+3164, which is invisible.
    """
    p = start
    while p < end:
        c = buffer[p]
        if 0xE3 <= c <= 0xEC:
            if p + 2 >= end or buffer[p + 1] & 0xC0 != 0x80 or buffer[p + 2] & 0xC0 != 0x80:
                return False
            if c == 0xE3 and buffer[p + 1] == 0x85 and buffer[p + 2] == 0xA4:
                return False
            p += 3
        elif c < 0x20 or c > 0x7E or c in (_QUOTE, _BACKSLASH):
            return False
        else:
            p += 1
    return True


@inline_kernel
def _copy(buffer: Bytes, start: int, end: int, out: Bytes, used: int) -> int:
    for i in range(start, end):
        out[used] = buffer[i]
        used += 1
    return used


@inline_kernel
def _quoted(buffer: Bytes, start: int, end: int, out: Bytes, used: int) -> int:
    out[used] = _QUOTE
    used = _copy(buffer, start, end, out, used + 1)
    out[used] = _QUOTE
    return used + 1


@inline_kernel
def _is_repeated(buffer: Bytes, names: Numbers, count: int) -> bool:
    start, end = names[count - 1, 0], names[count - 1, 1]
    for i in range(count - 1):
        if names[i, 1] - names[i, 0] == end - start:
            same = True
            for j in range(end - start):
                if buffer[names[i, 0] + j] != buffer[start + j]:
                    same = False
                    break
            if same:
                return True
    return False


@inline_kernel
def _properties(buffer: Bytes, start: int, end: int, names: Numbers, out: Bytes, used: int) -> int:
    """Write names and values as JSON; return the end, or -1 for a rare case."""
    count = 0
    p = start
    while p < end:
        name_start = p
        while p < end and buffer[p] > 2:
            p += 1
        name_end = p
        if p < end and buffer[p] == 0:
            return -1
        if p == end or buffer[p] == 2:
            p += 1
            continue
        p += 1
        value_start = p
        while p < end and buffer[p] != 2:
            p += 1
        if name_end > name_start and p > value_start:
            names[count, 0], names[count, 1] = name_start, name_end
            count += 1
            plain = _is_plain(buffer, name_start, name_end) and _is_plain(buffer, value_start, p)
            if count == _NAMES_MAX or not plain or _is_repeated(buffer, names, count):
                return -1
            if count > 1:
                out[used] = _COMMA
                used += 1
            used = _quoted(buffer, name_start, name_end, out, used)
            out[used] = _COLON
            used = _quoted(buffer, value_start, p, out, used + 1)
        p += 1
    return used


@inline_kernel
def _fill(values: Numbers, buffer: Bytes, base: int, row: Row, born: int) -> None:
    """Fill `values` with the fields from queueId to preparedTransactionOffset.

    They have the order of the keys in a JSON line. Of a host, `values` gets its position in `buffer`.
    """
    position = row.position
    values[0] = row.queue_id
    values[1] = row.queue_offset
    values[2] = base + position
    values[3] = row.size
    values[4] = u32(buffer, position + _BODYCRC_AT)
    values[5] = row.body_length
    values[6] = i32(buffer, position + _FLAG_AT)
    values[7] = row.sys_flag
    values[8] = born
    values[9] = born
    values[10] = position + _BORN_HOST_AT
    values[11] = row.store_timestamp
    values[12] = row.store_timestamp
    values[13] = position + _STORE_HOST_AT
    values[14] = i32(buffer, position + _RECONSUME_AT)
    values[15] = i64(buffer, position + _PREPARED_AT)


@inline_kernel
def _line(
    buffer: Bytes,
    base: int,
    row: Row,
    path: Bytes,
    body: int,
    spans: Numbers,
    names: Numbers,
    values: Numbers,
    out: Bytes,
    used: int,
) -> Any:
    """Write one line, and return the position after it, or -1 for a rare case."""
    position = row.position
    end = position + row.size
    properties_start = end - row.properties_length
    topic_end = properties_start - 2
    topic_start = topic_end - row.topic_length
    born = i64(buffer, position + _BORN_TIMESTAMP_AT)
    dates = _MIN_MS <= born <= _MAX_MS and _MIN_MS <= row.store_timestamp <= _MAX_MS
    if row.sys_flag & _V6 or not dates or not _is_plain(buffer, topic_start, topic_end):
        return -1
    find_values(buffer, properties_start, end, spans)
    ok, code = java_hash(buffer, spans[TAGS, 0], spans[TAGS, 1], np.uint32(0))
    if not ok:
        return -1
    _fill(values, buffer, base, row, born)
    used = _copy(buffer, topic_start, topic_end, out, _text(out, used, _TOPIC))
    for field in range(len(_KINDS)):  # a loop, so that each part is compiled only once
        used = _text(out, used, _QUEUE_ID + field)
        if _KINDS[field] == _IS_NUMBER:
            used = _number(out, used, values[field])
        elif _KINDS[field] == _IS_TIME:
            used = _time(out, used, values[field])
        else:
            used = _host(buffer, values[field], out, used)
    used = _text(out, used, _MSG_ID)
    used = _hex(buffer, position + _STORE_HOST_AT, position + _STORE_HOST_AT + 8, _UPPER, out, used)
    for i in range(8):
        byte = np.uint64(base + position) >> np.uint64(56 - 8 * i) & np.uint64(255)
        out[used] = _UPPER[byte >> np.uint64(4)]
        out[used + 1] = _UPPER[byte & np.uint64(15)]
        used += 2
    used = _number(out, _text(out, used, _TAGS_CODE), np.int64(np.int32(code)))
    used = _copy(path, np.int64(0), len(path), out, _text(out, used, _PATH))
    used = _properties(buffer, properties_start, end, names, out, _text(out, used, _PROPERTIES))
    if used < 0:
        return -1
    used = _text(out, used, _PROPERTIES_END)
    if body == BODY_NONE:
        return _text(out, used, _END)
    used = _text(out, used, _BODY)
    if body == BODY_HEX:
        return _text(out, _hex(buffer, row.body_start, row.body_start + row.body_length, _LOWER, out, used), _END_HEX)
    return _text(out, _base64(buffer, row.body_start, row.body_start + row.body_length, out, used), _END_BASE64)


@kernel
def _write(
    buffer: Bytes, base: int, rows: Rows, at: int, path: Bytes, skipped: Bytes, body: int, out: Bytes,
    spans: Numbers, names: Numbers, values: Numbers,
) -> tuple[Int, Int]:  # fmt: skip
    used = np.int64(0)
    while at < len(rows):
        row = rows[at]
        topic_end = row.position + row.size - row.properties_length - 2
        same = row.topic_length == len(skipped)
        for i in range(row.topic_length if same else 0):
            same = same and buffer[topic_end - row.topic_length + i] == skipped[i]
        room = (
            ROOM_OF_A_LINE
            + len(path)
            + row.topic_length
            + 4 * row.properties_length
            + 2 * row.body_length * (body != BODY_NONE)
        )
        if same or used + room > len(out):
            break
        behind = _line(buffer, base, row, path, body, spans, names, values, out, used)
        if behind < 0:
            break
        used = behind
        at += 1
    return at, used


def write_lines(
    buffer: Bytes, base: int, rows: Rows, at: int, path: bytes, skipped_topic: bytes, body: int, out: Bytes
) -> tuple[int, int]:
    """Write a JSON line for each of `rows` to `out` (uint8), from row `at` on.

    Returns the row at which it stopped, and the number of bytes written. It stops before a row that the one-record code
    must write, and when `out` may be too small for the next row: that needs ROOM_OF_A_LINE, the length of the path, the
    length of the topic, four times the length of the properties, and with bodies twice the length of the body. `rows`
    are rows of RECORD_COLUMNS. `path` is a JSON string with its quotes.
    """
    names, values = np.zeros((_NAMES_MAX, 2), np.int64), np.zeros(len(_KINDS), np.int64)
    reached, used = _write(
        buffer, base, rows, at, _array(path), _array(skipped_topic), body, out, no_spans(), names, values
    )
    return int(reached), int(used)


def _array(raw: bytes) -> Bytes:
    return np.frombuffer(raw, np.uint8)


def warm_up() -> None:
    """Compile or load each kernel of this module, by a call with empty input."""
    write_lines(np.zeros(0, np.uint8), 0, np.empty(0, RECORD_COLUMNS), 0, b"", b"", BODY_NONE, np.zeros(0, np.uint8))
