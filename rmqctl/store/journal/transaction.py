"""Changes of a store that can be undone, even after a crash.

The undo restores the store byte for byte. The change may have been interrupted at any point.

The list shows the steps of a change, in order. The steps "keep", "write" and "restore" include a flush to disk.

    begin      take the store's lock; create a folder for the change
    execute    1. keep the bytes that will be overwritten
               2. write journal.json, which lists what will be changed
               3. make the changes; rename deleted and replaced files into the journal
               4. flush the changes to disk
               5. write `done`, which has the state after the changes
    undo_last  1. write `undoing`
               2. restore everything; each step can be repeated
               3. delete journal.json, and then the folder

`journals.py` describes and reads the folder of a change. The store may be half changed if journal.json exists without
`done`. The store may be half changed if journal.json exists with `undoing`. While a store is half changed, only
`undo_last` may change the store.
"""

from __future__ import annotations

import errno
import time
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.errors import AS_OWNER_HINT, ChangeFailed, NoRoom, StoreInUse, Unreadable, reason
from rmqctl.logfile import file_tree
from rmqctl.logfile.access.place import PRIVATE_FOLDER_MODE
from rmqctl.logfile.system.storage import Kind, tree_of
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.store.config.json_file import can_be_read
from rmqctl.store.config.store_path import COMMITLOG, LOCK
from rmqctl.store.journal import pre_image
from rmqctl.store.journal.changes import Delete, Install, Resize, Zero
from rmqctl.store.journal.journal_rules import KEPT, STAGING, may_move, may_write
from rmqctl.store.journal.journals import (
    DONE,
    JOURNAL_FOLDER,
    LOCK_WAS_MISSING,
    LOCK_WAS_MISSING_PARTIAL,
    MANIFEST,
    UNDOING,
    JournalState,
    check_finished,
    check_none_unfinished,
    check_unchanged,
    has_traces,
    in_use,
    list_journals,
    named_folders,
    next_number,
    prints,
    refusal,
    rmqctl_folder,
    to_json,
    watched_prints,
)
from rmqctl.store.journal.manifest import Manifest, Moved, PreImage
from rmqctl.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

    from rmqctl.logfile.system.storage import Stamp
    from rmqctl.store.journal.changes import Change, InPlace
    from rmqctl.store.journal.journals import JournalEntry
    from rmqctl.store.read.read_only_store import ReadOnlyStore

NUMBER_DIGITS = 4
ROOM_FOR_ITSELF = 64 * 1024  # bytes, for folders and `done`
REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS)


def nothing() -> None:
    """Do nothing. The function `nothing` is the default `commit` callback."""


class Journal:
    """A change of the store at `root`; `begin` returns a new Journal.

    Journal is a context manager. If neither `execute` nor `suspend` was called, the end of the `with` block removes all
    files of the change. A journal keeps the store's lock until the journal is closed. While a journal is open, the
    process must not open the file `lock` a second time. New files are built in `staging`, and then installed by a
    rename. `goes_on` is True if the journal continues a suspended change.
    """

    goes_on = False

    def __init__(
        self, storage: WritableStorage, root: Path, lock: int, verb: str, summary: str, folder: Path, root_mtime_ns: int
    ) -> None:
        self.staging = folder / STAGING
        self._storage = storage
        self._root = root
        self._lock: int | None = lock
        self._verb = verb
        self._summary = summary
        self._folder = folder
        self._root_mtime_ns = root_mtime_ns
        self._is_over = False

    @classmethod
    def begin(cls, root: Path, verb: str, summary: str, storage: WritableStorage, *, go_on: bool = False) -> Journal:
        """Lock the store, and make a folder for the change.

        `summary` is a description of the change in one line, for the user. With `go_on`, `begin` continues a suspended
        change that has the same `verb`.

        Raises NeedsRecovery if another change is half done. Raises StoreInUse, Unreadable, ChangeFailed and OSError.
        """
        root_mtime_ns = _present(storage, root).mtime_ns
        lock = None
        try:
            storage.reserve()
            lock = _take_lock(storage, root)
            check_none_unfinished(storage, root)
            suspended = _suspended_folder(storage, root, verb) if go_on else None
            folder = suspended or _new_folder(storage, root, verb, root_mtime_ns)
        except StoreInUse:
            storage.release()
            raise
        except BaseException as error:
            storage.release()
            with suppress(OSError, Unreadable):
                _tidy(storage, root, root_mtime_ns)
            if lock is not None:
                storage.close(lock)
            if isinstance(error, OSError):
                raise _failed(root, error, "nothing was changed") from error
            raise
        journal = cls(storage, root, lock, verb, summary, folder, root_mtime_ns)
        journal.goes_on = suspended is not None
        return journal

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the change.

        An OSError before `execute` becomes a ChangeFailed. A BrokenPipeError is raised unchanged.
        """
        try:
            if (
                not self._is_over and isinstance(error, OSError) and not isinstance(error, BrokenPipeError)
            ):  # a BrokenPipeError is from stdout
                self._is_over = True
                raise self._taken_back(error) from error
            if not self._is_over:
                with suppress(OSError) if error is not None else nullcontext():  # the first error is reported
                    self.abandon()
        finally:
            self.close()

    def execute(self, changes: Sequence[Change], commit: Callable[[], None] = nothing) -> None:
        """Carry out the changes, in order.

        When `execute` returns, all changes are on disk, and can be undone.

        `commit` is called after the preparation, before the first file is changed. An exception from `commit` stops the
        change.

        In-place changes of a file may overlap.

        Raises ValueError if the path of another change is the path of a Delete or Install, or is below it. Raises
        ValueError if the rules in `journal_rules.py` forbid a change of a path. Raises ValueError if a range ends after
        the end of the file. Raises ValueError if an installed file was not built in the journal's folder. Raises NoRoom
        if the disk has too little room; the store is not changed. Raises ChangeFailed if the system reports an error, a
        path does not exist, or the user may not change a path. The text of ChangeFailed says whether the store is
        unchanged.
        """
        self._is_over = True
        try:
            self._execute(changes, commit)
        except OSError as error:
            raise self._taken_back(error) from error
        except BaseException:
            self._take_back()
            raise

    def abandon(self) -> None:
        """Remove all staged files. Never call `abandon` after `execute`.

        Raises OSError.
        """
        self._is_over = True
        _forget(self._storage, self._folder)
        _tidy(self._storage, self._root, self._root_mtime_ns)

    def suspend(self) -> None:
        """Keep the staged files, so that a later `begin` can continue the change.

        Never call `suspend` after `execute`. A call of `begin` that starts a new change removes the staged files.
        Raises OSError.
        """
        self._is_over = True
        self._storage.set_mtime(self._root, self._root_mtime_ns)

    def close(self) -> None:
        """Release the store's lock. A second call of `close` does nothing."""
        self._storage.release()
        if self._lock is not None:
            self._storage.close(self._lock)
            self._lock = None

    def _execute(self, changes: Sequence[Change], commit: Callable[[], None]) -> None:
        storage, root, folder = self._storage, self._root, self._folder
        manifest = self._manifest(changes)
        if not can_be_read(to_json(manifest)):
            raise OSError(errno.EFBIG, "too many places for one change that can be taken back", str(folder / MANIFEST))
        _check_may_change(storage, root, manifest)
        self._check_room(manifest)
        like = _present(storage, root)
        for change in changes:
            if isinstance(change, Install):
                file_tree.settle(storage, change.staged, like, self._modes_at(change.path))
        for image in manifest.files:
            if image.kept is not None:
                pre_image.keep(storage, root / image.path, image, folder / image.kept)
        storage.sync_folder(folder / KEPT)
        storage.sync_folder(self.staging)
        commit()
        storage.replace_file(folder / MANIFEST, to_json(manifest))
        _apply(storage, root, folder, manifest, changes)
        storage.replace_file(folder / DONE, to_json(prints(storage, root, manifest.touched)))

    def _modes_at(self, path: str) -> file_tree.Modes:
        """Return the modes for a new file at `path`.

        The modes are copied from an existing file near `path`, or from a log file.
        """
        near = [
            self._root / path,
            *(self._root / above for above in Path(path).parents if above != Path()),
            self._root / COMMITLOG,
        ]
        return file_tree.modes_of(self._storage, near)

    def _manifest(self, changes: Sequence[Change]) -> Manifest:
        storage, root = self._storage, self._root
        _check_paths(root, changes, named_folders(storage))
        moved = [
            self._moved(number, change) for number, change in enumerate(changes) if isinstance(change, Delete | Install)
        ]
        in_place: dict[str, list[InPlace]] = {}
        for change in changes:
            if not isinstance(change, Delete | Install):
                in_place.setdefault(change.path, []).append(change)
        files = [self._pre_image(number, path, of) for number, (path, of) in enumerate(in_place.items())]
        made: list[str] = []
        folders = {".": self._root_mtime_ns}
        for path in (each.path for each in moved):
            above, missing = _missing_above(storage, root, path)
            made += [name for name in missing if name not in made]
            folders.setdefault(above, _present(storage, root / above).mtime_ns)
        touched = [image.path for image in files] + [each.path for each in moved]
        return Manifest(
            self._verb,
            self._summary,
            time.time_ns() // 1_000_000,
            [change.to_json() for change in changes],
            files,
            moved,
            made,
            folders,
            watched_prints(storage, root, touched),
        )

    def _moved(self, number: int, change: Delete | Install) -> Moved:
        found = self._storage.stamp(self._root / change.path)
        kept = f"{KEPT}/moved-{number}" if found is not None else None
        is_link = found is not None and found.kind is Kind.OTHER
        if isinstance(change, Install):
            _present(self._storage, change.staged)
            return Moved(change.path, kept, str(change.staged.relative_to(self._folder)), is_link)
        if found is None:
            raise FileNotFoundError(2, "there is nothing to delete", str(self._root / change.path))
        return Moved(change.path, kept, None, is_link)

    def _pre_image(self, number: int, path: str, changes: Sequence[InPlace]) -> PreImage:
        stamp = _present(self._storage, self._root / path)
        if stamp.kind is not Kind.FILE:
            raise OSError(22, "not a file, which could be changed in place", str(self._root / path))
        ranges = pre_image.merged((begin, min(end, stamp.size)) for begin, end in _ranges(stamp.size, changes))
        descriptor = self._storage.open(self._root / path)
        try:
            pieces = [piece for each in ranges for piece in pre_image.nonzero_pieces(self._storage, descriptor, *each)]
        finally:
            self._storage.close(descriptor)
        return PreImage(path, stamp.size, stamp.mtime_ns, ranges, pieces, f"{KEPT}/bytes-{number}" if pieces else None)

    def _check_room(self, manifest: Manifest) -> None:
        """Check that the disk has room for the change.

        Files that are renamed into the journal need no disk space. Raises NoRoom.
        """
        here = _present(self._storage, self._folder).device
        from_elsewhere = [
            self._storage.entry(path).allocated
            for moved in manifest.moved
            for path, stamp in tree_of(self._storage, self._root / moved.path)
            if stamp.device != here and stamp.kind is Kind.FILE
        ]
        needed = (
            sum(image.kept_bytes for image in manifest.files)
            + sum(from_elsewhere)
            + len(to_json(manifest))
            + ROOM_FOR_ITSELF
        )
        free = self._storage.free_bytes(self._folder)
        if needed > free:
            what = f"what is changed is kept first: that needs {needed} bytes on this disk, which has {free} free"
            raise NoRoom(what, path=str(self._root), hint="nothing was changed; make room and try again")

    def _taken_back(self, error: OSError) -> ChangeFailed:
        if self._take_back():
            return _failed(self._root, error, "the store is as it was before")
        if self._storage.stamp(self._folder / MANIFEST) is None:
            state, then = "nothing was changed", "takes away what is left of it"
        elif self._storage.stamp(self._folder / DONE) is None:
            state, then = "the store is half changed", "brings it back"
        else:
            state, then = "all was changed, but may not be on the disk", "takes it back"
        return _failed(self._root, error, state, f"rmqctl undo {quoted(self._root)} {then}")

    def _take_back(self) -> bool:
        """Undo a failed change; return whether the undo succeeded."""
        self._storage.release()
        with suppress(OSError):
            self._storage.unlink(self._folder / DONE)  # first, or the change would count as complete
            ours = [entry for entry in list_journals(self._storage, self._root) if entry.folder == self._folder]
            for entry in ours:
                _undo(self._storage, self._root, entry, self._root_mtime_ns)
            return bool(ours)
        return False


def _failed(root: Path, error: OSError, state: str, hint: str = "") -> ChangeFailed:
    """Return a ChangeFailed with the message of `error` and the text `state`."""
    if error.filename and Path(error.filename).is_relative_to(root):
        return ChangeFailed(f"{reason(error)}; {state}", path=str(error.filename), hint=hint)
    where = f"{error.filename}: " if error.filename else ""
    return ChangeFailed(f"{where}{reason(error)}; {state}", path=str(root), hint=hint)


def _new_folder(storage: WritableStorage, root: Path, verb: str, root_mtime_ns: int) -> Path:
    """Make the folder of the next change, and return it.

    First, the folders of all journals in the state NOT_BEGUN are removed. After an error, no part of the new folder is
    left.
    """
    entries = list_journals(storage, root)
    number = next_number([entry for entry in entries if entry.state is not JournalState.NOT_BEGUN])
    for entry in entries:
        if entry.state is JournalState.NOT_BEGUN:
            _forget(storage, entry.folder)
    folder = rmqctl_folder(root) / JOURNAL_FOLDER / f"{number:0{NUMBER_DIGITS}d}-{verb}"
    try:
        storage.make_folder(folder / STAGING, PRIVATE_FOLDER_MODE)
        storage.make_folder(folder / KEPT, PRIVATE_FOLDER_MODE)
        with suppress(PermissionError):  # `execute` says that, and who may
            storage.set_mtime(root, root_mtime_ns)  # `undo` of a change that wrote no manifest knows no other
    except BaseException:
        with suppress(OSError):
            file_tree.remove(storage, folder)
        raise
    return folder


def _suspended_folder(storage: WritableStorage, root: Path, verb: str) -> Path | None:
    """Return the journal folder of the suspended change of `verb`, or None.

    A change is suspended if its journal is the last journal and has the state NOT_BEGUN.
    """
    last = next(reversed(list_journals(storage, root)), None)
    return last.folder if last is not None and last.state is JournalState.NOT_BEGUN and last.verb == verb else None


def make_change(
    store: ReadOnlyStore,
    verb: str,
    summary: str,
    build: Callable[[Path], Sequence[Change]],
    commit: Callable[[], None] = nothing,
) -> None:
    """Make one change of a store, which `undo` takes back.

    `build` makes the new files in the journal's staging folder, and returns the changes. The other arguments and the
    errors are those of `Journal.begin` and `Journal.execute`.
    """
    with Journal.begin(store.path.root, verb, summary, WritableStorage.like(store.storage)) as journal:
        journal.execute(build(journal.staging), commit)


def undo_last(
    root: Path, storage: WritableStorage, *, force: bool = False, commit: Callable[[], None] = nothing
) -> JournalEntry | None:
    """Undo the newest change, even if the change is half done.

    Returns the change that was undone, or None if the store has no change.

    `commit` is called before the undo changes any file. An exception from `commit` stops the undo.

    Raises ChangedSince if the store was written to after the change, and `force` is False. Raises StoreInUse and
    Unreadable. Raises ChangeFailed if the system reports an error. After ChangeFailed, `undo_last` can be called again.
    """
    is_begun = False

    def begin() -> None:
        nonlocal is_begun
        commit()
        is_begun = True

    try:
        return _undo_last(root, storage, force=force, commit=begin)
    except OSError as error:
        state = "the undo did not come to its end" if is_begun else "nothing was changed"
        hint = f"rmqctl undo {quoted(root)} goes on with it" if is_begun else ""
        if error.errno == errno.ELOOP:
            hint = "give --follow-links where that link is meant"
        raise _failed(root, error, state, hint) from error


def _undo_last(root: Path, storage: WritableStorage, *, force: bool, commit: Callable[[], None]) -> JournalEntry | None:
    if not has_traces(storage, root):
        return None
    root_mtime_ns = _present(storage, root).mtime_ns
    lock = _take_lock(storage, root)
    try:
        entries = list_journals(storage, root)
        if not entries:
            commit()
            _tidy(storage, root, root_mtime_ns)
            return None
        entry = entries[-1]
        if entry.fault is not None:
            raise refusal(root, entry)
        if not force:
            check_unchanged(storage, root, entry)
        if entry.manifest is not None and entry.state is JournalState.DONE:
            _check_may_change(storage, root, entry.manifest)
        commit()
        if entry.is_unfinished or entry.state is JournalState.DONE:
            storage.replace_file(entry.folder / UNDOING, b"")
        _undo(storage, root, entry, root_mtime_ns)
        return entry
    finally:
        storage.close(lock)


def drop(
    root: Path, storage: WritableStorage, *, damaged: str | None = None, commit: Callable[[], None] = nothing
) -> list[JournalEntry]:
    """Forget changes, the oldest first; forgotten changes cannot be undone.

    Returns the forgotten changes. Without `damaged`, all undamaged journals are forgotten, and damaged journals are
    kept. With `damaged`, only the damaged journal whose folder has the name `damaged` is forgotten. `commit` is called
    before any file is removed. An exception from `commit` stops `drop`.

    Raises NeedsRecovery if a change is half done. Raises Unreadable if the change of a damaged journal may be half
    done. Raises StoreInUse. Raises ChangeFailed if the system reports an error. After ChangeFailed, `drop` can be
    called again.
    """
    option = "--drop" if damaged is None else f"--drop-damaged {damaged}"
    with _failures_told(root, "not all was dropped", f"rmqctl undo {quoted(root)} {option} goes on with it"):
        return _drop(root, storage, damaged, commit)


def _drop(root: Path, storage: WritableStorage, damaged: str | None, commit: Callable[[], None]) -> list[JournalEntry]:
    if not has_traces(storage, root):
        return []
    root_mtime_ns = _present(storage, root).mtime_ns
    lock = _take_lock(storage, root)
    try:
        entries = list_journals(storage, root)
        if damaged is not None:
            entries = [entry for entry in entries if entry.fault is not None and entry.folder.name == damaged]
        check_finished(root, entries)
        commit()
        dropped = entries if damaged is not None else [entry for entry in entries if entry.fault is None]
        for entry in dropped:
            _forget(storage, entry.folder)
        if storage.stamp(rmqctl_folder(root) / LOCK_WAS_MISSING) is not None and not list_journals(storage, root):
            storage.unlink(rmqctl_folder(root) / LOCK_WAS_MISSING)  # `lock` stays, because it now belongs to the store
        _tidy(storage, root, root_mtime_ns)
        return dropped
    finally:
        storage.close(lock)


@contextmanager
def _failures_told(root: Path, state: str, hint: str) -> Iterator[None]:
    """Raise ChangeFailed if the `with` block raises an OSError."""
    try:
        yield
    except OSError as error:
        raise _failed(root, error, state, hint) from error


def _take_lock(storage: WritableStorage, root: Path) -> int:
    """Lock the store, and return the descriptor of the file `lock`.

    `lock-was-missing` is created if the store has no `lock` and no journal. If `lock-was-missing` exists, the last undo
    removes `lock`.
    """
    if storage.stamp(root / LOCK) is None and not list_journals(storage, root):
        storage.make_folder(rmqctl_folder(root), PRIVATE_FOLDER_MODE)
        storage.replace_file(rmqctl_folder(root) / LOCK_WAS_MISSING, b"")
    lock = storage.lock(root / LOCK)
    if lock is None:
        raise in_use(root)
    return lock


def _check_paths(root: Path, changes: Sequence[Change], named: Sequence[str]) -> None:
    """Check that the changes can be undone one by one, in any order.

    An undo must be possible after the store was moved to another folder. Raises ValueError if a path makes an undo
    impossible.
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
    may = [may_move if isinstance(change, Delete | Install) else may_write for change in changes]
    for rule, change in zip(may, changes, strict=True):
        if not rule(change.path, named):
            raise ValueError(f"{change.path}: no journal may change it")


def _ranges(size: int, changes: Iterable[InPlace]) -> Iterable[tuple[int, int]]:
    """Yield the byte range that each change overwrites or cuts off in a file.

    The file has `size` bytes.
    """
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


def _check_may_change(storage: WritableStorage, root: Path, manifest: Manifest) -> None:
    """Raise ChangeFailed if the user lacks a permission for a change or an undo.

    Raises OSError.
    """
    folders = [
        root / each.path for each in manifest.moved if _is_folder(storage, root / each.path)
    ]  # a moved folder's own `..` changes
    for path in (
        *(root / image.path for image in manifest.files),
        *(root / name for name in manifest.folders),
        *folders,
    ):
        if storage.stamp(path) is None:  # deleted by someone else
            continue
        try:
            storage.check_may_change(path)
        except OSError as error:
            if error.errno in REFUSALS:
                hint = f"{AS_OWNER_HINT}, where it can be written"
                raise _failed(root, error, "nothing was changed", hint) from error
            raise


def _is_folder(storage: WritableStorage, path: Path) -> bool:
    stamp = storage.stamp(path)
    return stamp is not None and stamp.kind is Kind.DIRECTORY


def _missing_above(storage: WritableStorage, root: Path, path: str) -> tuple[str, list[str]]:
    """Return the nearest existing folder above a path, and the missing folders.

    The missing folders are returned in order, the outermost folder first.
    """
    missing = []
    above = Path(path).parent
    while storage.stamp(root / above) is None:
        missing.append(str(above))
        above = above.parent
    return str(above), missing[::-1]


def _apply(storage: WritableStorage, root: Path, folder: Path, manifest: Manifest, changes: Sequence[Change]) -> None:
    """Make the changes in the store, and flush the changed files to disk."""
    moved = {each.path: each for each in manifest.moved}
    for made in manifest.made:
        storage.make_folder(root / made)
    for change in changes:
        if isinstance(change, Delete | Install):
            _carry_out_move(storage, root, folder, moved[change.path])
        else:
            _carry_out_in_place(storage, root / change.path, change)
    for image in manifest.files:
        storage.set_mtime(root / image.path, image.mtime_ns)
        storage.sync_file(root / image.path)
    _sync_folders(storage, [folder / KEPT, *_folders_of(root, manifest), folder / STAGING])


def _carry_out_move(storage: WritableStorage, root: Path, folder: Path, moved: Moved) -> None:
    if moved.kept is not None:
        file_tree.move(storage, root / moved.path, folder / moved.kept)
    if moved.staged is not None:
        file_tree.move(storage, folder / moved.staged, root / moved.path)


def _carry_out_in_place(storage: WritableStorage, path: Path, change: InPlace) -> None:
    descriptor = storage.open_for_writing(path)
    try:
        if isinstance(change, Resize):
            storage.resize(descriptor, change.size)
        elif not isinstance(change, Zero):
            storage.write(descriptor, change.offset, change.data)
        elif change.end == _present(storage, path).size:  # a file's tail becomes a hole
            storage.resize(descriptor, change.begin)
            storage.resize(descriptor, change.end)
        else:
            pre_image.zero(storage, descriptor, change.begin, change.end)
    finally:
        storage.close(descriptor)


def _folders_of(root: Path, manifest: Manifest) -> list[Path]:
    """Return the folders of the store in which a name was added or removed."""
    return sorted({(root / path).parent for path in (*manifest.made, *(moved.path for moved in manifest.moved))})


def _sync_folders(storage: WritableStorage, folders: Iterable[Path]) -> None:
    for folder in folders:
        if storage.stamp(folder) is not None:
            storage.sync_folder(folder)


def _undo(storage: WritableStorage, root: Path, entry: JournalEntry, root_mtime_ns: int) -> None:
    """Restore everything that the change has changed.

    After an error, the call can be repeated. The undo does not write to files that are unchanged or already restored.
    An unchanged file may be read-only.
    """
    manifest = entry.manifest
    if manifest is not None:
        for moved in reversed(manifest.moved):
            _move_back(storage, root, entry.folder, moved)
        for made in reversed(manifest.made):
            _remove_if_empty(storage, root / made)
        for image in manifest.files:
            if storage.stamp(root / image.path) is not None:  # else someone deleted the file
                _put_back(
                    storage, root / image.path, image, entry.folder / image.kept if image.kept is not None else None
                )
        _sync_folders(storage, [*_folders_of(root, manifest), entry.folder / KEPT])
        for name, mtime_ns in manifest.folders.items():
            _set_mtime(storage, root / name, mtime_ns)
            storage.sync_folder(root / name)
        root_mtime_ns = manifest.folders["."]
    _forget(storage, entry.folder)
    _tidy(storage, root, root_mtime_ns)


def _put_back(storage: WritableStorage, path: Path, image: PreImage, kept: Path | None) -> None:
    if pre_image.is_as_it_was(storage, path, image, kept):
        storage.sync_file(path)  # the restored bytes may not be on disk yet
    else:
        pre_image.put_back(storage, path, image, kept)


def _set_mtime(storage: WritableStorage, folder: Path, mtime_ns: int) -> None:
    if _present(storage, folder).mtime_ns != mtime_ns:
        storage.set_mtime(folder, mtime_ns)


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


def _forget(storage: WritableStorage, folder: Path) -> None:
    """Remove a journal that is not needed any more.

    journal.json is removed first, because the other files have no meaning without journal.json.
    """
    if storage.stamp(folder / MANIFEST) is not None:
        storage.unlink(folder / MANIFEST)
    file_tree.remove(storage, folder)
    storage.sync_folder(folder.parent)


def _tidy(storage: WritableStorage, root: Path, root_mtime_ns: int) -> None:
    """Remove rmqctl's folder if the store has no journal.

    The folder `expired` and files that rmqctl did not create are kept.
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


def _present(storage: WritableStorage, path: Path) -> Stamp:
    stamp = storage.stamp(path)
    if stamp is None:
        raise FileNotFoundError(2, "No such file or directory", str(path))
    return stamp
