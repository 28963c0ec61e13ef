"""The files of a store as they will be after a repair plan is executed.

The plan's changes are in memory, not on disk, and readers get the changed bytes.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.logfile.system.storage import Entry, Kind, Storage

if TYPE_CHECKING:
    from collections.abc import Sequence


class Patch(NamedTuple):
    """New content for the bytes [begin, end) of a file: `data`, or zeros."""

    begin: int
    end: int
    data: bytes | memoryview | None = None


class PlannedFile(NamedTuple):
    """A file as it will be after the plan is executed, with `size` bytes.

    It has the present content, unless it is new, with all `patches` applied in order.
    """

    size: int
    patches: Sequence[Patch] = ()
    is_new: bool = False


class PlannedStorage(Storage):
    """The storage `base` with planned changes.

    Files and folders in `deleted` do not exist. Files in `planned` exist with their new content; their folders need not
    exist in `base`.
    """

    def __init__(self, base: Storage, planned: dict[Path, PlannedFile], deleted: frozenset[Path]) -> None:
        super().__init__(base.root)
        self._base = base
        self._planned = planned
        self._deleted = deleted
        self._names: defaultdict[Path, set[str]] = defaultdict(set)  # by folder: entries on paths to planned files
        for path in planned:
            for inner, folder in zip((path, *path.parents), path.parents, strict=False):
                self._names[folder].add(inner.name)
        self._of_descriptor: dict[int, PlannedFile] = {}
        self._numbers = count(-2, -1)  # descriptors of files that do not exist yet

    @property
    def of_disk(self) -> Storage:
        """Return access to the files before the plan."""
        return self._base.of_disk

    def entry(self, path: Path) -> Entry:
        """Return the planned entry at `path`.

        Raises OSError in the same cases as `Storage.entry`.
        """
        planned, is_above = self._planned.get(path), path in self._names
        if planned is None and not is_above and not self._deleted.isdisjoint((path, *path.parents)):
            return Entry(path.name, path, Kind.MISSING)
        found = self._base.entry(path)
        if planned is not None:
            return found._replace(kind=Kind.FILE, size=planned.size)
        return found._replace(kind=Kind.DIRECTORY) if is_above and found.kind is Kind.MISSING else found

    def listing(self, folder: Path) -> list[Entry]:
        """Return the planned entries of a folder, sorted by name. Raises OSError."""
        is_deleted = not self._deleted.isdisjoint((folder, *folder.parents))
        there = [] if is_deleted else self._base.listing(folder)
        names = {entry.name for entry in there} | self._names.get(folder, set())
        entries = (self.entry(folder / name) for name in sorted(names))
        return [entry for entry in entries if entry.kind is not Kind.MISSING]

    def open(self, path: Path | str) -> int:
        """Open a file for reading. Raises OSError."""
        planned = self._planned.get(Path(path))
        descriptor = next(self._numbers) if planned is not None and planned.is_new else self._base.open(path)
        if planned is not None:
            self._of_descriptor[descriptor] = planned
        return descriptor

    def duplicate(self, descriptor: int) -> int:
        """Return another descriptor of the same open file. Raises OSError."""
        found = next(self._numbers) if descriptor < 0 else self._base.duplicate(descriptor)
        if descriptor in self._of_descriptor:
            self._of_descriptor[found] = self._of_descriptor[descriptor]
        return found

    def close(self, descriptor: int) -> None:
        """Close the descriptor."""
        self._of_descriptor.pop(descriptor, None)
        if descriptor >= 0:
            self._base.close(descriptor)

    def read(self, descriptor: int, position: int, size: int) -> bytes:
        """Read bytes of a planned file, as `Storage.read` does."""
        planned = self._of_descriptor.get(descriptor)
        if planned is None:
            return self._base.read(descriptor, position, size)
        end = min(position + size, planned.size)
        data = bytearray(max(end - position, 0))
        found = self._base.read(descriptor, position, len(data)) if data and not planned.is_new else b""
        data[: len(found)] = found
        for patch in planned.patches:
            begin, behind = max(patch.begin, position), min(patch.end, end)
            if begin < behind:
                changed = slice(begin - patch.begin, behind - patch.begin)
                new = bytes(behind - begin) if patch.data is None else patch.data[changed]
                data[begin - position : behind - position] = new
        return bytes(data)

    def read_into(self, descriptor: int, position: int, buffer: memoryview) -> int:
        """Read bytes of a planned file, as `Storage.read_into` does."""
        if descriptor not in self._of_descriptor:
            return self._base.read_into(descriptor, position, buffer)
        data = self.read(descriptor, position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def next_data(self, descriptor: int, position: int) -> int | None:
        """Return the next byte position outside holes, or None if only a hole follows."""
        planned = self._of_descriptor.get(descriptor)
        if planned is None:
            return self._base.next_data(descriptor, position)
        return position if position < planned.size else None
