"""The undo of one change: what it would do, and doing it.

Each step can be repeated, so an undo that was interrupted is done again from its start. `transaction.py` says when that
may be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqctl.logfile import file_tree
from rmqctl.store.config.store_path import LOCK
from rmqctl.store.journal import pre_image
from rmqctl.store.journal.journal_rules import KEPT
from rmqctl.store.journal.journals import (
    ERASE_VERB,
    JOURNAL_FOLDER,
    LOCK_WAS_MISSING,
    LOCK_WAS_MISSING_PARTIAL,
    MANIFEST,
    list_journals,
    rmqctl_folder,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from rmqctl.logfile.system.storage import Storage
    from rmqctl.logfile.system.writable_storage import WritableStorage
    from rmqctl.store.journal.journals import JournalEntry
    from rmqctl.store.journal.manifest import Manifest, Moved


def undo_steps(storage: Storage, root: Path, entry: JournalEntry) -> Iterator[dict[str, Any]]:
    """Yield the steps of an undo, in order, as dicts for JSON.

    They are `put back` for deleted or replaced files, `remove` for new files, and `restore` for changed bytes and
    lengths, with the number of restored `bytes`. Of a half done change, unchanged files have no step. Raises OSError.
    """
    manifest = entry.manifest
    if manifest is None:
        return
    for moved in reversed(manifest.moved):
        if moved.kept is not None and storage.stamp(entry.folder / moved.kept) is not None:
            yield {"action": "put back", "path": moved.path}
        elif moved.kept is None and storage.stamp(root / moved.path) is not None:
            yield {"action": "remove", "path": moved.path}
    for made in reversed(manifest.made):
        if storage.stamp(root / made) is not None:
            yield {"action": "remove", "path": made}
    for image in manifest.files:
        path, kept = root / image.path, entry.folder / image.kept if image.kept is not None else None
        if storage.stamp(path) is not None and not pre_image.is_as_it_was(storage, path, image, kept):
            yield {"action": "restore", "path": image.path, "bytes": sum(end - begin for begin, end in image.ranges)}


def undo(storage: WritableStorage, root: Path, entry: JournalEntry, root_mtime_ns: int) -> None:
    """Restore everything that the change has changed, and remove its journal.

    Files that are unchanged or already restored are not written to, because they may be read-only. `root_mtime_ns` is
    the time of the store's folder if the journal has no manifest. Raises OSError.
    """
    manifest = entry.manifest
    if manifest is not None:
        for moved in reversed(manifest.moved):
            _move_back(storage, root, entry.folder, moved)
        for made in reversed(manifest.made):
            _remove_if_empty(storage, root / made)
        for image in manifest.files:
            path, kept = root / image.path, entry.folder / image.kept if image.kept is not None else None
            if storage.stamp(path) is None:  # someone deleted the file
                continue
            if pre_image.is_as_it_was(storage, path, image, kept):
                storage.sync_file(path)  # the restored bytes may not be on disk yet
            else:
                pre_image.put_back(storage, path, image, kept)
        sync_folders(storage, [*changed_folders(root, manifest), entry.folder / KEPT])
        for name, mtime_ns in manifest.folders.items():
            if storage.present(root / name).mtime_ns != mtime_ns:
                storage.set_mtime(root / name, mtime_ns)
            storage.sync_folder(root / name)
        root_mtime_ns = manifest.folders["."]
    forget(storage, entry.folder)
    tidy(storage, root, root_mtime_ns)


def _move_back(storage: WritableStorage, root: Path, folder: Path, moved: Moved) -> None:
    path = root / moved.path
    file_tree.remove_leftovers(storage, path)
    if moved.kept is None:
        file_tree.remove(storage, path)
    elif storage.stamp(folder / moved.kept) is not None:
        file_tree.remove(storage, path)
        storage.make_folder(path.parent)
        file_tree.move(storage, folder / moved.kept, path)


def _remove_if_empty(storage: WritableStorage, folder: Path) -> None:
    if storage.stamp(folder) is not None and not storage.names(folder):
        storage.remove_folder(folder)


def changed_folders(root: Path, manifest: Manifest) -> list[Path]:
    """Return the folders of the store in which a name was added or removed."""
    return sorted({(root / path).parent for path in (*manifest.made, *(moved.path for moved in manifest.moved))})


def sync_folders(storage: WritableStorage, folders: Iterable[Path]) -> None:
    """Flush the folders that exist to disk. Raises OSError."""
    for folder in folders:
        if storage.stamp(folder) is not None:
            storage.sync_folder(folder)


def forget(storage: WritableStorage, folder: Path, *, overwrites: bool = False) -> None:
    """Remove a journal that is not needed any more.

    journal.json goes first: without it, the other files have no meaning. The old bytes in a journal of `erase` are
    overwritten before they are removed, and with `overwrites` those in any journal. Raises OSError.
    """
    if storage.stamp(folder / MANIFEST) is not None:
        storage.unlink(folder / MANIFEST)
    if overwrites or folder.name.endswith(f"-{ERASE_VERB}"):
        file_tree.overwrite(storage, folder)
    file_tree.remove(storage, folder)
    storage.sync_folder(folder.parent)


def tidy(storage: WritableStorage, root: Path, root_mtime_ns: int) -> None:
    """Remove rmqctl's folder if the store has no journal, and set the root's time.

    The folder `expired` and files that rmqctl did not create are kept. Raises OSError.
    """
    folder = rmqctl_folder(root)
    if storage.stamp(folder) is not None and not list_journals(storage, root):
        if storage.stamp(folder / LOCK_WAS_MISSING) is not None:
            storage.unlink(root / LOCK)
            storage.unlink(folder / LOCK_WAS_MISSING)
        file_tree.remove(storage, folder / LOCK_WAS_MISSING_PARTIAL)
        _remove_if_empty(storage, folder / JOURNAL_FOLDER)
        _remove_if_empty(storage, folder)
        storage.sync_folder(root)
    storage.set_mtime(root, root_mtime_ns)
