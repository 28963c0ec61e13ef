"""What the machine allows: reading a file that is in the page cache, and its CRC-32, by one thread in
blocks of 1 MiB.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from zlib_ng import zlib_ng

BLOCK_SIZE = 1024 * 1024


def page_cache_rate(path: Path, size: int, runs: int) -> float:
    """Bytes a second of `readinto` over the first `size` bytes of a file."""
    return statistics.median(_rate(path, size, with_crc=False) for _ in range(runs))


def crc32_rate(path: Path, size: int, runs: int) -> float:
    """Bytes a second of reading as above, and the CRC-32 of each block."""
    return statistics.median(_rate(path, size, with_crc=True) for _ in range(runs))


def _rate(path: Path, size: int, *, with_crc: bool) -> float:
    block = bytearray(BLOCK_SIZE)
    done = 0
    started = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while done < size and (count := file.readinto(block)):
            done += count
            if with_crc:
                zlib_ng.crc32(block)
    return done / (time.perf_counter() - started)
