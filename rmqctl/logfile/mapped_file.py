"""One file of a queue of files; its name is the offset of its first byte.

RocketMQ's MappedFile maps the file into memory; this one does not (`system/storage.py` gives the reason).
"""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.logfile.system.small_files import SMALL_FILE
from rmqctl.logfile.system.zeros import BLOCK_SIZE, is_zeros, used_length

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from rmqctl.logfile.system.storage import Storage


class MappedFile:
    """A file of `size` bytes whose first byte has the offset `file_from_offset`.

    The first read opens it. `size_on_disk` is its length on disk; bytes after `size` do not belong to the queue.
    """

    __slots__ = ("_descriptor", "_kept", "_name", "_path", "_storage", "file_from_offset", "size", "size_on_disk")

    def __init__(
        self, storage: Storage, path: Path | str, file_from_offset: int, size: int, *, kept: bool = True
    ) -> None:
        self._storage = storage
        self._kept = kept
        self._descriptor: int | None = None
        self._name: str | None = None
        self._path = str(path)  # a store may have 200,000 queues, and a Path needs three times the memory
        self.file_from_offset = file_from_offset
        self.size = size
        self.size_on_disk = size

    @property
    def path(self) -> Path:
        """Return the path of the file."""
        return Path(self._path)

    @property
    def name(self) -> str:
        """Return the file's path as findings show it."""
        if self._name is None:
            self._name = self._storage.display(self.path)
        return self._name

    @property
    def end(self) -> int:
        """Return the offset after the file's last byte."""
        return self.file_from_offset + self.size

    @property
    def last_modified_timestamp(self) -> int:
        """Return the time of the last write to the file, in ms since 1970.

        Raises OSError.
        """
        return self._storage.entry(self.path).mtime

    def __enter__(self) -> MappedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def apart(self) -> MappedFile:
        """Return a second MappedFile with its own descriptor, for another thread.

        That thread must close it.
        """
        apart = MappedFile(self._storage, self._path, self.file_from_offset, self.size, kept=False)
        with suppress(OSError):  # a later read of the file raises the error
            apart._descriptor = self._storage.duplicate(self._open())
        return apart

    def with_excess(self) -> MappedFile:
        """Return a MappedFile, with its own descriptor, of the whole file on disk."""
        return MappedFile(self._storage, self._path, self.file_from_offset, self.size_on_disk, kept=False)

    def close(self) -> None:
        """Close the descriptor if it is open; the next read opens the file again."""
        if self._descriptor is not None:
            self._storage.close(self._descriptor)
            self._descriptor = None

    def read(self, position: int, size: int) -> bytes:
        """Return `size` bytes at `position` of the file; fewer at the file's end.

        Raises OSError.
        """
        content = self._content_of(position, position + size)
        if content is not None:
            return content[position : position + size].ljust(size, b"\0")
        return self._storage.read(self._open(), position, size)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes at `position`, and return their number.

        They are fewer at the file's end. Raises OSError.
        """
        if self._content_of(position, position + len(buffer)) is None:
            return self._storage.read_into(self._open(), position, buffer)
        data = self.read(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read_exact(self, position: int, size: int) -> bytes:
        """Return exactly `size` bytes at `position`.

        Raises OSError if the file has fewer bytes, for example after a truncation.
        """
        data = self.read(position, size)
        if len(data) < size:
            raise OSError(errno.ENODATA, "the file became shorter while it was read", str(self.path))
        return data

    def blocks(self, position: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield position and bytes of each block of 1 MiB, from `position` on.

        The holes of a sparse file are left out. Raises OSError.
        """
        while position < self.size:
            position = self.next_data(position)
            if position == self.size:
                return
            block = self.read_exact(position, min(BLOCK_SIZE, self.size - position))
            yield position, block
            position += len(block)

    def next_data(self, position: int) -> int:
        """Return the first position >= `position` that is not in a hole of the file.

        If no data follows, this is the file's size. Raises OSError.
        """
        content = self.content
        if content is not None:
            return position if position < len(content) else self.size
        found = self._storage.next_data(self._open(), position)
        return self.size if found is None else min(found, self.size)

    @property
    def content(self) -> bytes | None:
        """Return the content of a small file, without the zeros at its end, or None.

        None if the storage does not cache it. Raises OSError.
        """
        small_files = self._storage.small_files
        return small_files.content(self) if small_files is not None and self._kept else None

    @property
    def known_data_end(self) -> int:
        """Return the length of `content`, or `size` if `content` is None.

        From there on, the file has only zeros. Raises OSError.
        """
        content = self.content
        return self.size if content is None else len(content)

    def first_nonzero(self, position: int) -> int | None:
        """Return the position of the first non-zero byte at or after `position`, or None.

        Raises OSError.
        """
        for at, block in self.blocks(position):
            if not is_zeros(block):
                return at + len(block) - len(block.lstrip(b"\0"))
        return None

    def data_end(self, position: int) -> int:
        """Return the position after the last non-zero byte, at least `position`.

        Raises OSError.
        """
        end = position
        for at, block in self.blocks(position):
            end = at + used if (used := used_length(block)) else end
        return end

    def read_small(self) -> bytes | None:
        """Read the content of the file, without the zeros at its end.

        None if it has more than SMALL_FILE bytes, or the read is incomplete. Raises OSError.
        """
        descriptor = self._open_file()
        try:
            size = min(self.size, SMALL_FILE)
            if self.size > size and self._storage.next_data(descriptor, size) is not None:
                return None
            data = self._storage.read(descriptor, 0, size)
        finally:
            self._storage.close(descriptor)
        return data[: used_length(data)] if len(data) == size else None

    def _content_of(self, start: int, end: int) -> bytes | None:
        return self.content if 0 <= start <= end <= self.size else None

    def _open(self) -> int:
        if self._descriptor is None:
            self._descriptor = self._open_file()
            if self._kept:
                self._storage.keep_open(self)
        return self._descriptor

    def _open_file(self) -> int:
        return self._storage.open(self._path)
