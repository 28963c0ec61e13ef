"""The plan of `clean`: the files to delete, each with the reason.

`clean` executes exactly the plan that it has shown. Paths are relative to the store's root
(`commitlog/00000000000000000000`), or absolute if the commit log lies outside the store.
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
    """Counts of messages that consumers or brokers still need."""

    unconsumed: int = 0  # by at least one group
    scheduled: int = 0  # delayed messages that are not delivered yet
    half: int = 0  # half messages without a commit or rollback
    dead: int = 0  # dead letters that no group reads

    @property
    def total(self) -> int:
        """The sum of all counts."""
        return sum(self)


NOBODY_WAITS = PendingCounts()


def sum_of(each: Iterable[PendingCounts]) -> PendingCounts:
    """Return the sum of the counts."""
    found = NOBODY_WAITS
    for one in each:
        found = PendingCounts(*map(add, found, one))
    return found


@dataclass(frozen=True)
class FileDecision:
    """The decision whether a file of the store is deleted or stays.

    Times are in ms since 1970.
    """

    path: str
    kind: FileKind
    bytes: int  # the length of the file
    allocated_bytes: int  # its disk space
    goes: bool  # the file is deleted
    why: str
    mtime_ms: int
    # store time of the first record after a log file: no record of the file is younger, unless a clock was set back;
    # None: not known, or no log file
    last_store_timestamp: int | None = None
    # messages that are still needed; counted for deleted log files, and the first that stays
    waiting: PendingCounts = NOBODY_WAITS


def fate_of(storage: Storage, file: MappedFile, kind: FileKind, why: str, *, goes: bool = False) -> FileDecision:
    """Return the decision on a file, with its sizes and times from the disk.

    Raises OSError.
    """
    path = file.path
    entry = storage.entry(path)
    allocated = 0 if is_link(storage, path) else entry.allocated
    return FileDecision(file.name, kind, entry.size, allocated, goes, why, entry.mtime)


def allocated_bytes(storage: Storage, path: Path) -> int:
    """Return how many bytes of the disk become free if a path is deleted.

    0 for a symbolic link, because its target stays. Raises OSError.
    """
    return 0 if is_link(storage, path) else storage.entry(path).allocated


def is_link(storage: Storage, path: Path) -> bool:
    """Return whether a path is a symbolic link. Raises OSError."""
    stamp = storage.stamp(path)
    return stamp is not None and stamp.kind is Kind.OTHER


class MinOffsetAdvance(NamedTuple):
    """A queue whose min offset increases because `clean` deletes messages."""

    topic: str
    queue_id: int
    min_offset: int  # queue offset of its first message before the deletion
    new_min_offset: int  # and after it


class UnreadTopic(NamedTuple):
    """A topic that loses messages, and that no group reads."""

    topic: str
    messages: int  # in files that are deleted


@dataclass(frozen=True)
class ExpiryPlan:
    """The files that one run of `clean` deletes."""

    trigger: Trigger | None  # why log files are deleted; None: none are, but maybe files of queues and index
    reason: str  # the same as text
    hour: int  # compared with deleteWhen, in the time zone of this host
    time_zone: str  # of this host, as text
    files: tuple[FileDecision, ...]  # in the order of deletion: the log, each queue and then its extension, the index
    min_phy_offset: int
    new_min_phy_offset: int
    rises: tuple[MinOffsetAdvance, ...]
    warnings: tuple[str, ...]
    folders: tuple[str, ...] = ()  # of queues and topics, which are removed after all their files
    unread: tuple[UnreadTopic, ...] = ()  # topics that lose messages, and that no group reads

    @property
    def going(self) -> tuple[FileDecision, ...]:
        """The files that are deleted."""
        return tuple(file for file in self.files if file.goes)

    @property
    def first_left(self) -> FileDecision | None:
        """The first log file that stays, or None."""
        return next((file for file in self.files if file.kind == "commitlog" and not file.goes), None)

    @property
    def bytes(self) -> int:
        """The total length of the files that are deleted."""
        return sum(file.bytes for file in self.going)

    @property
    def allocated_bytes(self) -> int:
        """The disk space of the files that are deleted, in bytes."""
        return sum(file.allocated_bytes for file in self.going)

    @property
    def waiting(self) -> PendingCounts:
        """The counts of needed messages in the files that are deleted."""
        return sum_of(file.waiting for file in self.going)
