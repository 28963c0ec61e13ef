"""What `clean` would delete, file by file, and why: frozen, shown first, then carried out.

Paths are relative to the store's root (`commitlog/00000000000000000000`), or absolute for a commit log that lies elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

FileKind = Literal["commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index"]
Trigger = Literal["time", "disk", "manual", "by hand"]


class Waiting(NamedTuple):
    """Messages that someone waits for: `unconsumed` by at least one group, `scheduled` for later, `half` transactions not yet decided."""

    unconsumed: int = 0
    scheduled: int = 0
    half: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)


NOBODY_WAITS = Waiting()


def sum_of(each: Iterable[Waiting]) -> Waiting:
    """All of them together."""
    found = NOBODY_WAITS
    for one in each:
        found = Waiting(*map(add, found, one))
    return found


@dataclass(frozen=True)
class FileFate:
    """A file that goes or stays. `size` is its length, `bytes` what it takes on the disk; times in ms since 1970.

    `last_store_timestamp` is that of the record behind the file, so never too early; None: not known. Of a queue, an extension or the
    index it is not looked for. `waiting` is counted where a file of the log goes, or stays because of it.
    """

    path: str
    kind: FileKind
    size: int
    bytes: int
    goes: bool
    why: str
    mtime_ms: int
    last_store_timestamp: int | None = None
    waiting: Waiting = NOBODY_WAITS


class QueueRise(NamedTuple):
    """A queue whose first message goes: queue offsets of the first that is left, before and after."""

    topic: str
    queue_id: int
    min_offset: int
    new_min_offset: int


@dataclass(frozen=True)
class ExpiryPlan:
    """What one run deletes. `files` stand in the order of deletion: the log, extensions and queues by name, the index.

    `trigger` is None where nothing asks for deletion: then no file of the log goes, but files of queues and the index may that an earlier
    run left. `reason` says it in words. `hour` and `time_zone` are this host's at the time asked about.
    """

    trigger: Trigger | None
    reason: str
    hour: int
    time_zone: str
    files: tuple[FileFate, ...]
    min_phy_offset: int
    new_min_phy_offset: int
    rises: tuple[QueueRise, ...]
    warnings: tuple[str, ...]

    @property
    def going(self) -> tuple[FileFate, ...]:
        """The files that go."""
        return tuple(file for file in self.files if file.goes)

    @property
    def bytes(self) -> int:
        """What the files that go take on the disk."""
        return sum(file.bytes for file in self.going)

    @property
    def waiting(self) -> Waiting:
        """The messages in the files that go that someone waits for."""
        return sum_of(file.waiting for file in self.going)
