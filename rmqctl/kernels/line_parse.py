"""Reads plain JSON Lines with messages, for `line_encode`.

A line is plain if all of this is true:

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
    from rmqctl.format.columns import Bytes, Int, Numbers

from typing import Any

import numpy as np

from rmqctl.format import properties
from rmqctl.format.body.client_check import PORT_MAX
from rmqctl.kernels.compile import BLOCK, special_in_block, trailing_zeros
from rmqctl.kernels.kernel import inline_kernel

_KEYS = (
    "topic", "body", "bodyEncoding", "properties", "queueId", "flag", "sysFlag", "reconsumeTimes", "bornTimestamp",
    "preparedTransactionOffset", "bodyCrc", "physicalOffset", "bornHost", "storeHost", "damage",
    # not read
    "queueOffset", "size", "bodyLength", "bornTime", "storeTimestamp", "storeTime", "msgId", "tagsCode", "path",
    "detail",
)  # fmt: skip
KEY_COUNT = len(_KEYS)
(
    TOPIC, BODY, BODY_ENCODING, _PROPERTIES, QUEUE_ID, FLAG, SYS_FLAG, RECONSUME_TIMES, BORN_TIMESTAMP,
    PREPARED, BODY_CRC, PHYSICAL_OFFSET, BORN_HOST, STORE_HOST, _DAMAGE, *_NOT_READ,
) = range(KEY_COUNT)  # fmt: skip
_IS_TEXT, _IS_PAIRS, _IS_INT, _IS_LONG, _IS_HOST, _IS_NOTHING, _IS_NOT_READ = range(7)
_KINDS = np.array([0, 0, 0, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 5, *(_IS_NOT_READ for _ in _NOT_READ)], np.uint8)
# names of properties that only the code for one line handles; then UNIQ_KEY
_RARE = (properties.DELAY, properties.INNER_MULTI_DISPATCH, properties.INNER_NUM, properties.CRC32)
_UNIQ_KEY = len(_RARE)
_ENCODINGS = ("utf8", "base64")
_SLOTS = 128  # of the table of keys
NAMES_MAX = 64
_DIGITS_MAX = 18  # always fits into 64 bits
NO_PLACE = -1

_QUOTE, _BACKSLASH, _SPACE, _COLON, _COMMA, _DOT, _MINUS, _OPEN, _CLOSE, PADDING = (
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


def _joined(texts: tuple[str, ...]) -> tuple[Bytes, Numbers]:
    return np.frombuffer("".join(texts).encode(), np.uint8), np.cumsum([len(text) for text in texts])


_KEY_BYTES, _KEY_ENDS = _joined(_KEYS)
_NAME_BYTES, _NAME_ENDS = _joined((*_RARE, properties.UNIQ_KEY))
ENCODING_BYTES, ENCODING_ENDS = _joined(_ENCODINGS)


@inline_kernel
def _key_slot(length: Int, first: Int, last: Int) -> Int:
    """Return a slot of `_KEY_SLOTS`; the slots of all keys differ."""
    return (np.int64(length) + np.int64(first) * 4 + np.int64(last) * 11) & (_SLOTS - 1)


_KEY_LENGTHS = np.array([len(key) for key in _KEYS], np.int64)
_KEY_SLOTS = np.zeros(_SLOTS, np.int64)
for _number, _key in enumerate(_KEYS):
    _KEY_SLOTS[_key_slot.plain(len(_key), ord(_key[0]), ord(_key[-1]))] = _number


@inline_kernel
def which_text(b: Bytes, start: int, end: int, texts: Bytes, ends: Numbers) -> int:
    """Return which of `texts`, which end at `ends`, is at [start, end); -1 if none."""
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
            return p if b[p] == _QUOTE else NO_PLACE
        p += _BLOCK
    while p < end:
        c = b[p]
        if c == _QUOTE:
            return p
        if c < _SPACE or c > 127 or c == _BACKSLASH:
            return NO_PLACE
        p += 1
    return NO_PLACE


@inline_kernel
def _string(b: Bytes, p: int, end: int) -> int:
    """Return where the string at `p` has its closing quote; -1 if it is not plain."""
    return _closing_quote(b, p + 1, end) if p < end and b[p] == _QUOTE else NO_PLACE


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
        return np.int64(NO_PLACE), value
    return np.int64(p), -value if negative else value


@inline_kernel
def _host(b: Bytes, p: int, end: int) -> Int:
    """Return the host `a.b.c.d:port` in [p, end) as a number; -1 for any other text.

    The number is the host's eight bytes. No host has the number -1.
    """
    host = np.int64(0)
    for i in range(5):
        if p >= end or b[p] == _MINUS:
            return np.int64(NO_PLACE)
        p, value = _integer(b, p, end)
        if p < 0 or value > (255 if i < 4 else _PORT_MAX):
            return np.int64(NO_PLACE)
        host = (host << 8 | value) if i < 4 else (host << 32 | value)
        if i < 4:
            if p >= end or b[p] != (_DOT if i < 3 else _COLON):
                return np.int64(NO_PLACE)
            p += 1
    return host if p == end else np.int64(NO_PLACE)


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
        return NO_PLACE
    p = _past_blanks(b, p + 1, end)
    if p < end and b[p] == _CLOSE:
        return p + 1
    count = np.int64(0)
    while True:
        name_start = p + 1
        name_end = _string(b, p, end)
        if name_end <= name_start or count == NAMES_MAX or not _is_new_name(b, pairs, count, name_start, name_end):
            return NO_PLACE
        p = _past_blanks(b, name_end + 1, end)
        if p >= end or b[p] != _COLON:
            return NO_PLACE
        p = _past_blanks(b, p + 1, end)
        value_start = p + 1
        value_end = _string(b, p, end)
        if value_end <= value_start:
            return NO_PLACE
        which = which_text(b, name_start, name_end, _NAME_BYTES, _NAME_ENDS)
        if 0 <= which < _UNIQ_KEY:
            return NO_PLACE
        if which == _UNIQ_KEY:
            found[2] = 1
        pairs[count, 0], pairs[count, 1] = name_start, name_end
        pairs[count, 2], pairs[count, 3] = value_start, value_end
        count += 1
        found[0] = count
        found[1] += name_end - name_start + 1 + value_end - value_start
        p = _past_blanks(b, value_end + 1, end)
        if p >= end or (b[p] != _COMMA and b[p] != _CLOSE):
            return NO_PLACE
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
            return NO_PLACE
        values[key] = value
        return p
    start = p + 1
    p = _string(b, p, end)
    if p < 0 or kind == _IS_NOTHING:
        return NO_PLACE
    if kind == _IS_HOST:
        values[key] = _host(b, start, p)
        if values[key] == NO_PLACE:
            return NO_PLACE
    else:
        spans[key, 0], spans[key, 1] = start, p
    return p + 1


@inline_kernel
def parse_line(
    b: Bytes, p: Any, end: int, values: Numbers, spans: Numbers, pairs: Numbers, found: Numbers
) -> tuple[Int, Int]:
    """Read the keys and the values of the line that begins at `p`.

    Bit k of the first result is set if the line has key number k; it is -1 if the line is not plain. The second one is
    the position of the line feed, or `end` without one. `values` gets the numbers and hosts, `spans` the positions of
    texts.
    """
    seen, nothing = np.int64(0), (np.int64(NO_PLACE), np.int64(end))
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
