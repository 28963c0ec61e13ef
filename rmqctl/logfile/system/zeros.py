"""Find the zeros of a block quickly.

Brokers create files with only zeros. A comparison of bytes is ten times as fast as `bytes.strip`, which works byte by
byte.
"""

from __future__ import annotations

BLOCK_SIZE = 1024 * 1024
_ZEROS = bytes(BLOCK_SIZE)
_STRIPPED_MAX = 64  # bytes


def is_zeros(block: bytes) -> bool:
    """Return whether a block of at most 1 MiB has only zeros."""
    return block == _ZEROS[: len(block)]


def used_length(block: bytes) -> int:
    """Return the length of a block (at most 1 MiB) without the zeros at its end."""
    if is_zeros(block[_STRIPPED_MAX:]):  # most queue files have only a few units
        return len(block[:_STRIPPED_MAX].rstrip(b"\0"))
    last = block[-_STRIPPED_MAX:]
    if used := len(last.rstrip(b"\0")):  # most blocks of a log are full
        return len(block) - len(last) + used
    low, high = 0, len(block)
    while high - low > _STRIPPED_MAX:
        middle = (low + high) // 2
        if is_zeros(block[middle:high]):
            high = middle
        else:
            low = middle
    return low + len(block[low:high].rstrip(b"\0"))
