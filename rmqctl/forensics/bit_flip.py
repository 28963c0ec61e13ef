"""Find each single flipped bit that explains a wrong CRC-32.

CRC-32 is linear. Therefore a flipped bit changes the checksum by a value that depends only on the bit's distance from
the end of the data. The search begins with the difference between the stored and the computed checksum, and goes
backwards through the bytes. For each byte, the search computes the difference that a change of this byte must cause,
and compares it with that of each bit. BODYCRC lacks the highest bit of the CRC-32, so the search tries both values of
this bit. Therefore two bits can explain one checksum if the data is longer than about 11 KiB: all data is searched.
"""

from __future__ import annotations

import zlib
from functools import cache
from typing import NamedTuple

from rmqctl.format.crc import CRC_MASK

SEARCH_LIMIT = 1024 * 1024


class BitFlip(NamedTuple):
    """A flipped bit: `position` is in bytes, `bit` is 0 (lowest) to 7."""

    position: int
    bit: int


@cache
def _table() -> tuple[list[int], dict[int, int], dict[int, int]]:
    """Return three tables for CRC-32.

    The first table has a value for each byte. The second table leads from the highest 8 bits of a value to the byte.
    The third table leads from the value of the byte `1 << bit` to `bit`.
    """
    start = zlib.crc32(b"\0")
    table = [zlib.crc32(bytes([i])) ^ start for i in range(256)]
    return table, {value >> 24: i for i, value in enumerate(table)}, {table[1 << bit]: bit for bit in range(8)}


def find_bit_flips(data: bytes | memoryview, stored: int) -> list[BitFlip]:
    """Return each bit in `data` that, flipped alone, explains the CRC-32 `stored`.

    `stored` has 31 bits. The last byte comes first, and the list has at most two bits. It is empty if no single bit
    explains the checksum, or if `data` is longer than 1 MiB.
    """
    if len(data) > SEARCH_LIMIT or stored > CRC_MASK:  # no data has a checksum with the highest bit
        return []
    table, by_top, bits = _table()
    difference = zlib.crc32(data) & CRC_MASK ^ stored
    found = []
    candidates = [difference, difference | CRC_MASK + 1]
    for position in range(len(data) - 1, -1, -1):
        for i, value in enumerate(candidates):
            if value in bits:
                found.append(BitFlip(position, bits[value]))
            index = by_top[value >> 24]
            candidates[i] = ((value ^ table[index]) << 8 | index) & 0xFFFFFFFF
    return found
