"""The files in which records are looked for.

Links are not followed, and nothing is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqctl.errors import Unreadable
from rmqctl.logfile.system.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@dataclass
class Source:
    """One file. `unreadable` counts the bytes that the disk refused."""

    path: Path
    size: int  # bytes
    allocated: int  # bytes on the disk
    storage: Storage
    unreadable: int = 0
    block_size: int = 0  # 0: the source is not shuffled
    _descriptors: list[int] = field(default_factory=list)

    @property
    def descriptor(self) -> int:
        """The open file. Raises OSError."""
        if not self._descriptors:
            self._descriptors.append(self.storage.open(self.path))
            self.storage.keep_open(self)
        return self._descriptors[0]

    def close(self) -> None:
        """Close the file; the next read opens it again."""
        while self._descriptors:
            self.storage.close(self._descriptors.pop())

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position` on; none where they cannot be read."""
        try:
            return self.storage.read(self.descriptor, position, size) if position >= 0 else b""
        except OSError:
            return b""

    def fill(self, position: int, buffer: memoryview) -> int:
        """Read into `buffer`, and return the number of bytes.

        It is 0 where they cannot be read.
        """
        try:
            return self.storage.read_into(self.descriptor, position, buffer)
        except OSError:
            return 0

    def extents(self) -> Iterator[tuple[int, int]]:
        """Yield the parts [begin, end) that are no holes of a sparse file.

        Raises OSError.
        """
        begin = self.storage.next_data(self.descriptor, 0)
        while begin is not None and begin < self.size:
            end = min(self.storage.next_hole(self.descriptor, begin), self.size)
            if end <= begin:  # the file has become shorter
                return
            yield begin, end
            begin = self.storage.next_data(self.descriptor, end)


def sources_of(paths: Sequence[Path]) -> list[Source]:
    """Return the files at and below `paths`, each once.

    Raises Unreadable for a path that is missing, a link or a device, and for a folder that cannot be listed.
    """
    found: dict[tuple[int, int], Source] = {}
    for top in paths:
        storage = Storage(top)
        waiting = [top]
        while waiting:
            path = waiting.pop()
            try:
                details = storage.details(path)
                if details["kind"] == "folder":
                    waiting += [path / name for name in reversed(storage.names(path))]
            except OSError as error:
                raise Unreadable(f"cannot be read: {error.strerror}", path=str(path)) from error
            if details["kind"] == "file":
                source = Source(path, details["size"], storage.entry(path).allocated, storage)
                found.setdefault((details["device"], details["inode"]), source)
            elif path == top and details["kind"] != "folder":
                hint = "links are not followed; copy a device into a file first (dd conv=noerror,sync)"
                raise Unreadable("neither a file nor a folder", path=str(path), hint=hint)
    return list(found.values())
