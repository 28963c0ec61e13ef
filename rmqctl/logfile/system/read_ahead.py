"""Read a file of a remote store with few requests.

A request costs some 20 ms before the first byte arrives. In this time, an object store sends 2 MiB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow.fs

READ_SIZE = 256 * 1024  # bytes
READ_SIZE_IN_ORDER = 4 * 1024 * 1024  # for a read that continues the last one


class ReadAhead:
    """An open file that keeps the bytes of its last request.

    A request asks for READ_SIZE or READ_SIZE_IN_ORDER bytes if the caller needs fewer.
    """

    def __init__(self, file: pyarrow.fs.NativeFile) -> None:
        self.file = file
        self._kept = (0, b"")

    def size(self) -> int:
        """Return the length of the file in bytes."""
        size: int = self.file.size()
        return size

    def read_at(self, size: int, position: int) -> bytes:
        """Return `size` bytes at `position`; fewer only at the end of the file.

        Raises pyarrow's errors.
        """
        start, kept = self._kept
        end = position + size
        if not start <= position <= end <= start + len(kept):
            end = min(end, self.size())  # some file systems need a request for the size
        if not start <= position <= end <= start + len(kept):
            ahead = READ_SIZE_IN_ORDER if kept and start <= position <= start + len(kept) else READ_SIZE
            start, kept = self._kept = position, self.file.read_at(max(size, ahead), position)
        return kept[position - start : position - start + size]
