"""The files and folders that a change will touch, checked before it begins."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.errors import AS_OWNER_HINT, NoRoom
from rmqctl.logfile.system.storage import Kind, tree_of
from rmqctl.store.config.json_file import can_be_read
from rmqctl.store.journal import pre_image
from rmqctl.store.journal.changes import Delete, Install, Resize, Zero
from rmqctl.store.journal.journal_rules import KEPT, may_move, may_write
from rmqctl.store.journal.journals import MANIFEST, change_failed, named_folders, to_json, watched_prints
from rmqctl.store.journal.manifest import Manifest, Moved, PreImage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rmqctl.logfile.system.storage import Storage
    from rmqctl.logfile.system.writable_storage import WritableStorage
    from rmqctl.store.journal.changes import Change, InPlace

ROOM_FOR_ITSELF = 64 * 1024  # bytes, for folders and `done`
REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS)


def prepare(
    storage: WritableStorage,
    root: Path,
    folder: Path,
    verb: str,
    summary: str,
    root_mtime_ns: int,
    changes: Sequence[Change],
) -> Manifest:
    """Return the manifest (the content of journal.json) for the journal in `folder`.

    `root_mtime_ns` is the time that the store's folder had before the journal was made. The errors are those of
    `Journal.execute`.
    """
    _check_paths(root, changes, named_folders(storage))
    moved = [
        _moved(storage, root, folder, number, change)
        for number, change in enumerate(changes)
        if isinstance(change, Delete | Install)
    ]
    in_place: dict[str, list[InPlace]] = {}
    for change in changes:
        if not isinstance(change, Delete | Install):
            in_place.setdefault(change.path, []).append(change)
    files = [_pre_image(storage, root, number, path, of) for number, (path, of) in enumerate(in_place.items())]
    made: list[str] = []
    folders = {".": root_mtime_ns}
    for path in (each.path for each in moved):
        above, missing = _missing_above(storage, root, path)
        made += [name for name in missing if name not in made]
        folders.setdefault(above, storage.present(root / above).mtime_ns)
    touched = [image.path for image in files] + [each.path for each in moved]
    manifest = Manifest(
        verb,
        summary,
        time.time_ns() // 1_000_000,
        [change.to_json() for change in changes],
        files,
        moved,
        made,
        folders,
        watched_prints(storage, root, touched),
    )
    if not can_be_read(to_json(manifest)):
        raise OSError(errno.EFBIG, "too many places for one change that can be taken back", str(folder / MANIFEST))
    check_may_change(storage, root, manifest)
    _check_room(storage, root, folder, manifest)
    return manifest


def _check_paths(root: Path, changes: Sequence[Change], named: Sequence[str]) -> None:
    """Check that the changes can be undone one by one, in any order.

    This must be possible also after the store was moved to another folder. Raises ValueError if a path prevents it.
    """
    moved = [Path(change.path) for change in changes if isinstance(change, Delete | Install)]
    in_place = {Path(change.path) for change in changes if not isinstance(change, Delete | Install)}
    taken = set(moved)
    if len(taken) < len(moved) or taken & in_place:
        raise ValueError("a path is deleted or installed twice, or changed in place, too")
    for path in (*moved, *in_place):
        if not taken.isdisjoint(path.parents):
            raise ValueError(f"{path} lies in a folder that is deleted or installed")
        if ".." in path.parts or (path.is_absolute() and path.is_relative_to(root.absolute())):
            raise ValueError(f"{path}: paths are relative to the store's root")
    for change in changes:
        may = may_move if isinstance(change, Delete | Install) else may_write
        if not may(change.path, named):
            raise ValueError(f"{change.path}: no journal may change it")


def _moved(storage: Storage, root: Path, folder: Path, number: int, change: Delete | Install) -> Moved:
    found = storage.stamp(root / change.path)
    kept = f"{KEPT}/moved-{number}" if found is not None else None
    is_link = found is not None and found.kind is Kind.OTHER
    if isinstance(change, Install):
        storage.present(change.staged)
        return Moved(change.path, kept, str(change.staged.relative_to(folder)), is_link)
    if found is None:
        raise FileNotFoundError(2, "there is nothing to delete", str(root / change.path))
    return Moved(change.path, kept, None, is_link)


def _pre_image(storage: Storage, root: Path, number: int, path: str, changes: Sequence[InPlace]) -> PreImage:
    stamp = storage.present(root / path)
    if stamp.kind is not Kind.FILE:
        raise OSError(22, "not a file, which could be changed in place", str(root / path))
    ranges = pre_image.merged((begin, min(end, stamp.size)) for begin, end in _ranges(stamp.size, changes))
    descriptor = storage.open(root / path)
    try:
        pieces = [piece for each in ranges for piece in pre_image.nonzero_pieces(storage, descriptor, *each)]
    finally:
        storage.close(descriptor)
    return PreImage(path, stamp.size, stamp.mtime_ns, ranges, pieces, f"{KEPT}/bytes-{number}" if pieces else None)


def _ranges(size: int, changes: Iterable[InPlace]) -> Iterable[tuple[int, int]]:
    for change in changes:
        if isinstance(change, Resize):
            yield min(size, change.size), size
            size = change.size
            continue
        begin, end = (
            (change.begin, change.end) if isinstance(change, Zero) else (change.offset, change.offset + change.size)
        )
        if not 0 <= begin <= end <= size:
            raise ValueError(f"bytes {begin} to {end} of {change.path}, which has {size}")
        yield begin, end


def _missing_above(storage: Storage, root: Path, path: str) -> tuple[str, list[str]]:
    """Return the nearest folder above a path that exists, and the missing ones."""
    missing = []
    above = Path(path).parent
    while storage.stamp(root / above) is None:
        missing.append(str(above))
        above = above.parent
    return str(above), missing[::-1]


def check_may_change(storage: WritableStorage, root: Path, manifest: Manifest) -> None:
    """Raise ChangeFailed if the user lacks a permission for a change or its undo.

    Raises OSError.
    """
    moved = dict.fromkeys(each.path for each in manifest.moved)
    for path in (*(image.path for image in manifest.files), *manifest.folders, *moved):
        stamp = storage.stamp(root / path)
        if stamp is None or (path in moved and stamp.kind is not Kind.DIRECTORY):
            continue  # deleted by someone else, or a rename that does not change it; a moved folder's own `..` changes
        try:
            storage.check_may_change(root / path)
        except OSError as error:
            if error.errno in REFUSALS:
                hint = f"{AS_OWNER_HINT}, where it can be written"
                raise change_failed(root, error, "nothing was changed", hint) from error
            raise


def _check_room(storage: WritableStorage, root: Path, folder: Path, manifest: Manifest) -> None:
    """Raise NoRoom if the disk of the journal has too little room for the change.

    What is renamed into the journal needs none.
    """
    here = storage.present(folder).device
    from_elsewhere = [
        storage.entry(path).allocated
        for moved in manifest.moved
        for path, stamp in tree_of(storage, root / moved.path)
        if stamp.device != here and stamp.kind is Kind.FILE
    ]
    needed = (
        sum(image.kept_bytes for image in manifest.files)
        + sum(from_elsewhere)
        + len(to_json(manifest))
        + ROOM_FOR_ITSELF
    )
    free = storage.free_bytes(folder)
    if needed > free:
        what = f"what is changed is kept first: that needs {needed} bytes on this disk, which has {free} free"
        raise NoRoom(what, path=str(root), hint="nothing was changed; make room and try again")
