"""A store as it will be after a repair, readable before the repair.

The changes of a repair plan are in memory, not on disk. A reader of the planned store gets the changed bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.format import checkpoint
from rmqctl.operations.placeholder.blocks import PlaceholderBlock
from rmqctl.operations.plan import AddLogFile, RebuildIndex, RebuildQueue, SetCheckpoint, Step
from rmqctl.operations.rebuild.planned.planned_storage import Patch, PlannedFile, PlannedStorage
from rmqctl.store.config import store_path
from rmqctl.store.journal.changes import Delete, Resize, Write, Zero
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.read.store_file_sizes import geometry_of_store

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rmqctl.operations.rebuild.planned.built_units import BuiltUnits


def planned_store(store: ReadOnlyStore, steps: Iterable[Step], built: BuiltUnits | None = None) -> ReadOnlyStore:
    """Return the store as it will be after the `steps` of a repair.

    The returned store has the rebuilt queues in `built`. Without `built`, the returned store lacks the queues to
    rebuild. Raises OSError.
    """
    files: dict[Path, PlannedFile] = {}
    deleted: set[Path] = set()
    for step in steps:
        _apply(store, step, files, deleted)
    if built is not None:
        files |= built.files(store.path.part(store_path.CONSUMEQUEUE), geometry_of_store(store).consumequeue_file_size)
    storage = PlannedStorage(store.storage, files, frozenset(deleted))
    return ReadOnlyStore(store.path.root, store.conf, storage=storage)


def _apply(store: ReadOnlyStore, step: Step, files: dict[Path, PlannedFile], deleted: set[Path]) -> None:
    """Apply one step of a repair to `files` and `deleted`."""
    action = step.action
    root = store.path.root
    if isinstance(action, RebuildQueue):
        deleted |= {root / part / action.topic / str(action.queue_id) for part in store_path.QUEUE_PARTS}
    elif isinstance(action, RebuildIndex):
        deleted.add(root / store_path.INDEX)
    elif isinstance(action, SetCheckpoint):
        raw = checkpoint.CHECKPOINT.struct.pack(*action.values).ljust(checkpoint.CHECKPOINT_FILE_SIZE, b"\0")
        files[root / store_path.CHECKPOINT] = PlannedFile(len(raw), (Patch(0, len(raw), raw),), is_new=True)
    elif isinstance(action, AddLogFile):
        files[root / action.path] = PlannedFile(
            action.size, tuple(_patch(block) for block in action.placeholders), is_new=True
        )
    elif isinstance(action, Delete):
        deleted.add(root / action.path)
    elif isinstance(action, Resize | Write | Zero | PlaceholderBlock):
        path = root / action.path
        found = files.get(path) or PlannedFile(store.storage.entry(path).size)
        files[path] = (
            found._replace(size=action.size)
            if isinstance(action, Resize)
            else found._replace(patches=(*found.patches, _patch(action)))
        )


def _patch(action: Write | Zero | PlaceholderBlock) -> Patch:
    return (
        Patch(action.begin, action.end)
        if isinstance(action, Zero)
        else Patch(action.offset, action.offset + action.size, action.data)
    )
