"""The plan of `clean`: the files to delete, each with the reason.

`clean` executes exactly the plan that it has shown. Paths in the plan are relative to the store's root
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
    """Counts of messages that consumers or brokers still need.

    `unconsumed` counts messages that at least one group has not consumed. `scheduled` counts delayed messages that are
    not delivered yet. `half` counts half messages without a commit or rollback. `dead` counts dead letters that no
    group reads.
    """

    unconsumed: int = 0
    scheduled: int = 0
    half: int = 0
    dead: int = 0

    @property
    def total(self) -> int:
        """Return the sum of all counts."""
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

    If `goes` is True, the file is deleted. `bytes` is the length of the file, and `allocated_bytes` is its disk space.
    Times are in ms since 1970. `last_store_timestamp` is the store time of the first record after a log file. If no
    clock was set back, no record of the log file is younger than `last_store_timestamp`. `last_store_timestamp` is None
    if the store time is not known, or if the file is not a log file. `waiting` counts messages in the file that
    consumers or brokers still need. `waiting` is counted for deleted log files and for the first log file that stays.
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
    """Return the decision on a file, with the file's sizes and times from the disk.

    Raises OSError.
    """
    path = file.path
    entry = storage.entry(path)
    allocated = 0 if is_link(storage, path) else entry.allocated
    return FileDecision(file.name, kind, entry.size, allocated, goes, why, entry.mtime)


def allocated_bytes(storage: Storage, path: Path) -> int:
    """Return how many bytes of the disk become free if a path is deleted.

    For a symbolic link, the result is 0, because the link's target stays. Raises OSError.
    """
    return 0 if is_link(storage, path) else storage.entry(path).allocated


def is_link(storage: Storage, path: Path) -> bool:
    """Return whether a path is a symbolic link. Raises OSError."""
    stamp = storage.stamp(path)
    return stamp is not None and stamp.kind is Kind.OTHER


class MinOffsetAdvance(NamedTuple):
    """A queue whose min offset increases because `clean` deletes messages.

    `min_offset` and `new_min_offset` are the queue offsets of the queue's first message before and after the deletion.
    """

    topic: str
    queue_id: int
    min_offset: int
    new_min_offset: int


class UnreadTopic(NamedTuple):
    """A topic that loses messages, and that no group reads.

    `messages` is the number of the topic's messages in files that are deleted.
    """

    topic: str
    messages: int


@dataclass(frozen=True)
class ExpiryPlan:
    """The files that one run of `clean` deletes.

    `files` are in the order of deletion: the log, each queue and then its extension, the index. `trigger` is the reason
    for the deletion, and `reason` is the reason as text. If `trigger` is None, no log file is deleted, but queue files
    and index files may be deleted. `hour` is the hour that is compared with deleteWhen, in the time zone of this host.
    `time_zone` is the time zone of this host as text. `folders` are the queue folders and topic folders that are
    removed after all their files. `unread` lists topics that lose messages, and that no group reads.
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
        """Return the files that are deleted."""
        return tuple(file for file in self.files if file.goes)

    @property
    def first_left(self) -> FileDecision | None:
        """Return the first log file that stays, or None."""
        return next((file for file in self.files if file.kind == "commitlog" and not file.goes), None)

    @property
    def bytes(self) -> int:
        """Return the total length of the files that are deleted, in bytes."""
        return sum(file.bytes for file in self.going)

    @property
    def allocated_bytes(self) -> int:
        """Return the disk space of the files that are deleted, in bytes."""
        return sum(file.allocated_bytes for file in self.going)

    @property
    def waiting(self) -> PendingCounts:
        """Return the counts of needed messages in the files that are deleted."""
        return sum_of(file.waiting for file in self.going)
