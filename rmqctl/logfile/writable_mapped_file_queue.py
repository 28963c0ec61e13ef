"""A queue of files to which data is appended.

It behaves like RocketMQ's MappedFileQueue and MultiPathMappedFileQueue.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from rmqctl.logfile.mapped_file_queue import FILE_NAME_DIGITS
from rmqctl.logfile.writable_mapped_file import WritableMappedFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rmqctl.logfile.mapped_file_queue import MappedFileQueue
    from rmqctl.logfile.memory.allocate import AllocateMappedFileService
    from rmqctl.logfile.system.writable_storage import WritableStorage


class WritableMappedFileQueue:
    """A queue of files in `folders`, to which data is appended.

    New files of `file_size` go to the folders in turn (round robin), except those that `is_full`. `queue` has the
    existing files. Writing continues at `end`, the offset where the used part of the queue ends; files after it are
    used before new ones are created, because brokers create files of zeros in advance. Offsets and sizes are in bytes.
    Methods raise OSError.
    """

    def __init__(
        self,
        storage: WritableStorage,
        folders: list[Path],
        file_size: int,
        queue: MappedFileQueue | None = None,
        end: int = 0,
        allocate: AllocateMappedFileService | None = None,
        is_full: Callable[[Path], bool] = lambda _: False,
    ) -> None:
        self._storage = storage
        self._folders = folders
        self._allocate = allocate
        self._is_full = is_full
        self._announced: dict[int, Path] = {}
        self.file_size = file_size
        self.files: list[WritableMappedFile] = []
        self._ahead: dict[int, WritableMappedFile] = {}
        for file in queue.files if queue is not None else []:
            position = min(max(end - file.file_from_offset, 0), file.size)
            opened = WritableMappedFile(
                storage,
                file.path,
                file.file_from_offset,
                file.size,
                position,
                mapped=allocate is not None,
                kept=allocate is None,
            )
            if file.file_from_offset < end or (not self.files and file.file_from_offset == end):
                self.files.append(opened)
            else:
                self._ahead[file.file_from_offset] = opened
        self.flushed_where = self.committed_where = end
        self.flush_error: OSError | None = None

    @property
    def max_offset(self) -> int:
        """Return the offset after the last appended byte; 0 without files."""
        last = self.last  # read only once, because another thread may add a file
        return 0 if last is None else last.file_from_offset + last.wrote_position

    @property
    def last(self) -> WritableMappedFile | None:
        """Return the last file, which may be full."""
        return self.files[-1] if self.files else None

    def last_with_room(self, start_offset: int = 0) -> WritableMappedFile:
        """Return the last file, or a new file if the last file is full.

        In a queue without files, the new one contains the offset `start_offset`.
        """
        last = self.last
        if last is not None and not last.is_full:
            return last
        base = last.end if last is not None else start_offset - start_offset % self.file_size
        file = self._ahead.pop(base, None) or self._create(base)
        self.files.append(file)
        return file

    def append(
        self,
        data: bytes | memoryview,
        start_offset: int = 0,
        on_full: Callable[[WritableMappedFile, int], None] = lambda *_: None,
    ) -> None:
        """Append `data` to the last file, and to new files when one is full.

        In a queue without files, the first new one contains the offset `start_offset`. When a file becomes full,
        `on_full(file, written)` is called, with the number of bytes of `data` that are already appended.
        """
        rest = memoryview(data)
        while rest:
            file = self.last_with_room(start_offset)
            room = file.size - file.wrote_position
            file.append(rest[:room])
            rest = rest[room:]
            if file.is_full:
                on_full(file, len(data) - len(rest))

    def flush(self, least_pages: int = 0) -> bool:
        """Flush each file with at least `least_pages` unflushed pages.

        Returns True if nothing was flushed. After an OSError, every later call raises the same error: the bytes of a
        failed sync may be lost although a later sync succeeds.
        """
        if self.flush_error is not None:
            raise self.flush_error
        before = self.flushed_where
        try:
            self.flushed_where = self._bring_on(before, lambda file: file.flush(least_pages))
        except OSError as error:
            self.flush_error = error
            raise
        return self.flushed_where == before

    def commit(self, least_pages: int = 0) -> bool:
        """Write the buffer of each file with at least `least_pages` unwritten pages.

        Returns True if nothing was written.
        """
        before = self.committed_where
        self.committed_where = self._bring_on(before, lambda file: file.commit(least_pages))
        return self.committed_where == before

    def _bring_on(self, where: int, bring: Callable[[WritableMappedFile], int]) -> int:
        """Call `bring` for each file, beginning with the file that contains `where`.

        It stops at a position before a file's end, and returns the last position as an offset in the queue.
        """
        for file in self.files[bisect_right(self.files, where, key=lambda file: file.end) :]:
            position = bring(file)
            where = file.file_from_offset + position
            if position < file.size:
                break
        return where

    def close(self) -> None:
        """Close the descriptors of all files."""
        for file in (*self.files, *self._ahead.values()):
            file.close()

    def _create(self, base: int) -> WritableMappedFile:
        path = self._announced.pop(base, None) or self._path(base)
        if self._allocate is not None:
            following = self._announced[base + self.file_size] = self._path(base + self.file_size)
            return self._allocate.take(path, following, base, self.file_size)
        descriptor = self._storage.create(path, self.file_size)
        return WritableMappedFile(self._storage, path, base, self.file_size, descriptor=descriptor, kept=True)

    def _path(self, base: int) -> Path:
        """Return the path of the file that begins at `base`.

        New files go to the folders in turn, except full ones; if all are full, to all of them, as in
        MultiPathMappedFileQueue.
        """
        folders = (
            self._folders
            if len(self._folders) == 1
            else [folder for folder in self._folders if not self._is_full(folder)]
        )
        folders = folders or self._folders
        return folders[base // self.file_size % len(folders)] / f"{base:0{FILE_NAME_DIGITS}d}"
