"""The kernel that decodes many records of a log file at once, into columns.

`walk` reads only good messages, by the rules of `rmqctl.format.message`. It stops before a blank, zeros, a damage, or a
record that is not completely in the buffer; there, the one-record decoder continues and reports damages. A test
compares both on every test store and on every kind of damage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.format.columns import Bytes, Rows

from typing import Any

import numpy as np

from rmqctl.format.columns import row_type
from rmqctl.format.crc import PROPERTY_CRC_NAME, PROPERTY_CRC_SIZE
from rmqctl.format.message import (
    BODYCRC_OFFSET,
    HEADS,
    HOST_V4,
    HOST_V6,
    MAGIC_V1,
    MAGIC_V2,
    MIN_SIZE,
    PHYSICALOFFSET_OFFSET,
)
from rmqctl.format.sys_flag import BORNHOST_V6, STOREHOST_V6
from rmqctl.kernels.compile import call_crc32, crc32_address, i32, i64, u16, u32
from rmqctl.kernels.kernel import inline_kernel, kernel_or_plain

# one row for each message: lengths in bytes, positions in the buffer, queue_offset in units, store_timestamp in ms
RECORD_COLUMNS = row_type(
    "i8 position queue_offset store_timestamp body_start",
    "i4 size queue_id sys_flag body_length topic_length properties_length",
)

_MAGIC_V1, _MAGIC_V2, _MIN_SIZE = MAGIC_V1, MAGIC_V2, MIN_SIZE
_HEAD_SIZE = HEADS[0].size
_BODYCRC, _PHYSICALOFFSET = BODYCRC_OFFSET, PHYSICALOFFSET_OFFSET
_QUEUEID, _QUEUEOFFSET = HEADS[0].offset("QUEUEID"), HEADS[0].offset("QUEUEOFFSET")
_SYSFLAG, _STORETIMESTAMP = HEADS[0].offset("SYSFLAG"), HEADS[0].offset("STORETIMESTAMP")
_BORN_V6, _STORE_V6, _V6_EXTRA = BORNHOST_V6, STOREHOST_V6, HOST_V6 - HOST_V4
_CRC_NAME = np.frombuffer(PROPERTY_CRC_NAME, np.uint8)
_CRC_SIZE = PROPERTY_CRC_SIZE


@inline_kernel
def _body_crc_is_right(
    buffer: Bytes, address: int, crc32: int, position: int, body_start: int, body_length: int
) -> bool:
    crc = np.uint32(0)
    if body_length:
        crc = call_crc32(crc32, address + body_start, np.uint32(body_length)) & np.uint32(0x7FFFFFFF)
    right: bool = crc == u32(buffer, position + _BODYCRC)
    return right


@inline_kernel
def _property_crc_is_right(buffer: Bytes, address: int, crc32: int, position: int, end: int) -> bool:
    """Return whether `__CRC32#` at a record's end is right or missing.

    False also if the last bytes are only partly like `__CRC32#`. The one-record decoder then decides whether the record
    is good.
    """
    named = True
    for i in range(8):
        named = named and buffer[end - _CRC_SIZE + i] == _CRC_NAME[i]
    value = np.int64(0)
    shaped = buffer[end - 12] == 1 and buffer[end - 1] == 2
    for i in range(10):
        digit = buffer[end - 2 - i]
        shaped = shaped and 48 <= digit <= 57
        value = value * 10 + np.int64(digit) - 48
    if not named and not shaped:
        return True
    if not named or not shaped:
        return False
    covered = np.uint32(end - _CRC_SIZE - position)
    crc: bool = np.int64(call_crc32(crc32, address + position, covered) & np.uint32(0x7FFFFFFF)) == value
    return crc


@kernel_or_plain
def _walk(buffer: Bytes, address: int, base: int, room: int, crc32: int, columns: Rows, check_bodies: bool) -> int:
    length = len(buffer)
    position = 0
    count = 0
    while count < len(columns) and position + _MIN_SIZE <= length:
        size = i32(buffer, position)
        magic = u32(buffer, position + 4)
        length_size = 2 if magic == _MAGIC_V2 else 1
        if (
            (magic not in (_MAGIC_V1, _MAGIC_V2))
            or size < _MIN_SIZE
            or size > room - position
            or position + size > length
        ):
            break
        if i64(buffer, position + _PHYSICALOFFSET) != base + position:
            break
        sys_flag = i32(buffer, position + _SYSFLAG)
        born_extra = _V6_EXTRA if sys_flag & _BORN_V6 else 0
        body_start = position + _HEAD_SIZE + born_extra + (_V6_EXTRA if sys_flag & _STORE_V6 else 0)
        end = position + size
        if body_start + length_size + 2 > end:
            break
        body_length = i32(buffer, body_start - 4)
        at = body_start + body_length
        if body_length < 0 or at + length_size + 2 > end:
            break
        topic_length = u16(buffer, at) if length_size == 2 else np.int64(buffer[at])
        at += length_size + topic_length
        if topic_length > (32767 if length_size == 2 else 127) or at + 2 > end:
            break
        properties_length = u16(buffer, at)
        if properties_length > 32767 or at + 2 + properties_length != end:
            break
        if check_bodies and not _body_crc_is_right(buffer, address, crc32, position, body_start, body_length):
            break
        if properties_length and buffer[end - 1] == 0:
            break
        if properties_length >= _CRC_SIZE and not _property_crc_is_right(buffer, address, crc32, position, end):
            break
        row = columns[count]
        row.position = position
        row.size = size
        row.queue_id = i32(buffer, position + _QUEUEID)
        row.queue_offset = i64(buffer, position + _QUEUEOFFSET)
        row.sys_flag = sys_flag
        row.topic_length = topic_length
        row.store_timestamp = i64(buffer, position + _STORETIMESTAMP + born_extra)
        row.body_start = body_start
        row.body_length = body_length
        row.properties_length = properties_length
        count += 1
        position = end
    return count


def warm_up() -> None:
    """Compile or load each kernel of this module, by a call with empty input."""
    walk(np.zeros(0, np.uint8), 0, 0, np.empty(0, RECORD_COLUMNS), check_bodies=True)


def walk(
    buffer: np.ndarray[Any, np.dtype[np.uint8]],
    base: int,
    room: int,
    columns: np.ndarray[Any, Any],
    *,
    check_bodies: bool,
) -> int:
    """Fill `columns` with the good messages at the start of `buffer`.

    Returns their number. It stops at the first place that is not a good message, at the buffer's end, or when `columns`
    (rows of RECORD_COLUMNS) is full. `buffer` is uint8 and contiguous, with its first byte at physical offset `base`.
    `room` is the number of bytes from there to the end of the file. Without `check_bodies`, a message with a wrong
    BODYCRC counts as good. The kernel runs without the GIL.
    """
    count = _walk(buffer, buffer.ctypes.data, base, room, crc32_address(), columns, check_bodies)
    return int(count)
