"""Files and whole folders: moved, removed, brought to the disk.

Within a file system a move is a rename, however large it is. To another one it is a copy under a name beside the target, which gets the
target's name when it is whole and on the disk; then the original is renamed and removed. So a name that is there stands for all of it,
whenever the process ends: what is in between has a name with one of the suffixes here, and `remove_leftovers` takes it away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.logfile.storage import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmqctl.logfile.storage import Stamp, Storage
    from rmqctl.logfile.writable_storage import WritableStorage

PARTIAL_SUFFIX = ".rmqctl-partial"
MOVED_SUFFIX = ".rmqctl-moved"
BLOCK_SIZE = 1024 * 1024


def tree_of(storage: Storage, path: Path) -> Iterator[tuple[Path, Stamp]]:
    """`path` and all that is below it, what a folder holds before the folder; nothing where nothing is. Raises OSError."""
    stamp = storage.stamp(path)
    if stamp is None:
        return
    if stamp.kind is Kind.DIRECTORY:
        for name in storage.names(path):
            yield from tree_of(storage, path / name)
    yield path, stamp


def remove(storage: WritableStorage, path: Path) -> None:
    """Delete a file or a whole folder; durable with the next sync of the folder that it was in. Raises OSError."""
    for found, stamp in tree_of(storage, path):
        if stamp.kind is Kind.DIRECTORY:
            storage.remove_folder(found)
        else:
            storage.remove_file(found)


def remove_leftovers(storage: WritableStorage, path: Path) -> None:
    """What a `move` from or to `path` left that did not come to its end. Raises OSError."""
    for suffix in (PARTIAL_SUFFIX, MOVED_SUFFIX):
        remove(storage, path.with_name(path.name + suffix))


def settle(storage: WritableStorage, path: Path, like: Stamp) -> None:
    """Have a file or a whole folder on the disk, as the property of whom `like` belongs to. Raises OSError."""
    for found, stamp in tree_of(storage, path):
        if (stamp.uid, stamp.gid) != (like.uid, like.gid):
            storage.set_owner(found, like)
        _sync(storage, found, stamp)


def move(storage: WritableStorage, path: Path, target: Path) -> None:
    """Give a file or a whole folder another name; what stands at `target` must be gone. Raises OSError.

    Durable with a sync of both folders.
    """
    if storage.rename(path, target):
        return
    partial, moved = target.with_name(target.name + PARTIAL_SUFFIX), path.with_name(path.name + MOVED_SUFFIX)
    remove(storage, partial)
    remove(storage, moved)
    _copy(storage, path, partial)
    storage.rename(partial, target)
    storage.sync_folder(target.parent)
    storage.rename(path, moved)
    storage.sync_folder(path.parent)
    remove(storage, moved)


def _copy(storage: WritableStorage, path: Path, target: Path) -> None:
    stamp = storage.stamp(path)
    if stamp is None or stamp.kind not in (Kind.FILE, Kind.DIRECTORY):
        raise OSError(22, "neither file nor folder: it cannot be copied to another file system", str(path))
    if stamp.kind is Kind.DIRECTORY:
        storage.add_folder(target)
        for name in storage.names(path):
            _copy(storage, path / name, target / name)
    else:
        _copy_file(storage, path, target, stamp.size)
    storage.set_stamp(target, stamp)
    _sync(storage, target, stamp)


def _copy_file(storage: WritableStorage, path: Path, target: Path, size: int) -> None:
    """Holes stay holes."""
    source = storage.open(path)
    try:
        copy = storage.make_file(target)
        try:
            storage.resize(copy, size)
            position = storage.next_data(source, 0)
            while position is not None and (data := storage.read(source, position, BLOCK_SIZE)):
                storage.write(copy, position, data)
                position = storage.next_data(source, position + len(data))
        finally:
            storage.close(copy)
    finally:
        storage.close(source)


def _sync(storage: WritableStorage, path: Path, stamp: Stamp) -> None:
    if stamp.kind is Kind.DIRECTORY:
        storage.sync_folder(path)
    elif stamp.kind is Kind.FILE:
        storage.sync_file(path)
