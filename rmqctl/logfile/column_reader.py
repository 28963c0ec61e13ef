"""Stretches of good messages of one commit log file, read into one buffer and given as columns."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rmqctl.logfile.mapped_file import MappedFile

BUFFER_SIZE = 4 * 1024 * 1024
ROWS_MAX = 65536


@cache
def available() -> bool:
    """Whether the extra `fast` is installed: without it files are read record by record."""
    return all(find_spec(name) is not None for name in ("numpy", "numba", "zlib_ng"))


class Columns(NamedTuple):
    """Good messages one behind the other from `physical_offset` on, `size` bytes.

    `rows` is a numpy array of `rmqctl.format.scan.RECORD_COLUMNS`, its positions are relative to `buffer` (numpy, uint8). Both are
    overwritten by the next read: copy what you keep.
    """

    physical_offset: int
    size: int
    rows: Any
    buffer: Any

    @property
    def end(self) -> int:
        """Physical offset of the byte behind the last message."""
        return self.physical_offset + self.size


class ColumnReader:
    """Reads `file` through one buffer of 4 MiB; memory stays flat."""

    def __init__(self, file: MappedFile) -> None:
        import numpy as np

        from rmqctl.format import scan

        self._scan = scan
        self._file = file
        self._buffer = np.empty(BUFFER_SIZE, np.uint8)
        self._rows = np.empty(ROWS_MAX, scan.RECORD_COLUMNS)
        self._start = 0
        self._filled = 0

    def at(self, position: int) -> Columns | None:
        """The good messages from `position` on that the buffer can hold; None: there is none, or it is too long, or cannot be read."""
        for _ in range(2):
            if not self._start <= position < self._start + self._filled:
                self._fill(position)
            buffer = self._buffer[position - self._start : self._filled]
            base = self._file.file_from_offset + position
            count = self._scan.walk(buffer, base, self._file.size - position, self._rows)
            if count:
                last = self._rows[count - 1]
                return Columns(base, int(last["position"]) + int(last["size"]), self._rows[:count], buffer)
            if position == self._start:
                return None
            self._filled = 0  # it may only be cut by the buffer's end: once more from its own start
        return None

    def _fill(self, position: int) -> None:
        self._start = position
        try:
            self._filled = self._file.read_into(position, self._buffer.data)
        except OSError:  # the one-record reader finds out what can be read
            self._filled = 0
