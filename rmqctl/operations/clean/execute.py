"""Carries the plan of `clean` out.

Expired files go, the oldest first, so that wherever it ends nothing is missing in the middle.

    out    the file is renamed into STORE/.rmqctl/expired, where no broker looks; both folders are synced
    told   its receipt is appended to the receipts, on the disk
    gone   it is unlinked

Only then comes the next file. So a crash costs at most that one file of those that were to go is neither in its place
nor gone yet, and the next `clean` removes it; of each file that is gone there is a receipt, twice where a crash came
between. Brokers take every name in a folder of files for one of theirs, 4.x a folder, too: no other name there is safe.
Where `.rmqctl` is on another disk than the file, or the disk is too full for a folder, the file is unlinked in its
place, which is one step for a broker as well.

There is no way back: the space is what is wanted. The broker must be down. One that runs keeps its files mapped and
open, and the disk gets nothing back before the broker unmaps them in a round of its own (MappedFile.destroy in 4.7.1,
4.9.7 and 5.3.3), which its lists, and the min offset that it tells its clients, wait for, too.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.errors import ChangeFailed
from rmqctl.logfile.access.place import PRIVATE_FOLDER_MODE
from rmqctl.logfile.system.storage import Kind, tree_of
from rmqctl.operations.clean.plan_types import allocated_bytes
from rmqctl.operations.clean.receipts import NO_ROOM
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
    """What was deleted so far: `files` and `folders` of the plan, `left` by an interrupted clean.

    `allocated_bytes`: what they took.
    """

    files: int = 0
    folders: int = 0
    left: int = 0
    allocated_bytes: int = 0


class Pace:
    """How long to wait before the next file: `interval_ms`, or longer where `bytes_per_second` is to be kept."""

    def __init__(
        self, interval_ms: int, bytes_per_second: int | None, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._interval = interval_ms / 1000
        self._bytes_per_second = bytes_per_second
        self._sleep = sleep

    def wait(self, deleted: int) -> None:
        """Wait after a file of `deleted` bytes."""
        seconds = max(self._interval, deleted / self._bytes_per_second if self._bytes_per_second else 0)
        if seconds:
            self._sleep(seconds)


class Leftover(NamedTuple):
    """A file that an interrupted `clean` took out of the store and did not delete.

    `name` is the path that it had.
    """

    path: Path
    name: str
    bytes: int
    allocated_bytes: int


def leftovers(storage: Storage, root: Path) -> list[Leftover]:
    """Return what an interrupted `clean` left.

    Raises OSError, Unreadable where that is no folder of ours.
    """
    folder = expired_folder(storage, root)
    found = tree_of(storage, folder) if folder is not None else ()
    paths = [(path, stamp.size) for path, stamp in found if stamp.kind is not Kind.DIRECTORY]
    return [Leftover(path, path.name.replace(":", "/"), size, allocated_bytes(storage, path)) for path, size in paths]


def wait_for_lock(storage: Storage, root: Path, seconds: float, sleep: Callable[[float], object] = time.sleep) -> None:
    """Return as soon as nobody holds the store's lock, or after so many seconds.

    Raises OSError. Not for who holds it.
    """
    waited = 0.0
    while waited < seconds and storage.lock_holder(root / LOCK) is not None:
        pause = min(LOCK_POLL_SECONDS, seconds - waited)
        sleep(pause)
        waited += pause


@contextmanager
def locked(storage: WritableStorage, root: Path) -> Iterator[None]:
    """Hold the store's lock.

    Raises StoreInUse, OSError; nothing in this process may open the file `lock` meanwhile.
    """
    lock = storage.lock(root / LOCK)
    if lock is None:
        raise in_use(root)
    try:
        yield
    finally:
        storage.close(lock)


class Clean:
    """Deletes what `plan` says of the store at `root`, whose lock is held.

    `is_stopped` is asked before each file.
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
        """Delete what the plan says, and return what was deleted.

        Raises NeedsRecovery where another change was left half done, Unreadable, ChangeFailed. The next run does what
        this one could not do.
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
        """Return whether there is a folder that files can be moved to."""
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
        """Remove what the run needed meanwhile."""
        self._remove_if_empty((self._expired, self._expired.parent))

    def _remove_if_empty(self, folders: Iterable[Path]) -> int:
        """Remove the folders that are empty; return how many were removed."""
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
        hint = "run it as the store's owner" if isinstance(error, PermissionError) else "the next clean goes on with it"
        return ChangeFailed(f"{where}{error.strerror}; {state}", path=str(self._root), hint=hint)


def _receipt(decision: FileDecision) -> dict[str, Any]:
    """Return the receipt, with the names of the plan."""
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
    """Return a path as the name of one file.

    Of a long one its end. No topic has a colon.
    """
    return path.replace("/", ":").encode(errors="surrogateescape")[-NAME_BYTES_MAX:].decode(errors="surrogateescape")
