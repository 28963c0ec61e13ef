"""A store as it will be after a repair, readable before the repair.

The plan's changes are in memory, not on disk, and readers get the changed bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.format import checkpoint
from rmqctl.logfile.system.storage import Kind
from rmqctl.operations.placeholder.blocks import PlaceholderBlock
from rmqctl.operations.plan import AddLogFile, RebuildIndex, RebuildQueue, SetCheckpoint, Step
from rmqctl.operations.rebuild.planned.planned_storage import Patch, PlannedFile, PlannedStorage
from rmqctl.store.config import store_path
from rmqctl.store.journal.changes import Delete, Resize, Write, Zero
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.read.store_file_sizes import geometry_of_store

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from rmqctl.operations.rebuild.planned.built_units import BuiltUnits
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.journal.changes import BlockWrite
    from rmqctl.store.read.consume_queue import UnitQueue


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
