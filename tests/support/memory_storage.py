"""Stand-ins for the operating system: files in memory that count what is read, and files that fail."""

from __future__ import annotations

import errno
from pathlib import Path

from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.logfile.mapped_file_queue import MappedFileQueue
from rmqctl.logfile.system.storage import Entry, Kind, Storage

FOLDER = Path("/memory/commitlog")


class CountingStorage(Storage):
    """Real files; `largest_read` is the most that was asked for at once, in bytes."""

    largest_read = 0

    def read(self, descriptor: int, position: int, size: int) -> bytes:
        self.largest_read = max(self.largest_read, size)
        return super().read(descriptor, position, size)


class MemoryStorage(Storage):
    """The files of one folder in memory, by name; counts what is read, opened and closed."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(FOLDER.parent)
        self.files = files
        self.largest_read = 0
        self.opened: list[str] = []
        self.closed: list[str] = []

    def entry(self, path: Path) -> Entry:
        if path == FOLDER:
            return Entry(path.name, path, Kind.DIRECTORY)
        data = self.files[path.name]
        return Entry(path.name, path, Kind.FILE, len(data), len(data))

    def listing(self, folder: Path) -> list[Entry]:
        return [self.entry(folder / name) for name in sorted(self.files)]

    def open(self, path: Path | str) -> int:
        self.opened.append(Path(path).name)
        return len(self.opened) - 1

    def close(self, descriptor: int) -> None:
        self.closed.append(self.opened[descriptor])

    def read(self, descriptor: int, position: int, size: int) -> bytes:
        self.largest_read = max(self.largest_read, size)
        return self.files[self.opened[descriptor]][position : position + size]

    def next_data(self, descriptor: int, position: int) -> int | None:
        return position


class FailingStorage(Storage):
    """A disk with bad sectors: reading the byte at `bad_position` of the file `bad_name` is an I/O error."""

    def __init__(self, root: Path, bad_name: str, bad_position: int = 0) -> None:
        super().__init__(root)
        self._bad_name = bad_name
        self._bad_position = bad_position
        self._bad_descriptors: set[int] = set()

    def open(self, path: Path | str) -> int:
        descriptor = super().open(path)
        if Path(path).name == self._bad_name:
            self._bad_descriptors.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        self._bad_descriptors.discard(descriptor)
        super().close(descriptor)

    def read(self, descriptor: int, position: int, size: int) -> bytes:
        if descriptor in self._bad_descriptors and position <= self._bad_position < position + size:
            raise OSError(errno.EIO, "Input/output error")
        return super().read(descriptor, position, size)


def memory_file(data: bytes, file_from_offset: int = 0) -> MappedFile:
    """A file in memory."""
    name = f"{file_from_offset:020d}"
    return MappedFile(MemoryStorage({name: data}), FOLDER / name, file_from_offset, len(data))


def memory_queue(files: dict[int, bytes], configured: int | None = None) -> MappedFileQueue:
    """A queue of files in memory, by offset."""
    return MappedFileQueue(MemoryStorage({f"{base:020d}": data for base, data in files.items()}), [FOLDER], configured)
