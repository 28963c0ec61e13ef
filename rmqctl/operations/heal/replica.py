"""Another store of the same log: a slave, a backup, a snapshot.

It is proved to be the same log before any byte of it is used: each whole record of both is equal, but for single bits,
or for damage where no checksum shows it.
A part that the replica lacks, or has damaged itself, is not taken from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmqctl.errors import AnotherLog
from rmqctl.format.message import Blank, Damage, Message
from rmqctl.format.timestamp import rfc3339
from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.logfile.mapped_file_queue import MappedFileQueue
from rmqctl.logfile.system.remote_storage import storage_of
from rmqctl.operations.placeholder.record import is_erased
from rmqctl.store.read.commit_log import CommitLog, message_of

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from rmqctl.store.read.read_only_store import ReadOnlyStore

WRITE_SIZE = 1024 * 1024
PLACES_TRIED = 16  # records and damages at the head of a file that may be a log's
BITS_OF_DAMAGE = 2  # two records that differ in at most so many bits are one record, and one of them is damaged


class Run(NamedTuple):
    """Records of a replica without gaps between them: [begin, end) of the log."""

    begin: int
    end: int
    messages: int
    first: Message | Blank


@dataclass(frozen=True, slots=True)
class ReplicaBytes:
    """Overwrites bytes of a log file with those of a replica, read only then."""

    path: str
    offset: int
    size: int
    replica: Replica
    physical_offset: int

    @property
    def data(self) -> bytes:
        """The replica's bytes. Raises OSError if it no longer has them."""
        return self.replica.read(self.physical_offset, self.size)

    def describe(self) -> str:
        """Return the change in one line."""
        return f"write {self.size} bytes at byte {self.offset} of {self.path}, from {self.replica.name}"

    def to_json(self) -> dict[str, Any]:
        """Return the change as a dict for JSON."""
        return {"action": "write", "path": self.path, "fileOffset": self.offset, "bytes": self.size}


def log_of_file(path: Path) -> CommitLog:
    """Return the log that one file has, whatever its name.

    Its first record says where it begins. Raises OSError, and AnotherLog if there is no record.
    """
    storage, size = storage_of(path.parent, follow_links=False), path.stat().st_size

    def log(base: int) -> CommitLog:
        return CommitLog(MappedFileQueue.of_file(MappedFile(storage, str(path), base, size), storage))

    for item in islice(log(0).scan(), PLACES_TRIED):
        message = message_of(item)
        if message is not None and message.stored_physical_offset >= message.physical_offset:
            return log(message.stored_physical_offset - message.physical_offset)
    what = "does not begin with a record, as a log file does"
    raise AnotherLog(what, path=str(path), hint="`rmqctl salvage` makes a store of an image")


class Replica:
    """The log of a replica, for the store `store`."""

    def __init__(self, store: ReadOnlyStore, name: str, log: CommitLog) -> None:
        self.name, self.log = name, log
        self._store = store
        self.differing: dict[int, Message] = {}  # whole records here that the store has with other bits
        self.replaced: dict[int, int] = {}  # beginnings and ends of what `recover` put into the store, and not here

    def prove(self, suspects: Collection[int]) -> None:
        """Compare all whole records with the store's, but for `suspects`.

        Raises AnotherLog and OSError.
        """
        common = begin = last = 0
        for item in self._store.commit_log.scan():
            if not isinstance(item, Message) or item.physical_offset in suspects:
                continue
            theirs = self.log.at(item.physical_offset)
            if theirs == item:
                common += 1
            elif is_erased(item):
                continue
            elif item.placeholder is not None:
                begin = item.physical_offset if item.physical_offset != last else begin
                self.replaced[begin] = last = item.end
            elif isinstance(theirs, Message) and self._is_same(item, theirs):
                self.differing[item.physical_offset] = theirs
            elif (other := self._other_record(item, theirs)) is not None:
                raise self._another_log(item, other)
        if not common:
            hint = f"it has {self.log.min_offset} to {self.log.end()[0]} of its log"
            raise AnotherLog("has no record in common with the store", path=self.name, hint=hint)

    def _is_same(self, ours: Message, theirs: Message) -> bool:
        if ours.size != theirs.size:
            return False
        if (ours.store_timestamp, ours.body_crc, ours.body) == (theirs.store_timestamp, theirs.body_crc, theirs.body):
            return True
        here = _read_at(self._store.commit_log, ours.physical_offset, ours.size)
        return bits_between(self.read(ours.physical_offset, ours.size), here) <= BITS_OF_DAMAGE

    def _other_record(self, ours: Message, theirs: Message | Blank | Damage | None) -> Message | Blank | None:
        """Return what the replica has in place of a record; None if it lacks it."""
        if isinstance(theirs, Message | Blank):
            return theirs
        following = self.log.next_record(ours.physical_offset + 1)
        if following is None or following >= ours.end:
            return None
        found = self.log.at(following)
        return found if isinstance(found, Message) else None

    def _another_log(self, ours: Message, theirs: Message | Blank) -> AnotherLog:
        what = f"is another log than {self._store.path.root}: it first differs"
        here = f"{ours.topic}/{ours.queue_id} of {rfc3339(ours.store_timestamp)}"
        there = "a blank"
        if isinstance(theirs, Message):
            there = f"{theirs.topic}/{theirs.queue_id} of {rfc3339(theirs.store_timestamp)}"
        return AnotherLog(what, path=self.name, offset=ours.physical_offset, hint=f"{here} here, {there} there")

    def run(self, begin: int, end: int) -> Run | None:
        """Return the replica's whole records from `begin` on, up to `end`.

        That part of the log is damaged in the store. The last one may end behind the part only where the store has
        zeros. None if no record begins there.
        """
        place, messages, first = begin, 0, None
        while place < end and isinstance(item := self.log.at(place), Message | Blank):
            if item.end > end and not self._is_free(end, item.end):
                break
            first = first or item
            messages += isinstance(item, Message)
            place = item.end
        run = None if first is None else Run(begin, place, messages, first)
        return run if run is not None and self._belongs(run, end) else None

    def original(self, place: int) -> Run | None:
        """Return the records that placeholders from `place` on replaced, or None."""
        end = self.replaced.get(place, place)
        run = self.run(place, end)
        return run if run is not None and run.end == end else None

    def next_record(self, begin: int, end: int) -> int:
        """Return where the next record of the replica begins behind `begin`, or `end`."""
        found = self.log.next_record(begin + 1)
        return end if found is None else min(found, end)

    def _is_free(self, begin: int, end: int) -> bool:
        file = self._store.commit_log.queue.find(begin)
        return file is not None and end <= file.end and not any(file.read(begin - file.file_from_offset, end - begin))

    def _belongs(self, run: Run, end: int) -> bool:
        """Return whether a run is what the store had.

        The next record is the same, or most of its bytes are, or all that are not zero.
        """
        behind = self._store.commit_log.at(end)
        if run.end <= end and isinstance(behind, Message | Blank) and self.log.at(end) == behind:
            return True
        size = min(run.end - run.begin, WRITE_SIZE)
        ours = np.frombuffer(_read_at(self._store.commit_log, run.begin, size), np.uint8)
        same = ours == np.frombuffer(self.read(run.begin, size), np.uint8)
        return bool(np.count_nonzero(same) * 2 > size or np.all(same | (ours == 0)))

    def read(self, physical_offset: int, size: int) -> bytes:
        """Return bytes of the replica's log. Raises OSError."""
        return _read_at(self.log, physical_offset, size)

    def writes(self, run: Run) -> list[ReplicaBytes]:
        """Return the changes that write a run into the store."""
        found, place = [], run.begin
        while place < run.end:
            file = self._store.commit_log.queue.find(place)
            if file is None:
                break
            size = min(WRITE_SIZE, run.end - place, file.end - place)
            found.append(ReplicaBytes(file.name, place - file.file_from_offset, size, self, place))
            place += size
        return found


def bits_between(one: bytes, other: bytes) -> int:
    """Return in how many bits two values of one size differ."""
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).bit_count()


def _read_at(log: CommitLog, physical_offset: int, size: int) -> bytes:
    parts = []
    while size > 0 and (file := log.queue.find(physical_offset)) is not None:
        part = file.read_exact(physical_offset - file.file_from_offset, min(size, file.end - physical_offset))
        parts.append(part)
        physical_offset, size = physical_offset + len(part), size - len(part)
    return b"".join(parts)
