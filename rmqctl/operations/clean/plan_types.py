"""What `clean` would delete, file by file, and why: frozen, shown first, then carried out.

Paths are relative to the store's root (`commitlog/00000000000000000000`), or absolute for a commit log that lies
elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING, Literal, NamedTuple

from rmqctl.logfile.system.storage import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.logfile.system.storage import Storage

FileKind = Literal["commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index"]
Trigger = Literal["time", "disk", "manual", "by hand"]


class PendingCounts(NamedTuple):
    """Messages that someone waits for.

    `unconsumed` by at least one group, `scheduled` for later, `half` transactions not yet decided, `dead` letters that
    no group reads.
    """

    unconsumed: int = 0
    scheduled: int = 0
    half: int = 0
    dead: int = 0

    @property
    def total(self) -> int:
        """Return all of them."""
        return sum(self)


NOBODY_WAITS = PendingCounts()


def sum_of(each: Iterable[PendingCounts]) -> PendingCounts:
    """Return all of them together."""
    found = NOBODY_WAITS
    for one in each:
        found = PendingCounts(*map(add, found, one))
    return found


@dataclass(frozen=True)
class FileDecision:
    """A file that goes or stays.

    `bytes` is its length, `allocated_bytes` what it takes on the disk; times in ms since 1970.

    `last_store_timestamp` is that of the record after the file: its own last one is no later, unless a clock was set
    back; None: not known. Of a queue, an extension or the index it is not looked for. `waiting` is counted where a file
    of the log goes, or stays because of it.
    """

    path: str
    kind: FileKind
    bytes: int
    allocated_bytes: int
    goes: bool
    why: str
    mtime_ms: int
    last_store_timestamp: int | None = None
    waiting: PendingCounts = NOBODY_WAITS


def fate_of(storage: Storage, file: MappedFile, kind: FileKind, why: str, *, goes: bool = False) -> FileDecision:
    """Return the decision on a file, from the file as it is on the disk.

    Raises OSError.
    """
    entry = storage.entry(file.path)
    return FileDecision(file.name, kind, entry.size, allocated_bytes(storage, file.path), goes, why, entry.mtime)


def allocated_bytes(storage: Storage, path: Path) -> int:
    """Return how many bytes of the disk become free when a name is deleted.

    For a link 0: the file that it leads to stays. Raises OSError.
    """
    return 0 if is_link(storage, path) else storage.entry(path).allocated


def is_link(storage: Storage, path: Path) -> bool:
    """Return whether a name itself is a link. Raises OSError."""
    stamp = storage.stamp(path)
    return stamp is not None and stamp.kind is Kind.OTHER


class MinOffsetAdvance(NamedTuple):
    """A queue whose first message goes: queue offsets of the first that is left, before and after."""

    topic: str
    queue_id: int
    min_offset: int
    new_min_offset: int


class UnreadTopic(NamedTuple):
    """A topic that no group reads; `messages` of it are in files that go."""

    topic: str
    messages: int


@dataclass(frozen=True)
class ExpiryPlan:
    """What one run deletes.

    `files` stand in the order of deletion: the log, each queue and then its extension, the index.

    `trigger` is None where nothing asks for deletion: then no file of the log goes, but files of queues and the index
    may that an earlier run left. `reason` says it in words. `hour` and `time_zone` are this host's at the time asked
    about. `folders` go when their files are gone: those of queues and topics that go as a whole. `unread` has the
    topics without a group that lose messages.
    """

    trigger: Trigger | None
    reason: str
    hour: int
    time_zone: str
    files: tuple[FileDecision, ...]
    min_phy_offset: int
    new_min_phy_offset: int
    rises: tuple[MinOffsetAdvance, ...]
    warnings: tuple[str, ...]
    folders: tuple[str, ...] = ()
    unread: tuple[UnreadTopic, ...] = ()

    @property
    def going(self) -> tuple[FileDecision, ...]:
        """Return the files that go."""
        return tuple(file for file in self.files if file.goes)

    @property
    def first_left(self) -> FileDecision | None:
        """Return the file of the log that stays, and all after it."""
        return next((file for file in self.files if file.kind == "commitlog" and not file.goes), None)

    @property
    def bytes(self) -> int:
        """Return the lengths of the files that go."""
        return sum(file.bytes for file in self.going)

    @property
    def allocated_bytes(self) -> int:
        """Return what they take on the disk."""
        return sum(file.allocated_bytes for file in self.going)

    @property
    def waiting(self) -> PendingCounts:
        """Return the messages in the files that go that someone waits for."""
        return sum_of(file.waiting for file in self.going)
