"""CRC-32 as arithmetic: find the block that a checksum asks for.

CRC-32 is linear. Without its start value and its last inversion, the checksum of data is the XOR of the checksums of
its parts, each moved by the bytes behind it. So the checksum of a record's body says which checksum a missing block
must have, and a look-up finds the blocks that have it. Moving by n bytes multiplies by x^8n in GF(2)[x] modulo the
CRC's polynomial; x^(2^32 - 1) is 1, so it can be moved back as well.
"""

from __future__ import annotations

import zlib
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.format.crc import CRC_MASK

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator

    import numpy.typing as npt

_POLYNOMIAL = 0xEDB88320  # reflected: bit 31 is x^0
_ONE = 1 << 31
_ALL = 0xFFFFFFFF
_ORDER = 2**32 - 1


def _product(one: int, other: int) -> int:
    found = 0
    bit = _ONE
    while bit:
        if one & bit:
            found ^= other
        other = other >> 1 ^ _POLYNOMIAL if other & 1 else other >> 1
        bit >>= 1
    return found


@lru_cache(4096)
def _power(exponent: int) -> int:
    """Return x^exponent."""
    found, square = _ONE, _ONE >> 1
    while exponent:
        if exponent & 1:
            found = _product(found, square)
        square = _product(square, square)
        exponent >>= 1
    return found


def moved(value: int, count: int) -> int:
    """Return the checksum of data followed by `count` zero bytes.

    If `count` is negative, so many fewer.
    """
    return _product(_power(8 * count % _ORDER), value)


def plain_crc(data: bytes | memoryview, before: int = 0) -> int:
    """Return the CRC-32 without start value and inversion, continued from `before`."""
    return zlib.crc32(data, before ^ _ALL) ^ _ALL


def plain_targets(stored: int, size: int) -> tuple[int, int]:
    """Return the plain checksums that `size` bytes with a BODYCRC may have.

    They are two, as BODYCRC lacks the highest bit.
    """
    of_start = moved(_ALL, size) ^ _ALL
    return (stored & CRC_MASK) ^ of_start, (stored & CRC_MASK | _ONE) ^ of_start


def _moved_all(values: npt.NDArray[np.uint32], count: int) -> npt.NDArray[np.uint32]:
    """Return `moved` of each value: one table look-up for each of its bytes."""
    factor = _power(8 * count % _ORDER)
    found = np.zeros_like(values)
    for byte in range(4):
        table = np.zeros(256, np.uint32)
        for bit in range(8):
            table[1 << bit : 2 << bit] = table[: 1 << bit] ^ np.uint32(_product(factor, 1 << (8 * byte + bit)))
        found ^= table[(values >> np.uint32(8 * byte)) & np.uint32(0xFF)]
    return found


class BlockTable:
    """The plain checksums of blocks of `size` bytes, for look-ups.

    `blocks` has the checksum of each, times 2^32, plus its number. Number -1 is a block of zeros, which is always
    there: file systems store none. It takes 8 bytes a block.
    """

    def __init__(self, blocks: array[int], size: int) -> None:
        self._size = size
        self._blocks = np.frombuffer(blocks, np.uint64) if blocks else np.zeros(0, np.uint64)
        self._blocks.sort()

    def numbers(self) -> Iterator[int]:
        """Yield the numbers of all blocks, in order."""
        yield from map(int, np.sort(self._blocks.astype(np.uint32)))

    def find(self, checksum: int) -> Iterator[int]:
        """Yield the numbers of the blocks with a plain checksum."""
        if checksum == 0:
            yield -1
        first, end = np.searchsorted(self._blocks, np.array([checksum << 32, (checksum << 32) + _ALL], np.uint64))
        yield from map(int, self._blocks[first:end].astype(np.uint32))

    def find_pairs(self, checksum: int) -> Iterator[tuple[int, int]]:
        """Yield the numbers of each two blocks that have a checksum together."""
        firsts, is_any, shift = self._for_pairs
        wanted = firsts ^ np.uint32(checksum)
        for hit in map(int, np.flatnonzero(is_any[wanted >> shift])):
            first = int(self._blocks[hit]) & _ALL if hit < len(self._blocks) else -1
            for second in self.find(int(wanted[hit])):
                yield first, second

    @cached_property
    def _for_pairs(self) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_], int]:
        """The checksums of blocks with another one behind them.

        And which high bits any block has, with their shift: they leave at most one in 128 to be looked up.
        """
        own = np.append((self._blocks >> np.uint64(32)).astype(np.uint32), np.uint32(0))
        shift = max(25 - len(own).bit_length(), 0)
        is_any = np.zeros(1 << 32 - shift, np.bool_)
        is_any[own >> shift] = True
        return _moved_all(own, self._size), is_any, shift
