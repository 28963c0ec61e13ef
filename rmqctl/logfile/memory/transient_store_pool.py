"""Buffers for the current log file; a buffer is as large as the file.

Brokers use them only if transientStorePoolEnable is true.
"""

from __future__ import annotations

import threading
from collections import deque


class TransientStorePool:
    """Up to `count` buffers of `size` bytes, each allocated when it is needed."""

    def __init__(self, count: int, size: int) -> None:
        self.size = size
        self._left = count
        self._free: deque[bytearray] = deque()
        self._lock = threading.Lock()

    @property
    def available(self) -> int:
        """Return how many buffers can be borrowed."""
        return self._left + len(self._free)

    def borrow(self) -> bytearray | None:
        """Return a buffer; None if all are in use, and the caller must write to the file."""
        with self._lock:
            if self._free:
                return self._free.popleft()
            if not self._left:
                return None
            self._left -= 1
        return bytearray(self.size)

    def give_back(self, buffer: bytearray) -> None:
        """Put a borrowed buffer back into the pool."""
        with self._lock:
            self._free.append(buffer)
