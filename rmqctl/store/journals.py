"""The journals of a store, for reading: what rmqctl changed in it, and whether a change was left half done.

    STORE/.rmqctl/lock-was-missing          there was no `lock` file; it goes when the last change is taken back
    STORE/.rmqctl/expired/                  what `clean` is about to delete, and none of a journal's
    STORE/.rmqctl/journal/0001-recover/     a change, numbered
        staging/                            what was built to be put in its place
        kept/                               what was deleted or replaced, and the bytes that were overwritten
        journal.json                        what is changed, and what it was before: from here on the store may be half changed
        done                                it was changed; what it left, so that undo sees what others wrote since
        undoing                             undo has begun to take it back

A folder without journal.json stands for nothing: the store is not changed yet, or is again as it was.
"""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rmqctl.errors import ChangedSince, NeedsRecovery, StoreInUse, Unreadable
from rmqctl.logfile.file_tree import tree_of
from rmqctl.logfile.storage import Kind, Storage
from rmqctl.store.pre_image import PreImage
from rmqctl.store.store_path import CHECKPOINT, COMMITLOG, LOCK

if TYPE_CHECKING:
    from collections.abc import Iterable

RMQCTL_FOLDER = ".rmqctl"
JOURNAL_FOLDER, EXPIRED_FOLDER = "journal", "expired"
MANIFEST, DONE, UNDOING = "journal.json", "done", "undoing"
KEPT, STAGING = "kept", "staging"
MANIFEST_SIZE_MAX = 2**30

Prints = dict[str, tuple[int, int] | None]  # path -> size in bytes and mtime in ns; None: there is nothing


class JournalState(Enum):
    """How far a change is."""

    NOT_BEGUN = "not begun"  # or taken back, or forgotten: only the folder is left
    BEGUN = "begun"
    DONE = "done"
    UNDOING = "undoing"


class Moved(msgspec.Struct, frozen=True):
    """A path that was deleted or replaced: where what stood there is kept, and where what was put there came from (both or one).

    `kept` and `staged` are relative to the journal's folder.
    """

    path: str
    kept: str | None
    staged: str | None


class Manifest(msgspec.Struct, frozen=True):
    """journal.json. Times: `time_ms` since 1970, those of `folders` in ns; `made` are folders that were missing above what was installed.

    `watched`: what the change does not touch and any use of the store does.
    """

    verb: str
    summary: str
    time_ms: int
    changes: list[dict[str, Any]]
    files: list[PreImage]
    moved: list[Moved]
    made: list[str]
    folders: dict[str, int]
    watched: Prints

    @property
    def touched(self) -> list[str]:
        """Every path that the change touches."""
        return [file.path for file in self.files] + [moved.path for moved in self.moved]


class JournalEntry(NamedTuple):
    """A journal as it lies there; `manifest` and `done` as far as it got."""

    number: int
    verb: str
    folder: Path
    state: JournalState
    manifest: Manifest | None
    done: Prints | None

    @property
    def is_unfinished(self) -> bool:
        """Whether the store is half changed."""
        return self.state in (JournalState.BEGUN, JournalState.UNDOING)


def rmqctl_folder(root: Path) -> Path:
    """Where rmqctl keeps what is its own in a store."""
    return root / RMQCTL_FOLDER


def has_traces(storage: Storage, root: Path) -> bool:
    """Whether anything is left of a change, were it an empty folder. Raises OSError."""
    folder = rmqctl_folder(root)
    return storage.stamp(folder) is not None and storage.names(folder) != [EXPIRED_FOLDER]


def list_journals(storage: Storage, root: Path) -> list[JournalEntry]:
    """The journals of a store, the oldest first. Raises OSError, Unreadable."""
    folder = rmqctl_folder(root) / JOURNAL_FOLDER
    stamp = storage.stamp(folder)
    if stamp is None or stamp.kind is not Kind.DIRECTORY:
        return []
    names = (name.partition("-") for name in storage.names(folder))
    numbered = sorted((int(number), verb, folder / f"{number}-{verb}") for number, dash, verb in names if dash and number.isdecimal())
    return [_entry(storage, number, verb, path) for number, verb, path in numbered]


def _entry(storage: Storage, number: int, verb: str, folder: Path) -> JournalEntry:
    if storage.stamp(folder / MANIFEST) is None:
        return JournalEntry(number, verb, folder, JournalState.NOT_BEGUN, None, None)
    manifest = _read(storage, folder / MANIFEST, Manifest)
    done = _read(storage, folder / DONE, Prints) if storage.stamp(folder / DONE) is not None else None
    state = JournalState.BEGUN if done is None else JournalState.DONE
    if storage.stamp(folder / UNDOING) is not None:
        state = JournalState.UNDOING
    return JournalEntry(number, verb, folder, state, manifest, done)


def _read(storage: Storage, path: Path, of_type: Any) -> Any:
    try:
        return msgspec.convert(json.loads(storage.read_file(path, MANIFEST_SIZE_MAX)), of_type)
    except (ValueError, msgspec.ValidationError) as error:
        raise Unreadable(f"the journal is damaged: {error}", path=str(path)) from error


def to_json(value: Manifest | Prints) -> bytes:
    """As it is written. Names that are no UTF-8 have lone surrogates, which only Python's own JSON takes."""
    return json.dumps(msgspec.to_builtins(value)).encode()


def unfinished(storage: Storage, root: Path) -> JournalEntry | None:
    """The change that was left half done; None: there is none. Raises OSError, Unreadable."""
    return next((entry for entry in list_journals(storage, root) if entry.is_unfinished), None)


def words_of_unfinished(entry: JournalEntry) -> str:
    """What is wrong with a store that has such a journal."""
    if entry.state is JournalState.UNDOING:
        return f"an undo of rmqctl {entry.verb} was interrupted: the store is half restored"
    return f"rmqctl {entry.verb} was interrupted: the store is half changed"


def check_none_unfinished(storage: Storage, root: Path) -> None:
    """Raises NeedsRecovery where a change was left half done."""
    entry = unfinished(storage, root)
    if entry is not None:
        raise NeedsRecovery(words_of_unfinished(entry), path=str(root), hint=f"rmqctl undo {root} brings it back")


def prints(storage: Storage, root: Path, paths: Iterable[str]) -> Prints:
    """What tells whether something was written since: of each path, and of every file below it. Raises OSError."""
    found: Prints = {}
    for path in paths:
        found[path] = None
        for below, stamp in tree_of(storage, root / path):
            name = path if below == root / path else f"{path}/{below.relative_to(root / path)}"
            found[name] = (-1, 0) if stamp.kind is Kind.DIRECTORY else (stamp.size, stamp.mtime_ns)
    return found


def watched_prints(storage: Storage, root: Path, touched: list[str]) -> Prints:
    """Of what the use of a store changes, those files that a change does not touch: the log's, and the checkpoint. Raises OSError."""
    folders = [COMMITLOG, *sorted({str(Path(path).parent) for path in touched if Path(path).is_absolute()})]
    files = [f"{folder}/{name}" for folder in folders if storage.stamp(root / folder) is not None for name in storage.names(root / folder)]
    found = prints(storage, root, [*files, CHECKPOINT])
    return {path: value for path, value in found.items() if not any(_is_below(path, of) for of in touched)}


def changed_since(storage: Storage, root: Path, entry: JournalEntry) -> list[str]:
    """The paths that are not as the change left them, or that show that the store was used since. Raises OSError.

    Of a change that was left half done nobody can say what it left: only what it does not touch is looked at.
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


def check_unchanged(storage: Storage, root: Path, entry: JournalEntry) -> None:
    """Raises ChangedSince where an undo would lose what was written since, OSError."""
    changed = changed_since(storage, root, entry)
    if changed:
        what = f"written to since `rmqctl {entry.verb}`: {first_of(changed)}; an undo would lose that, so nothing was changed"
        raise ChangedSince(what, path=str(root), hint="--force undoes it all the same")


def first_of(paths: list[str]) -> str:
    """The first of some paths, and how many there are besides."""
    return f"{paths[0]} and {len(paths) - 1} more" if len(paths) > 1 else paths[0]


def check_not_in_use(storage: Storage, root: Path) -> None:
    """Raises StoreInUse where a broker, or another rmqctl, holds the lock; OSError. Not for who holds it: that would drop it."""
    if storage.lock_holder(root / LOCK) is not None:
        raise in_use(root)


def in_use(root: Path) -> StoreInUse:
    """What there is to say of such a store."""
    return StoreInUse("a broker, or another rmqctl, has the store open", path=str(root), hint="stop it, or work on a copy")


def kept_bytes(storage: Storage, entry: JournalEntry) -> int:
    """How much of the disk a journal takes: what it would free. Files may have holes. Raises OSError."""
    return sum(storage.entry(path).allocated for path, stamp in tree_of(storage, entry.folder) if stamp.kind is Kind.FILE)


def _is_below(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}/")
