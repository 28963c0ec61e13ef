"""Create, move, remove and sync files and whole folders.

Within a file system, a move is a rename, which is fast for a folder of any size. To another file system, the files are
copied under a temporary name in the target's folder, synced, and renamed to the target's name; then the original is
renamed and removed. Until the copy is complete, nothing exists at the target. An interrupted move may leave names that
end in `.rmqctl-partial` or `.rmqctl-moved`, which `remove_leftovers` removes.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.logfile.access.place import FILE_MODE, FOLDER_MODE
from rmqctl.logfile.system.storage import Kind, tree_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rmqctl.logfile.system.storage import Stamp, Storage
    from rmqctl.logfile.system.writable_storage import WritableStorage

PARTIAL_SUFFIX = ".rmqctl-partial"
MOVED_SUFFIX = ".rmqctl-moved"
BLOCK_SIZE = 1024 * 1024
NAME_MAX = 255  # bytes


class Modes(NamedTuple):
    """The modes of files and of their folders, for example 0o644 and 0o755."""

    file: int = FILE_MODE
    folder: int = FOLDER_MODE


def modes_of(storage: Storage, paths: Iterable[Path]) -> Modes:
    """Return the modes of the first file in `paths`, and of its folder.

    Raises OSError.
    """
    for path in paths:
        for found, stamp in tree_of(storage, path):
            if stamp.kind is Kind.FILE:
                above = storage.stamp(found.parent)
                return Modes(stamp.mode, above.mode if above is not None else FOLDER_MODE)
    return Modes()


def create_with(storage: WritableStorage, path: Path, size: int, parts: Iterable[tuple[int, bytes]]) -> None:
    """Create a file of `size` bytes: zeros, and `parts`.

    A part is a position, and the bytes there. Raises OSError.
    """
    descriptor = storage.create(path, size)
    try:
        for position, data in parts:
            storage.write(descriptor, position, data)
    finally:
        storage.close(descriptor)


def remove(storage: WritableStorage, path: Path) -> None:
    """Delete a file or a whole folder, durable after a sync of its parent folder.

    Raises OSError.
    """
    for found, stamp in tree_of(storage, path):
        if stamp.kind is Kind.DIRECTORY:
            storage.remove_folder(found)
        else:
            storage.remove_file(found)


def overwrite(storage: WritableStorage, path: Path) -> None:
    """Replace the bytes of a file, or of all files in a folder, by zeros on the disk.

    Holes stay holes: it needs no room. Raises OSError.
    """
    for found, stamp in tree_of(storage, path):
        if stamp.kind is not Kind.FILE:
            continue
        descriptor = storage.open_for_writing(found)
        try:
            data_at = storage.next_data(descriptor, 0)
            while data_at is not None and data_at < stamp.size:
                end = storage.next_hole(descriptor, data_at)
                for at in range(data_at, end, BLOCK_SIZE):
                    storage.write(descriptor, at, bytes(min(BLOCK_SIZE, end - at)))
                data_at = storage.next_data(descriptor, end)
            storage.sync(descriptor)
        finally:
            storage.close(descriptor)


def remove_leftovers(storage: WritableStorage, path: Path) -> None:
    """Remove the temporary files and folders of an interrupted `move`.

    `path` is the source or the target of the move. Raises OSError.
    """
    for suffix in (PARTIAL_SUFFIX, MOVED_SUFFIX):
        remove(storage, _beside(path, suffix))


def settle(storage: WritableStorage, path: Path, like: Stamp, modes: Modes) -> None:
    """Sync a file or a whole folder, and set its modes and its owner.

    Raises OSError.
    """
    for found, stamp in tree_of(storage, path):
        if (stamp.uid, stamp.gid) != (like.uid, like.gid):
            storage.set_owner(found, like)
        mode = modes.folder if stamp.kind is Kind.DIRECTORY else modes.file
        if stamp.mode != mode:
            storage.set_mode(found, mode)
        _sync(storage, found, stamp)


def sync(storage: WritableStorage, path: Path) -> None:
    """Sync a file or a whole folder. Raises OSError."""
    for found, stamp in tree_of(storage, path):
        _sync(storage, found, stamp)


def move(storage: WritableStorage, path: Path, target: Path) -> None:
    """Move a file or a whole folder to `target`, where nothing may exist.

    It is durable after a sync of the parent folders of both paths. Raises OSError.
    """
    if storage.rename(path, target):
        return
    partial, moved = _beside(target, PARTIAL_SUFFIX), _beside(path, MOVED_SUFFIX)
    remove(storage, partial)
    remove(storage, moved)
    _copy(storage, path, partial)
    storage.rename(partial, target)
    storage.sync_folder(target.parent)
    storage.rename(path, moved)
    storage.sync_folder(path.parent)
    remove(storage, moved)


def _beside(path: Path, suffix: str) -> Path:
    """Append a suffix to the name; if that is too long, a hash replaces the name."""
    raw = path.name.encode("utf-8", "surrogateescape")
    name = path.name if len(raw) + len(suffix) <= NAME_MAX else blake2b(raw, digest_size=16).hexdigest()
    return path.with_name(name + suffix)


def _copy(storage: WritableStorage, path: Path, target: Path) -> None:
    entries = [(found, stamp, target / found.relative_to(path)) for found, stamp in tree_of(storage, path)]
    for _, stamp, copy in reversed(entries):  # parent folders come first
        if stamp.kind is Kind.DIRECTORY:
            storage.add_folder(copy)
    for found, stamp, copy in entries:
        if stamp.kind not in (Kind.FILE, Kind.DIRECTORY):
            raise OSError(22, "neither file nor folder: it cannot be copied to another file system", str(found))
        if stamp.kind is Kind.FILE:
            _copy_file(storage, found, copy, stamp.size)
        storage.set_stamp(copy, stamp)
        _sync(storage, copy, stamp)


def _copy_file(storage: WritableStorage, path: Path, target: Path, size: int) -> None:
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
