"""`clean` deletes the expired files of its plan, one by one, the oldest first.

An interrupted `clean` therefore leaves no gap in the log. A file is deleted in three steps:

1. It is moved to STORE/.rmqctl/expired, which no broker reads, and both folders are flushed to disk.
2. Its receipt is appended to the receipt files, and flushed to disk.
3. It is unlinked.

Every deleted file has a receipt. After a crash, at most one file is in STORE/.rmqctl/expired, and the next `clean`
deletes it; if the crash came between steps 2 and 3, the file gets a second receipt. Step 1 moves the file out of the
store's folders because a broker loads every file in a log folder or queue folder, and one of 4.x would try to load a
subfolder as a file. It is skipped if `.rmqctl` is on another disk, or if the disk has no room for a folder.

`rmqctl undo` cannot restore these files, because `clean` keeps no copies. The broker must be down during `clean`: while
it runs, a deleted file stays mapped and open, and keeps its disk space (MappedFile.destroy in 4.7.1, 4.9.7 and 5.3.3).
A running broker would use a wrong list of files, and would send a wrong min offset to clients.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.errors import AS_OWNER_HINT, ChangeFailed, reason
from rmqctl.logfile.access.place import PRIVATE_FOLDER_MODE
from rmqctl.logfile.system.storage import Kind
from rmqctl.logfile.system.writable_storage import NO_ROOM
from rmqctl.operations.clean.plan_types import allocated_bytes
from rmqctl.store.config.store_path import LOCK
from rmqctl.store.journal.journals import EXPIRED_FOLDER, check_none_unfinished, expired_folder, in_use, rmqctl_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from rmqctl.logfile.system.storage import Storage
    from rmqctl.logfile.system.writable_storage import WritableStorage
    from rmqctl.operations.clean.plan_types import ExpiryPlan, FileDecision
    from rmqctl.operations.clean.receipts import Receipts

LEFT_BEHIND = "left by a clean that was interrupted"
LOCK_POLL_SECONDS = 0.5
NAME_BYTES_MAX = 200


@dataclass
class Cleaned:
    """The numbers of files and bytes that a run of `clean` has deleted."""

    files: int = 0  # of the plan
    folders: int = 0  # of the plan
    left: int = 0  # files that an interrupted `clean` had moved, and this one deleted
    allocated_bytes: int = 0  # disk space that became free


class Pace:
    """The pace of a deletion: how long `clean` waits after each deleted file.

    Each wait takes at least `interval_ms`, longer after large files: at most `bytes_per_second` are deleted.
    """

    def __init__(
        self, interval_ms: int, bytes_per_second: int | None, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._interval = interval_ms / 1000
        self._bytes_per_second = bytes_per_second
        self._sleep = sleep

    def wait(self, deleted: int) -> None:
        """Pause after the deletion of a file of `deleted` bytes."""
        seconds = max(self._interval, deleted / self._bytes_per_second if self._bytes_per_second else 0)
        if seconds:
            self._sleep(seconds)


class Leftover(NamedTuple):
    """A file that an interrupted `clean` moved out of the store but did not delete."""

    path: Path
    name: str  # its path in the store
    bytes: int
    allocated_bytes: int


def leftovers(storage: Storage, root: Path) -> list[Leftover]:
    """Return the files that an interrupted `clean` moved but did not delete.

    Raises OSError, and Unreadable if STORE/.rmqctl/expired is not a folder.
    """
    folder = expired_folder(storage, root)
    paths = [folder / name for name in storage.names(folder)] if folder is not None else []
    found = [(path, stamp) for path in paths if (stamp := storage.stamp(path)) is not None]
    return [  # `clean` makes no folder in it
        Leftover(path, path.name.replace(":", "/"), stamp.size, allocated_bytes(storage, path))
        for path, stamp in found
        if stamp.kind is not Kind.DIRECTORY
    ]


def wait_for_lock(storage: Storage, root: Path, seconds: float, sleep: Callable[[float], object] = time.sleep) -> None:
    """Wait until the store's lock is free, but at most `seconds`.

    Raises OSError.
    """
    waited = 0.0
    while waited < seconds and storage.lock_holder(root / LOCK) is not None:
        pause = min(LOCK_POLL_SECONDS, seconds - waited)
        sleep(pause)
        waited += pause


@contextmanager
def locked(storage: WritableStorage, root: Path) -> Iterator[None]:
    """Lock the store while the `with` block runs.

    Raises StoreInUse and OSError. Until the end, no other code of this process may open the file `lock`.
    """
    lock = storage.lock(root / LOCK)
    if lock is None:
        raise in_use(root)
    try:
        yield
    finally:
        storage.close(lock)


class Clean:
    """Deletes the files of `plan` from the store at `root`.

    The caller must have locked the store. `run` calls `is_stopped` before each file, and ends if it returns True.
    """

    def __init__(
        self,
        storage: WritableStorage,
        root: Path,
        plan: ExpiryPlan,
        receipts: Receipts,
        pace: Pace,
        is_stopped: Callable[[], bool],
    ) -> None:
        self.done = Cleaned()
        self._storage = storage
        self._root = root
        self._files = plan.going
        self._folders = [root / folder for folder in plan.folders]
        self._receipts = receipts
        self._pace = pace
        self._is_stopped = is_stopped
        self._expired = rmqctl_folder(root) / EXPIRED_FOLDER

    def run(self) -> Cleaned:
        """Delete the files of the plan, and return how many were deleted.

        Raises NeedsRecovery if another change is unfinished. Raises Unreadable, and ChangeFailed if a file cannot be
        deleted.
        """
        check_none_unfinished(self._storage, self._root)
        try:
            self._receipts.open()
            self._remove_leftovers()
            self._delete_all()
            self._receipts.flush()
            self._tidy()
        except OSError as error:
            for way_out in (self._receipts.flush, self._tidy):
                with suppress(OSError):
                    way_out()
            raise self._failed(error) from error
        return self.done

    def _remove_leftovers(self) -> None:
        for one in leftovers(self._storage, self._root):
            self._receipts.add(
                {"path": one.name, "bytes": one.bytes, "allocatedBytes": one.allocated_bytes, "why": LEFT_BEHIND}
            )
            self._storage.remove_file(one.path)
            self.done.left += 1
            self.done.allocated_bytes += one.allocated_bytes

    def _delete_all(self) -> None:
        has_place = self._has_place()
        for number, decision in enumerate(self._files):
            if number:
                self._pace.wait(self._files[number - 1].allocated_bytes)
            if self._is_stopped():
                return
            self._delete(decision, has_place=has_place)
        self.done.folders = self._remove_if_empty(self._folders)

    def _delete(self, decision: FileDecision, *, has_place: bool) -> None:
        storage, path = self._storage, self._root / decision.path
        aside = self._expired / _one_name(decision.path)
        is_out = has_place and self._renamed(path, aside)
        if is_out:
            storage.sync_folder(path.parent)
            storage.sync_folder(self._expired)
        self._receipts.add(_receipt(decision))
        storage.remove_file(aside if is_out else path)
        if not is_out:
            storage.sync_folder(path.parent)
        self.done.files += 1
        self.done.allocated_bytes += decision.allocated_bytes

    def _has_place(self) -> bool:
        """Create the folder for moved files, and return whether it can be used."""
        if not self._files:
            return False
        try:
            self._storage.make_folder(self._expired, PRIVATE_FOLDER_MODE)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return False
        return True

    def _renamed(self, path: Path, aside: Path) -> bool:
        try:
            return self._storage.rename(path, aside)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return False

    def _tidy(self) -> None:
        self._remove_if_empty((self._expired, self._expired.parent))

    def _remove_if_empty(self, folders: Iterable[Path]) -> int:
        """Remove the empty ones of `folders`, and return their number."""
        removed = 0
        for folder in folders:
            if self._storage.stamp(folder) is not None and not self._storage.names(folder):
                self._storage.remove_folder(folder)
                self._storage.sync_folder(folder.parent)
                removed += 1
        return removed

    def _failed(self, error: OSError) -> ChangeFailed:
        where = f"{error.filename}: " if error.filename else ""
        count = len(self._receipts.zero_tail)
        where += f"receipts that could not be written: {count}; " if count else ""
        state = f"{self.done.files} of {len(self._files)} files are deleted, nothing is missing in the middle"
        hint = AS_OWNER_HINT if isinstance(error, PermissionError) else "the next clean goes on with it"
        return ChangeFailed(f"{where}{reason(error)}; {state}", path=str(self._root), hint=hint)


def _receipt(decision: FileDecision) -> dict[str, Any]:
    # the fields have the names of the plan's JSON output
    return {
        "path": decision.path,
        "kind": decision.kind,
        "bytes": decision.bytes,
        "allocatedBytes": decision.allocated_bytes,
        "why": decision.why,
        "lastModifiedTimestamp": decision.mtime_ms,
        "lastStoreTimestamp": decision.last_store_timestamp,
    }


def _one_name(path: str) -> str:
    """Return a path as a file name.

    Each `/` becomes a colon, which no topic contains. Of a long path, the last NAME_BYTES_MAX bytes are used.
    """
    return path.replace("/", ":").encode(errors="surrogateescape")[-NAME_BYTES_MAX:].decode(errors="surrogateescape")
