"""The bytes of a commit log that a master sends."""

from __future__ import annotations

import threading
from bisect import bisect_right
from typing import TYPE_CHECKING, Protocol

from rmqctl.logfile.mapped_file import MappedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqctl.logfile.system.storage import Storage

OPEN_FILES_MAX = 8  # slaves read at different places


class LogSource(Protocol):
    """A log that several threads read at once; offsets and sizes are in bytes."""

    @property
    def file_size(self) -> int:
        """Return the size of a log file."""

    @property
    def min_offset(self) -> int:
        """Return the physical offset of the log's first byte."""

    @property
    def max_offset(self) -> int:
        """Return the physical offset after the last byte that may be sent."""

    def read(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes at `offset`, up to the end of the log file.

        None are returned if the log has no byte at `offset`. Raises OSError.
        """


class LogFiles:
    """The log in the files that `files()` returns, up to the offset `end()`.

    The files are in ascending order, and new ones may follow. They are opened a second time, because the writer of the
    log closes full files.
    """

    def __init__(
        self, storage: Storage, files: Callable[[], Sequence[MappedFile]], end: Callable[[], int], file_size: int
    ) -> None:
        self._storage = storage
        self._files = files
        self._end = end
        self.file_size = file_size
        self._lock = threading.Lock()
        self._opened: dict[int, MappedFile] = {}

    @property
    def min_offset(self) -> int:
        """Return the physical offset of the log's first byte."""
        files = self._files()
        return files[0].file_from_offset if files else 0

    @property
    def max_offset(self) -> int:
        """Return the physical offset after the last byte that may be sent."""
        return self._end()

    def read(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes at `offset`, up to the end of the log file.

        None are returned if the log has no byte at `offset`. Raises OSError.
        """
        files, end = self._files(), self._end()
        at = bisect_right(files, offset, key=lambda file: file.file_from_offset) - 1
        if at < 0 or offset >= min(files[at].end, end):
            return b""
        found = files[at]
        with self._lock:
            file = self._opened.pop(found.file_from_offset, None)
            if file is None:
                self._close_oldest()
                file = MappedFile(self._storage, found.path, found.file_from_offset, found.size, kept=False)
            self._opened[found.file_from_offset] = file
            return file.read_exact(offset - found.file_from_offset, min(size, found.end - offset, end - offset))

    def close(self) -> None:
        """Close all descriptors."""
        with self._lock:
            for file in self._opened.values():
                file.close()
            self._opened.clear()

    def _close_oldest(self) -> None:
        if len(self._opened) == OPEN_FILES_MAX:
            oldest = next(iter(self._opened))
            self._opened.pop(oldest).close()
