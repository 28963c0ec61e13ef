"""The steps of an undo, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqctl.store.journal.pre_image import is_as_it_was

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmqctl.logfile.system.storage import Storage
    from rmqctl.store.journal.journals import JournalEntry


def undo_steps(storage: Storage, root: Path, entry: JournalEntry) -> list[dict[str, Any]]:
    """Return the steps of an undo as dicts for JSON.

    The step `put back` is for files that were deleted or replaced. The step `remove` is for new files. The step
    `restore` is for changed bytes and lengths. If a change is half done, unchanged files get no step. `bytes` is the
    number of bytes that the step restores in a file. Raises OSError.
    """
    return list(_steps(storage, root, entry))


def _steps(storage: Storage, root: Path, entry: JournalEntry) -> Iterator[dict[str, Any]]:
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
        kept = entry.folder / image.kept if image.kept is not None else None
        if storage.stamp(root / image.path) is not None and not is_as_it_was(storage, root / image.path, image, kept):
            yield {"action": "restore", "path": image.path, "bytes": sum(end - begin for begin, end in image.ranges)}
