"""Find the flipped bits that explain a wrong checksum."""

from __future__ import annotations

import zlib
from functools import cache
from typing import NamedTuple

from rmqctl.format.crc import CRC_MASK

SEARCH_LIMIT = 1024 * 1024


class BitFlip(NamedTuple):
    """A flipped bit, found from its checksum.

    CRC-32 is linear: a flipped bit changes the checksum by a value that depends only on the bit's distance from the end
    of the data. The search begins with the difference between the stored and the computed checksum, and goes backwards
    through the bytes. For each byte it computes the difference that a change there must cause, and compares it with
    that of each bit. BODYCRC lacks the highest bit of the CRC-32, so both values of this bit are tried. Two bits can
    therefore explain one checksum if the data is longer than about 11 KiB: all data is searched.
    """

    position: int  # bytes
    bit: int  # 0 (lowest) to 7


@cache
def _table() -> tuple[list[int], dict[int, int], dict[int, int]]:
    # CRC-32's value by byte, the byte by a value's highest 8 bits, and `bit` by the value of `1 << bit`
    start = zlib.crc32(b"\0")
    table = [zlib.crc32(bytes([i])) ^ start for i in range(256)]
    return table, {value >> 24: i for i, value in enumerate(table)}, {table[1 << bit]: bit for bit in range(8)}


def find_bit_flips(data: bytes | memoryview, stored: int) -> list[BitFlip]:
    """Return each bit in `data` that, flipped alone, explains the CRC-32 `stored`.

    `stored` has 31 bits. At most two bits explain it, the one in the later byte first. The list is empty if none does,
    or if `data` is longer than 1 MiB.
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


def find_two_bit_flips(data: bytes | memoryview, stored: int) -> list[tuple[BitFlip, BitFlip]]:
    """Return each pair of flipped bits in `data` that explains the CRC-32 `stored`.

    Memory and time grow with the bits of `data`, and the pairs that explain a wrong checksum by chance with their
    square: one is expected in 8 KiB.
    """
    table, _, _ = _table()
    values = [table[1 << bit] for bit in range(8)]
    difference = zlib.crc32(data) & CRC_MASK ^ stored
    seen: dict[int, BitFlip] = {}  # by the change of the checksum, for the bits that were passed
    found = []
    for position in range(len(data) - 1, -1, -1):
        for bit, value in enumerate(values):
            other = seen.get(difference ^ value & CRC_MASK)
            if other is not None:
                found.append((BitFlip(position, bit), other))
            seen[value & CRC_MASK] = BitFlip(position, bit)
        values = [value >> 8 ^ table[value & 0xFF] for value in values]
    return found
