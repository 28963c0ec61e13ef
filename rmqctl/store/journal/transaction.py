"""Changes of a store that can be undone, even after a crash.

The undo restores the store byte for byte, at whatever point the change was interrupted. These are the steps, in order;
"keep", "write" and "restore" include a flush to disk:

    begin      take the store's lock; create a folder for the change
    execute    1. keep the bytes that will be overwritten
               2. write journal.json, which lists what will be changed
               3. make the changes; rename deleted and replaced files into the journal
               4. flush the changes to disk
               5. write `done`, which has the state after the changes
    undo_last  1. write `undoing`
               2. restore everything; each step can be repeated
               3. delete journal.json, and then the folder

`journals.py` describes and reads the folder of a change. `preparation.py` says what journal.json lists, and `undo.py`
restores it. The store may be half changed if there is a journal.json without `done`, or with `undoing`. Until it is
whole again, only `undo_last` may change it.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.errors import ChangeFailed, StoreInUse, Unreadable
from rmqctl.logfile import file_tree
from rmqctl.logfile.access.place import PRIVATE_FOLDER_MODE
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.store.config.store_path import COMMITLOG, LOCK
from rmqctl.store.journal import pre_image
from rmqctl.store.journal.changes import Delete, Install, Resize, Zero
from rmqctl.store.journal.journal_rules import KEPT, STAGING
from rmqctl.store.journal.journals import (
    DONE,
    ERASE_VERB,
    JOURNAL_FOLDER,
    LOCK_WAS_MISSING,
    MANIFEST,
    UNDOING,
    JournalState,
    change_failed,
    check_finished,
    check_none_unfinished,
    check_unchanged,
    has_traces,
    in_use,
    list_journals,
    next_number,
    prints,
    refusal,
    rmqctl_folder,
    to_json,
)
from rmqctl.store.journal.manifest import Manifest, Moved
from rmqctl.store.journal.preparation import check_may_change, prepare
from rmqctl.store.journal.undo import changed_folders, forget, sync_folders, tidy, undo
from rmqctl.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from rmqctl.store.journal.changes import Change, InPlace
    from rmqctl.store.journal.journals import JournalEntry
    from rmqctl.store.read.read_only_store import ReadOnlyStore

NUMBER_DIGITS = 4


def nothing() -> None:
    """Do nothing: the default of `commit`."""


class Journal:
    """A change of the store at `root`, made by `begin`; a context manager.

    It keeps the store's lock until it is closed; the process must not open the file `lock` a second time until then.
    New files are built in `staging`, and then installed by a rename. Without `execute` or `suspend`, the end of the
    `with` block removes all files of the change. `goes_on` is True if it continues a suspended change.
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

        `summary` describes the change to the user in one line. With `go_on`, a suspended change of the same `verb` is
        continued.

        Raises NeedsRecovery if another change is half done, StoreInUse, Unreadable, ChangeFailed and OSError.
        """
        root_mtime_ns = storage.present(root).mtime_ns
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
                tidy(storage, root, root_mtime_ns)
            if lock is not None:
                storage.close(lock)
            if isinstance(error, OSError):
                raise change_failed(root, error, "nothing was changed") from error
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

        An OSError before `execute` becomes a ChangeFailed, except a BrokenPipeError.
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

    def execute(self, changes: Sequence[Change], commit: Callable[[], None] = nothing, *, is_kept: bool = True) -> None:
        """Carry out the changes, in order; then they are on disk, and can be undone.

        `commit` is called after the preparation, before the first file is changed; an exception from it stops the
        change. In-place changes of a file may overlap. Without `is_kept`, the change cannot be undone once it is on
        disk: step 5 deletes journal.json in place of writing `done`, and the old bytes are overwritten and removed.

        Raises ValueError if

        - the path of another change is that of a Delete or Install, or below it;
        - the rules in `journal_rules.py` forbid a change of a path;
        - a range ends after the end of the file;
        - an installed file was not built in the journal's folder.

        Raises NoRoom if the disk has too little room; the store is not changed. Raises ChangeFailed if the system
        reports an error, a path does not exist, or the user may not change a path; its text says whether the store is
        unchanged.
        """
        self._is_over = True
        try:
            self._execute(changes, commit, is_kept=is_kept)
        except OSError as error:
            raise self._taken_back(error) from error
        except BaseException:
            self._take_back()
            raise
        if not is_kept:
            try:
                self.abandon()
            except OSError as error:
                state = "all was changed, but the old bytes are still in its journal"
                is_left = self._storage.stamp(self._folder / MANIFEST) is not None
                undone = f"`rmqctl undo {quoted(self._root)}` takes it back"
                hint = undone if is_left else "the next change of the store overwrites and removes them"
                raise change_failed(self._root, error, state, hint) from error

    def abandon(self) -> None:
        """Remove all files of the change, which cannot be undone then. Raises OSError."""
        self._is_over = True
        forget(self._storage, self._folder)
        tidy(self._storage, self._root, self._root_mtime_ns)

    def suspend(self) -> None:
        """Keep the staged files, so that a later `begin` can continue the change.

        Never after `execute`. A `begin` that starts a new change removes them. Raises OSError.
        """
        self._is_over = True
        self._storage.set_mtime(self._root, self._root_mtime_ns)

    def close(self) -> None:
        """Release the store's lock; a second call does nothing."""
        self._storage.release()
        if self._lock is not None:
            self._storage.close(self._lock)
            self._lock = None

    def _execute(self, changes: Sequence[Change], commit: Callable[[], None], *, is_kept: bool) -> None:
        storage, root, folder = self._storage, self._root, self._folder
        manifest = prepare(storage, root, folder, self._verb, self._summary, self._root_mtime_ns, changes)
        like = storage.present(root)
        for change in changes:
            if isinstance(change, Install):
                file_tree.settle(storage, change.staged, like, _modes_at(storage, root, change.path))
        for image in manifest.files:
            if image.kept is not None:
                pre_image.keep(storage, root / image.path, image, folder / image.kept)
        storage.sync_folder(folder / KEPT)
        storage.sync_folder(self.staging)
        commit()
        storage.replace_file(folder / MANIFEST, to_json(manifest))
        _apply(storage, root, folder, manifest, changes)
        if is_kept:
            storage.replace_file(folder / DONE, to_json(prints(storage, root, manifest.touched)))

    def _taken_back(self, error: OSError) -> ChangeFailed:
        if self._take_back():
            return change_failed(self._root, error, "the store is as it was before")
        if self._storage.stamp(self._folder / MANIFEST) is None:
            state, then = "nothing was changed", "takes away what is left of it"
        elif self._storage.stamp(self._folder / DONE) is None:
            state, then = "the store is half changed", "brings it back"
        else:
            state, then = "all was changed, but may not be on the disk", "takes it back"
        return change_failed(self._root, error, state, f"rmqctl undo {quoted(self._root)} {then}")

    def _take_back(self) -> bool:
        """Undo a failed change; return whether the undo succeeded."""
        self._storage.release()
        with suppress(OSError):
            self._storage.unlink(self._folder / DONE)  # first, or the change would count as complete
            ours = [entry for entry in list_journals(self._storage, self._root) if entry.folder == self._folder]
            for entry in ours:
                undo(self._storage, self._root, entry, self._root_mtime_ns)
            return bool(ours)
        return False


def _new_folder(storage: WritableStorage, root: Path, verb: str, root_mtime_ns: int) -> Path:
    """Make the folder of the next change.

    First, the folders of all journals in the state NOT_BEGUN are removed. After an error, no part of the new folder is
    left.
    """
    entries = list_journals(storage, root)
    number = next_number([entry for entry in entries if entry.state is not JournalState.NOT_BEGUN])
    for entry in entries:
        if entry.state is JournalState.NOT_BEGUN:
            forget(storage, entry.folder, overwrites=verb == ERASE_VERB)  # it may be one that `drop_others` began with
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
    """Return the last journal's folder if it is of `verb` and NOT_BEGUN, else None."""
    last = next(reversed(list_journals(storage, root)), None)
    return last.folder if last is not None and last.state is JournalState.NOT_BEGUN and last.verb == verb else None


def make_change(
    store: ReadOnlyStore,
    verb: str,
    summary: str,
    build: Callable[[Path], Sequence[Change]],
    commit: Callable[[], None] = nothing,
    *,
    is_kept: bool = True,
) -> None:
    """Make one change of a store, which `undo` takes back if it `is_kept`.

    `build` makes the new files in the journal's staging folder, and returns the changes. The other arguments and the
    errors are those of `Journal.begin` and `Journal.execute`.
    """
    with Journal.begin(store.path.root, verb, summary, WritableStorage.like(store.storage)) as journal:
        journal.execute(build(journal.staging), commit, is_kept=is_kept)


def undo_last(
    root: Path, storage: WritableStorage, *, force: bool = False, commit: Callable[[], None] = nothing
) -> JournalEntry | None:
    """Undo the newest change, even a half done one, and return it; None without one.

    `commit` is called before the undo changes any file; an exception from it stops the undo.

    Raises ChangedSince if the store was written to after the change, unless `force` is set; StoreInUse and Unreadable;
    and ChangeFailed if the system reports an error, after which `undo_last` can be called again.
    """
    state, hint = "nothing was changed", ""
    try:
        if not has_traces(storage, root):
            return None
        with _locked(storage, root) as root_mtime_ns:
            entry = next(reversed(list_journals(storage, root)), None)
            if entry is not None:
                _check_may_undo(storage, root, entry, force=force)
            commit()
            state, hint = "the undo did not come to its end", f"rmqctl undo {quoted(root)} goes on with it"
            if entry is None:
                tidy(storage, root, root_mtime_ns)
                return None
            if entry.is_unfinished or entry.state is JournalState.DONE:
                storage.replace_file(entry.folder / UNDOING, b"")
            undo(storage, root, entry, root_mtime_ns)
            return entry
    except OSError as error:
        if error.errno == errno.ELOOP:
            hint = "give --follow-links where that link is meant"
        raise change_failed(root, error, state, hint) from error


def _check_may_undo(storage: WritableStorage, root: Path, entry: JournalEntry, *, force: bool) -> None:
    if entry.fault is not None:
        raise refusal(root, entry)
    if not force:
        check_unchanged(storage, root, entry)
    if entry.manifest is not None and entry.state is JournalState.DONE:
        check_may_change(storage, root, entry.manifest)


def drop(
    root: Path,
    storage: WritableStorage,
    *,
    damaged: str | None = None,
    commit: Callable[[], None] = nothing,
) -> list[JournalEntry]:
    """Forget changes, which then cannot be undone; return them, the oldest first.

    All undamaged journals are forgotten, or with `damaged` only the damaged journal whose folder has this name.
    `commit` is called before any file is removed; an exception from it stops `drop`.

    Raises NeedsRecovery if a change is half done, Unreadable if that of a damaged journal may be, StoreInUse, and
    ChangeFailed if the system reports an error, after which `drop` can be called again.
    """
    try:
        if not has_traces(storage, root):
            return []
        with _locked(storage, root) as root_mtime_ns:
            entries = list_journals(storage, root)
            if damaged is not None:
                entries = [entry for entry in entries if entry.fault is not None and entry.folder.name == damaged]
            check_finished(root, entries)
            commit()
            dropped = entries if damaged is not None else [entry for entry in entries if entry.fault is None]
            for entry in dropped:
                forget(storage, entry.folder)
            if storage.stamp(rmqctl_folder(root) / LOCK_WAS_MISSING) is not None and not list_journals(storage, root):
                storage.unlink(rmqctl_folder(root) / LOCK_WAS_MISSING)  # `lock` stays: it now belongs to the store
            tidy(storage, root, root_mtime_ns)
            return dropped
    except OSError as error:
        option = "--drop" if damaged is None else f"--drop-damaged {damaged}"
        hint = f"rmqctl undo {quoted(root)} {option} goes on with it"
        raise change_failed(root, error, "not all was dropped", hint) from error


def drop_others(root: Path, storage: WritableStorage) -> None:
    """Overwrite and remove the journals of all complete changes.

    For the `commit` of a change, which has the store's lock, and is known to be possible. Raises OSError.
    """
    for entry in list_journals(storage, root):
        if entry.state is JournalState.DONE:
            forget(storage, entry.folder, overwrites=True)


@contextmanager
def _locked(storage: WritableStorage, root: Path) -> Iterator[int]:
    """Lock the store; yield the time that its folder had before, in ns."""
    root_mtime_ns = storage.present(root).mtime_ns
    lock = _take_lock(storage, root)
    try:
        yield root_mtime_ns
    finally:
        storage.close(lock)


def _take_lock(storage: WritableStorage, root: Path) -> int:
    """Lock the store, and return the descriptor of the file `lock`.

    If the store has no `lock` and no journal, `lock-was-missing` is created, so that the last undo removes `lock`.
    """
    if storage.stamp(root / LOCK) is None and not list_journals(storage, root):
        storage.make_folder(rmqctl_folder(root), PRIVATE_FOLDER_MODE)
        storage.replace_file(rmqctl_folder(root) / LOCK_WAS_MISSING, b"")
    lock = storage.lock(root / LOCK)
    if lock is None:
        raise in_use(root)
    return lock


def _modes_at(storage: WritableStorage, root: Path, path: str) -> file_tree.Modes:
    """Return the modes of a file near `path`, or of a log file."""
    above = (root / folder for folder in Path(path).parents if folder != Path())
    return file_tree.modes_of(storage, [root / path, *above, root / COMMITLOG])


def _apply(storage: WritableStorage, root: Path, folder: Path, manifest: Manifest, changes: Sequence[Change]) -> None:
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
    sync_folders(storage, [folder / KEPT, *changed_folders(root, manifest), folder / STAGING])


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
        elif change.end == storage.present(path).size:  # a file's tail becomes a hole
            storage.resize(descriptor, change.begin)
            storage.resize(descriptor, change.end)
        else:
            pre_image.zero(storage, descriptor, change.begin, change.end)
    finally:
        storage.close(descriptor)
