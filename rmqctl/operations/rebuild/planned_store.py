"""A store as it will be after a repair, readable before the repair.

The plan's changes are in memory, not on disk, and readers get the changed bytes.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.format import checkpoint
from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import CQ_UNIT, PRE_BLANK_SIZE
from rmqctl.logfile.memory.mapped_memory import Spool
from rmqctl.logfile.system.storage import Entry, Kind, Storage
from rmqctl.operations.placeholder.blocks import PlaceholderBlock
from rmqctl.operations.plan import AddLogFile, RebuildIndex, RebuildQueue, SetCheckpoint, Step
from rmqctl.store.config import store_path
from rmqctl.store.journal.changes import Delete, Resize, Write, Zero
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.read.store_file_sizes import geometry_of_store

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from rmqctl.format.columns import Rows
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.journal.changes import BlockWrite
    from rmqctl.store.read.consume_queue import UnitQueue


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


class BuiltUnits:
    """Keeps the units of rebuilt queues, except batch consume queues.

    Methods raise OSError.
    """

    def __init__(self) -> None:
        self._spool: Spool | None = None
        self._queues: dict[QueueKey, list[tuple[int, slice]]] = {}  # queue offset, and where its units are

    @property
    def keys(self) -> list[QueueKey]:
        """The queues whose units are kept."""
        return list(self._queues)

    def put(self, key: QueueKey, queue_offset: int, units: Rows) -> None:
        """Keep the next units of a queue, of which the first has this queue offset."""
        self._spool = self._spool or Spool()
        self._queues.setdefault(key, []).append((queue_offset, self._spool.put(units.tobytes())))

    def leave_out(self, keys: Collection[QueueKey]) -> None:
        """Forget the units of these queues."""
        self._queues = {key: kept for key, kept in self._queues.items() if key not in keys}

    def files(self, folder: Path, file_size: int) -> dict[Path, PlannedFile]:
        """Return the files of the queues below `folder`, each of `file_size` bytes.

        No unit can be added afterwards.
        """
        if self._spool is None:
            return {}
        units = self._spool.gathered({key: [portion for _, portion in kept] for key, kept in self._queues.items()})
        return {
            folder / topic / str(queue_id) / f"{begin:020d}": file
            for (topic, queue_id), data in units.items()
            for begin, file in _files(self._queues[topic, queue_id][0][0] * CQ_UNIT.size, data, file_size)
        }


def _files(first: int, data: memoryview, file_size: int) -> Iterator[tuple[int, PlannedFile]]:
    """Yield the planned files of a queue, each with its first byte offset.

    The queue's first unit is at byte offset `first`; pre-blanks fill the places before it in its file.
    """
    end = first + len(data)
    for begin in range(first // file_size * file_size, end, file_size):
        skipped = max(begin - first, 0)
        blank = np.zeros(max(first - begin, 0) // CQ_UNIT.size, UNITS)
        blank["size"] = PRE_BLANK_SIZE
        at = first + skipped - begin
        patches = (Patch(0, at, blank.tobytes()), Patch(at, min(end - begin, file_size), data[skipped:]))
        yield begin, PlannedFile(file_size, patches, is_new=True)


class _PlannedStore(ReadOnlyStore):
    """The store `base`, with the files in `storage`.

    Only the queues of the topics in `touched` differ. All others are read through `base`, which has listed them, and
    may keep their files in memory.
    """

    def __init__(self, base: ReadOnlyStore, storage: PlannedStorage, touched: Collection[str]) -> None:
        super().__init__(base.path.root, base.conf, storage=storage)
        if storage.entry(self.path.part(store_path.CONSUMEQUEUE)).kind is not Kind.MISSING:
            self.path.queue_database = base.path.queue_database
        self._base = base
        self._touched = touched
        self.conflicting_queues += [key for key in base.conflicting_queues if key[0] not in touched]

    def topic_queues(self, topic: str) -> dict[QueueKey, UnitQueue]:
        return super().topic_queues(topic) if topic in self._touched else self._base.topic_queues(topic)

    def is_unread(self, topic: str, queue_id: int | None = None) -> bool:
        if topic in self._touched:
            return super().is_unread(topic, queue_id)
        return self._base.is_unread(topic, queue_id)


def planned_store(store: ReadOnlyStore, steps: Iterable[Step], built: BuiltUnits | None = None) -> ReadOnlyStore:
    """Return the store as it will be after the `steps` of a repair.

    It has the rebuilt queues in `built`; without `built`, it lacks the queues to rebuild. Raises OSError.
    """
    files: dict[Path, PlannedFile] = {}
    deleted: set[Path] = set()
    root = store.path.root
    there = [part for part in store_path.QUEUE_PARTS if store.storage.entry(root / part).kind is not Kind.MISSING]
    for step in steps:
        _apply(store, step, there, files, deleted)
    if built is not None:
        files |= built.files(store.path.part(store_path.CONSUMEQUEUE), geometry_of_store(store).consumequeue_file_size)
    storage = PlannedStorage(store.storage, files, frozenset(deleted))
    names = (path.parts[len(root.parts) :] for path in (*files, *deleted))
    touched = {of_path[1] for of_path in names if len(of_path) > 1 and of_path[0] in store_path.QUEUE_PARTS}
    return _PlannedStore(store, storage, touched)


def _apply(
    store: ReadOnlyStore, step: Step, parts: Sequence[str], files: dict[Path, PlannedFile], deleted: set[Path]
) -> None:
    # `parts` are the folders of queues that the store has
    action, root = step.action, store.path.root
    if isinstance(action, RebuildQueue):
        deleted |= {Path(f"{root}/{part}/{action.topic}/{action.queue_id}") for part in parts}
    elif isinstance(action, RebuildIndex):
        deleted.add(root / store_path.INDEX)
    elif isinstance(action, SetCheckpoint):
        raw = checkpoint.CHECKPOINT.struct.pack(*action.values).ljust(checkpoint.CHECKPOINT_FILE_SIZE, b"\0")
        files[root / store_path.CHECKPOINT] = PlannedFile(len(raw), (Patch(0, len(raw), raw),), is_new=True)
    elif isinstance(action, AddLogFile):
        files[root / action.path] = PlannedFile(action.size, tuple(map(_patch, action.blocks)), is_new=True)
    elif isinstance(action, Delete):
        deleted.add(root / action.path)
    elif isinstance(action, Resize | Write | Zero | PlaceholderBlock):
        path = root / action.path
        found = files.get(path) or PlannedFile(store.storage.entry(path).size)
        if isinstance(action, Resize):
            files[path] = found._replace(size=action.size)
        else:
            files[path] = found._replace(patches=(*found.patches, _patch(action)))


def _patch(action: Write | Zero | BlockWrite) -> Patch:
    if isinstance(action, Zero):
        return Patch(action.begin, action.end)
    return Patch(action.offset, action.offset + action.size, action.data)
