"""Find the flipped bit that turns one CRC-32 into another.

CRC-32 is linear. Therefore a flipped bit changes the checksum by a value that depends only on the bit's distance from
the end. The search begins with the difference between the two checksums. The search reads the data backwards, byte by
byte, and computes the difference before each byte. The search ends at a difference that one flipped bit of this byte
would make. BODYCRC has only 31 of the 32 bits, so two first differences are possible. A wrong result is likely only for
a body of gigabytes.
"""

from __future__ import annotations

import zlib
from functools import cache
from typing import NamedTuple

SEARCH_LIMIT = 1024 * 1024


class BitFlip(NamedTuple):
    """A flipped bit: `position` is in bytes, `bit` is 0 (lowest) to 7."""

    position: int
    bit: int


@cache
def _table() -> tuple[list[int], dict[int, int], dict[int, int]]:
    """Return the tables of the CRC.

    There are three tables. The first table is the usual table, which has a value for each byte. The second table gives
    the byte for the highest 8 bits of a value of the first table. For the value of a byte in which only one bit is set,
    the third table gives the number of this bit.
    """
    start = zlib.crc32(b"\0")
    table = [zlib.crc32(bytes([i])) ^ start for i in range(256)]
    return table, {value >> 24: i for i, value in enumerate(table)}, {table[1 << bit]: bit for bit in range(8)}


def find_bit_flip(data: bytes | memoryview, stored: int) -> BitFlip | None:
    """Return the bit of `data` that explains the masked CRC-32 `stored`.

    If this bit is flipped back, the checksum is right. The result is None if there is no such bit, or if the data are
    too long.
    """
    if len(data) > SEARCH_LIMIT:
        return None
    table, by_top, bits = _table()
    difference = (zlib.crc32(data) ^ stored) & 0x7FFFFFFF
    candidates = [difference, difference | 0x80000000]
    for position in range(len(data) - 1, -1, -1):
        for i, value in enumerate(candidates):
            if value in bits:
                return BitFlip(position, bits[value])
            index = by_top[value >> 24]
            candidates[i] = ((value ^ table[index]) << 8 | index) & 0xFFFFFFFF
    return None
