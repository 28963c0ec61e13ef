"""Bytes that are kept outside the store for a while, in a file without a name: memory stays flat however many they are."""

from __future__ import annotations

import mmap
from tempfile import TemporaryFile


class Spool:
    """Takes bytes, then shows them. Methods raise OSError, such as where the disk of temporary files is full."""

    def __init__(self) -> None:
        self._file = TemporaryFile()  # noqa: SIM115 -- `view` and `close` close it
        self._size = 0

    def put(self, data: bytes | memoryview) -> slice:
        """Append bytes; return where they lie in the view."""
        begin = self._size
        self._size += self._file.write(data)
        return slice(begin, self._size)

    def view(self) -> memoryview:
        """Return all bytes, which stay as long as the view does; nothing is taken any more."""
        self._file.flush()
        found = mmap.mmap(self._file.fileno(), self._size, access=mmap.ACCESS_READ) if self._size else b""
        self.close()
        return memoryview(found)

    def close(self) -> None:
        """Give the file back."""
        self._file.close()
