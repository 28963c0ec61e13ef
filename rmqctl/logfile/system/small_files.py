"""The contents of small files, which are read once.

A store may have 200,000 queues whose files have only a few units each. A repair examines each of these queues several
times. It takes longer to open a small file than to process the bytes of the file.
"""

from __future__ import annotations

from typing import Protocol

SMALL_FILE = 8192  # bytes before the zeros at the end of a file
ROOM = 64 * 1024 * 1024  # bytes for all contents
_OVERHEAD = 200  # bytes of memory for a content, in addition to its own bytes
_ZEROS = bytes(SMALL_FILE)
_STEPS = (4096, 1024, 256, 64)


class SmallFile(Protocol):
    """A file object that reads the content of a small file from the disk."""

    def read_small(self) -> bytes | None:
        """Return the bytes of the file before the zeros at its end.

        The result is None if the file has more than SMALL_FILE bytes before these zeros. Raises OSError.
        """


class SmallFiles:
    """The contents of small files, for a store that does not change.

    If the contents fill ROOM, further contents are not kept.
    """

    def __init__(self) -> None:
        self._contents: dict[SmallFile, bytes | None] = {}
        self._room = ROOM

    def content(self, file: SmallFile) -> bytes | None:
        """Return the bytes of a file before the zeros at its end.

        The result is None if the file is too large, or if no room is left. Raises OSError.
        """
        try:
            return self._contents[file]
        except KeyError:
            content = file.read_small() if self._room > 0 else None
        if self._room > 0:
            self._contents[file] = content
            self._room -= len(content or b"") + _OVERHEAD
        return content


def without_zeros(data: bytes) -> bytes:
    """Return at most SMALL_FILE bytes without the zeros at their end.

    Most of the zeros are found by comparing blocks, which is faster than `rstrip`.
    """
    for step in _STEPS:
        if data[step:] == _ZEROS[: max(len(data) - step, 0)]:
            data = data[:step]
    return data.rstrip(b"\0")
