"""Read the journals of a store; each journal is a change that rmqctl made.

The files in a journal's folder show whether the change is complete.

    STORE/.rmqctl/lock-was-missing          there was no `lock` file; removed when the last change is undone
    STORE/.rmqctl/expired/                  files that `clean` is about to delete; they belong to no journal
    STORE/.rmqctl/journal/0001-recover/     one change, with its number and verb
        staging/                            new files, before they are installed in the store
        kept/                               deleted and replaced files, and overwritten bytes
        journal.json                        what will be changed, and the state before; the change may have begun
        done                                the change is finished; the state that undo compares with later states
        undoing                             an undo of the change has begun

A change without journal.json has not begun, or was undone.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rmqctl.errors import ChangedSince, ChangeFailed, NeedsRecovery, StoreInUse, Unreadable, reason
from rmqctl.logfile.system.storage import Kind, Storage, tree_of
from rmqctl.store.config.json_file import read_json
from rmqctl.store.config.store_path import CHECKPOINT, COMMITLOG, LOCK
from rmqctl.store.journal.journal_rules import KEPT, STAGING, fault_of, fault_on_disk
from rmqctl.store.journal.manifest import FileStates, Manifest
from rmqctl.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RMQCTL_FOLDER = ".rmqctl"
JOURNAL_FOLDER, EXPIRED_FOLDER = "journal", "expired"
LOCK_WAS_MISSING, LOCK_WAS_MISSING_PARTIAL = "lock-was-missing", "lock-was-missing.tmp"
MANIFEST, DONE, UNDOING = "journal.json", "done", "undoing"
WHAT = "the journal"

NUMBER_MAX = 999_999_999
CHECKPOINT_VERB = "checkpoint"
ERASE_VERB = "erase"
CONFIG_VERB = "config-"  # the names of folders have no blank: config-set-offset, config-restore
_FOLDER_NAME = re.compile(r"([0-9]{4,9})-([a-z][a-z-]{0,40})")


class JournalState(Enum):
    """The stages of a change."""

    NOT_BEGUN = "not begun"  # or taken back, or forgotten: only the folder is left
    BEGUN = "begun"
    DONE = "done"
    UNDOING = "undoing"
    DAMAGED = "damaged"  # rmqctl did not write it in this form: no command may use it


class JournalEntry(NamedTuple):
    """A journal of the store, with its state."""

    number: int
    verb: str
    folder: Path
    state: JournalState
    manifest: Manifest | None = None  # None without a journal.json
    done: FileStates | None = None  # None: the change is not complete
    fault: Unreadable | None = None  # of a DAMAGED journal, which has no `manifest` and no `done`
    may_be_forgotten: bool = False  # damaged, but the change is complete, so no store needs it, and `fault` has no hint

    @property
    def command(self) -> str:
        """Return the verb as the user types it: `recover`, or `config set-offset`."""
        return self.verb.replace(CONFIG_VERB, "config ", 1) if self.verb.startswith(CONFIG_VERB) else self.verb

    @property
    def is_unfinished(self) -> bool:
        """Return whether the change or its undo was interrupted."""
        return self.state in (JournalState.BEGUN, JournalState.UNDOING)


def rmqctl_folder(root: Path) -> Path:
    """Return the folder of rmqctl's own files in a store."""
    return root / RMQCTL_FOLDER


def has_traces(storage: Storage, root: Path) -> bool:
    """Return whether the store has a file or folder of rmqctl from a change.

    Raises OSError, and Unreadable if `.rmqctl` is not a folder.
    """
    folder = _own_folder(storage, rmqctl_folder(root))
    if folder is None:
        return False
    names = storage.names(folder)
    return not names or not {JOURNAL_FOLDER, LOCK_WAS_MISSING, LOCK_WAS_MISSING_PARTIAL}.isdisjoint(names)


def list_journals(storage: Storage, root: Path) -> list[JournalEntry]:
    """Return the journals of a store, the oldest first.

    A journal is DAMAGED if it cannot be read, or breaks the rules in `journal_rules.py`. Raises OSError, and Unreadable
    if `.rmqctl` or `.rmqctl/journal` is not a folder.
    """
    folder = _own_folder(storage, rmqctl_folder(root)) and _own_folder(storage, rmqctl_folder(root) / JOURNAL_FOLDER)
    if folder is None:
        return []
    names = [found for name in storage.names(folder) if (found := _FOLDER_NAME.fullmatch(name))]
    numbered = sorted((int(name[1]), name[2], folder / name[0]) for name in names)
    return [_entry(storage, number, verb, path) for number, verb, path in numbered]


def next_number(entries: Sequence[JournalEntry]) -> int:
    """Return the number of the change that follows the journals `entries`.

    Raises Unreadable if it would have more than 9 digits: such journals are not found.
    """
    number = max((entry.number for entry in entries), default=0) + 1
    if number > NUMBER_MAX:
        last = entries[-1].folder
        raise Unreadable(
            f"no change can have a number after {NUMBER_MAX}; nothing was changed", path=str(last), hint=_by_hand(last)
        )
    return number


def expired_folder(storage: Storage, root: Path) -> Path | None:
    """Return the folder of the files that `clean` will delete, or None.

    Raises OSError and Unreadable.
    """
    return _own_folder(storage, rmqctl_folder(root)) and _own_folder(storage, rmqctl_folder(root) / EXPIRED_FOLDER)


def refusal(root: Path, entry: JournalEntry) -> Unreadable:
    """Return the error for a command that a damaged journal stops.

    It names the faulty path, and tells the user what to do next.
    """
    if entry.fault is None:
        raise ValueError(f"{entry.folder} is not damaged")
    return Unreadable(f"{entry.fault.what}; nothing was changed", path=entry.fault.path, hint=advice(root, entry))


def advice(root: Path, entry: JournalEntry) -> str:
    """Return advice for the user about a damaged journal."""
    if entry.fault is not None and entry.fault.hint:
        return entry.fault.hint
    if entry.may_be_forgotten:
        forget = (
            f"`rmqctl undo {quoted(root)} --drop-damaged {entry.folder.name}` forgets this change, which came to "
            "its end"
        )
        return f"{forget}; or {_by_hand(entry.folder)}"
    return f"the store may be half changed; {_by_hand(entry.folder)}, then run `rmqctl verify {quoted(root)}`"


def _by_hand(path: Path) -> str:
    return f"look at it, and take {quoted(path)} away by hand"


def _own_folder(storage: Storage, path: Path) -> Path | None:
    """Return None if nothing is there; raise Unreadable if `path` is no folder."""
    try:
        return _folder(storage, path)
    except Unreadable as error:
        raise Unreadable(f"{error.what}; nothing was changed", path=error.path, hint=_by_hand(path)) from error


def _folder(storage: Storage, path: Path) -> Path | None:
    stamp = storage.stamp(path)
    if stamp is None:
        return None
    if stamp.kind is not Kind.DIRECTORY:
        raise Unreadable("this is not a folder: rmqctl makes no link here, and follows none", path=str(path))
    return path


def _entry(storage: Storage, number: int, verb: str, folder: Path) -> JournalEntry:
    try:
        return _sound_entry(storage, number, verb, folder)
    except Unreadable as error:
        may_be_forgotten = not error.hint and _is_finished(storage, folder)
        return JournalEntry(number, verb, folder, JournalState.DAMAGED, fault=error, may_be_forgotten=may_be_forgotten)


def named_folders(storage: Storage) -> list[str]:
    """Return the log folders that the user named, as paths for a journal.

    They are relative to the store inside it, and absolute outside.
    """
    return [storage.display(folder) for folder in storage.named[1:]]


def _is_finished(storage: Storage, folder: Path) -> bool:
    """Return whether a change is complete and not being undone.

    The content of the journal's files is not read.
    """
    own = storage.stamp(folder)
    if own is None or own.kind is not Kind.DIRECTORY:
        return False
    done = storage.stamp(folder / DONE)
    return done is not None and done.kind is Kind.FILE and storage.stamp(folder / UNDOING) is None


def _sound_entry(storage: Storage, number: int, verb: str, folder: Path) -> JournalEntry:
    """Raise Unreadable if the journal is damaged, and OSError."""
    for path in (folder, folder / KEPT, folder / STAGING):
        _folder(storage, path)
    if storage.stamp(folder / MANIFEST) is None:
        return JournalEntry(number, verb, folder, JournalState.NOT_BEGUN)
    manifest = _read(storage, folder / MANIFEST, Manifest)
    fault = fault_of(manifest, named_folders(storage)) or fault_on_disk(storage, folder, manifest)
    if fault:
        raise _not_ours(manifest, folder, fault)
    done = _read(storage, folder / DONE, FileStates) if storage.stamp(folder / DONE) is not None else None
    state = JournalState.BEGUN if done is None else JournalState.DONE
    if storage.stamp(folder / UNDOING) is not None:
        state = JournalState.UNDOING
    return JournalEntry(number, verb, folder, state, manifest, done)


def _not_ours(manifest: Manifest, folder: Path, fault: str) -> Unreadable:
    path = str(folder / MANIFEST)
    if any(Path(touched).is_absolute() for touched in manifest.touched):
        what = f"this journal is of a log elsewhere, or rmqctl did not write it: {fault}"
        return Unreadable(what, path=path, hint="give --broker-conf with the file that names the folders of this log")
    return Unreadable(f"this journal is not as rmqctl writes it: {fault}", path=path)


def _read(storage: Storage, path: Path, of_type: Any) -> Any:
    stamp = storage.stamp(path)
    if stamp is None or stamp.kind is not Kind.FILE:
        raise Unreadable("not a file", path=str(path))
    return read_json(storage, path, of_type, WHAT)


def to_json(value: Manifest | FileStates) -> bytes:
    """Return a manifest or file states as JSON bytes.

    In Python, file names that are not UTF-8 have lone surrogates, which `json` accepts and msgspec does not.
    """
    return json.dumps(msgspec.to_builtins(value)).encode()


def words_of_unfinished(entry: JournalEntry) -> str:
    """Return the error text for a store that has an unfinished change."""
    if entry.state is JournalState.UNDOING:
        return f"an undo of rmqctl {entry.command} was interrupted: the store is half restored"
    return f"rmqctl {entry.command} was interrupted: the store is half changed"


def check_none_unfinished(storage: Storage, root: Path) -> None:
    """Check that no journal is damaged, and that every change is complete.

    Raises NeedsRecovery if a change is half done, Unreadable if a journal is damaged, and OSError.
    """
    entries = list_journals(storage, root)
    check_finished(root, entries)
    for entry in entries:
        if entry.fault is not None:
            raise refusal(root, entry)


def check_finished(root: Path, entries: Iterable[JournalEntry]) -> None:
    """Check that every change of the store is complete.

    Raises NeedsRecovery if a change is half done, and Unreadable for a damaged journal unless `may_be_forgotten`.
    """
    for entry in entries:
        if entry.is_unfinished:
            raise NeedsRecovery(
                words_of_unfinished(entry), path=str(root), hint=f"rmqctl undo {quoted(root)} brings it back"
            )
        if entry.fault is not None and not entry.may_be_forgotten:
            raise refusal(root, entry)


def prints(storage: Storage, root: Path, paths: Iterable[str]) -> FileStates:
    """Return the states of paths, and of all files and folders below them.

    A file whose state has changed was written to. The state of a file is its size in bytes and its mtime in ns, that of
    a folder (-1, 0), and that of nothing None. Raises OSError.
    """
    found: FileStates = {}
    for path in paths:
        found[path] = None
        for below, stamp in tree_of(storage, root / path):
            name = path if below == root / path else f"{path}/{below.relative_to(root / path)}"
            found[name] = (-1, 0) if stamp.kind is Kind.DIRECTORY else (stamp.size, stamp.mtime_ns)
    return found


def watched_prints(storage: Storage, root: Path, touched: list[str]) -> FileStates:
    """Return the states of the log's files and of the checkpoint.

    A broker that uses the store changes these. Files at or below the paths `touched` are left out. Raises OSError.
    """
    folders = [COMMITLOG, *sorted({str(Path(path).parent) for path in touched if Path(path).is_absolute()})]
    files = [
        f"{folder}/{name}"
        for folder in folders
        if storage.stamp(root / folder) is not None
        for name in storage.names(root / folder)
    ]
    found = prints(storage, root, [*files, CHECKPOINT])
    return {path: value for path, value in found.items() if not any(_is_below(path, of) for of in touched)}


def changed_since(storage: Storage, root: Path, entry: JournalEntry) -> list[str]:
    """Return the paths that were changed after the change of `entry`.

    They are among the touched paths, the log files and the checkpoint. If the change is half done, a touched file
    counts only if it is missing. If an undo has begun, there are none. Raises OSError.
    """
    if entry.manifest is None or entry.state is JournalState.UNDOING:
        return []
    touched = entry.manifest.touched
    before, now = dict(entry.manifest.watched), watched_prints(storage, root, touched)
    if entry.done is None:
        gone = [file.path for file in entry.manifest.files if storage.stamp(root / file.path) is None]
    else:
        gone = []
        before |= entry.done
        now |= prints(storage, root, touched)
    return sorted([*gone, *(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))])


def is_as_written(storage: Storage, root: Path, verb: str, paths: Iterable[str]) -> bool:
    """Return whether the last change of `verb` wrote `paths`, and nothing since.

    False also if the journals cannot be read.
    """
    try:
        done = [entry for entry in list_journals(storage, root) if entry.verb == verb and entry.done is not None]
        return bool(done) and set(changed_since(storage, root, done[-1])).isdisjoint(paths)
    except (Unreadable, OSError):
        return False


def check_unchanged(storage: Storage, root: Path, entry: JournalEntry) -> None:
    """Raise ChangedSince if an undo would lose data that was written later.

    Raises OSError.
    """
    changed = changed_since(storage, root, entry)
    if changed:
        what = (
            f"written to since `rmqctl {entry.command}`: {first_of(changed)}; an undo would lose that, so nothing was "
            "changed"
        )
        raise ChangedSince(what, path=str(root), hint="--force undoes the change anyway")


def first_of(paths: list[str]) -> str:
    """Return the first path and the number of further paths: `a and 2 more`."""
    return f"{paths[0]} and {len(paths) - 1} more" if len(paths) > 1 else paths[0]


def check_not_in_use(storage: Storage, root: Path) -> None:
    """Raise StoreInUse if a broker or another rmqctl has locked the store.

    A process that owns the lock must not call this: it would release the lock. Raises OSError.
    """
    if storage.lock_holder(root / LOCK) is not None:
        raise in_use(root)


def in_use(root: Path) -> StoreInUse:
    """Return the error for a store that a broker or another rmqctl has open."""
    return StoreInUse(
        "a broker, or another rmqctl, has the store open", path=str(root), hint="stop it, or work on a copy"
    )


def change_failed(root: Path, error: OSError, state: str, hint: str = "") -> ChangeFailed:
    """Return the error for a change or an undo that the system did not let finish.

    `state` says how the store is now.
    """
    if error.filename and Path(error.filename).is_relative_to(root):
        return ChangeFailed(f"{reason(error)}; {state}", path=str(error.filename), hint=hint)
    where = f"{error.filename}: " if error.filename else ""
    return ChangeFailed(f"{where}{reason(error)}; {state}", path=str(root), hint=hint)


def kept_bytes(storage: Storage, entry: JournalEntry) -> int:
    """Return how many bytes of disk space the removal of a journal frees.

    The holes of sparse files are not counted. Raises OSError.
    """
    return sum(
        storage.entry(path).allocated for path, stamp in tree_of(storage, entry.folder) if stamp.kind is Kind.FILE
    )


def _is_below(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}/")
