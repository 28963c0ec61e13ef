"""A cache of the contents of small files; each file is read once.

A store may have 200,000 consume queues with only a few units each. A repair examines each several times, and opening a
small file takes longer than processing its bytes.
"""

from __future__ import annotations

from typing import Protocol

SMALL_FILE = 8192  # largest content in bytes, without the zeros at the end of the file
ROOM = 64 * 1024 * 1024  # bytes of memory for all contents
_OVERHEAD = 200  # bytes of memory that each content needs in addition


class SmallFile(Protocol):
    """A file object that reads the content of a small file from the disk."""

    def read_small(self) -> bytes | None:
        """Return the content of the file, without the zeros at its end.

        None if it has more than SMALL_FILE bytes. Raises OSError.
        """


class SmallFiles:
    """A cache of the contents of small files, for a store that does not change.

    It is full when they need ROOM bytes of memory.
    """

    def __init__(self) -> None:
        self._contents: dict[SmallFile, bytes | None] = {}
        self._room = ROOM

    @property
    def has_room(self) -> bool:
        """Return whether the cache is not full."""
        return self._room > 0

    def content(self, file: SmallFile) -> bytes | None:
        """Return the content of a file, without the zeros at its end.

        None if it has more than SMALL_FILE bytes, or the cache is full. Raises OSError.
        """
        try:
            return self._contents[file]
        except KeyError:
            content = file.read_small() if self._room > 0 else None
        self.keep(file, content)
        return content

    def keep(self, file: SmallFile, content: bytes | None) -> None:
        """Put the content of a file into the cache, if it is not full.

        `content` is without the zeros at its end, or None if it has more than SMALL_FILE bytes.
        """
        if self._room > 0:
            self._contents[file] = content
            self._room -= len(content or b"") + _OVERHEAD
