"""Log against index, one message and one entry at a time: the second opinion on `rmqctl.forensics.audit.index_audit`.

Every key of every message is in the index, every entry leads to such a message, every chain holds.

Entries stand in the order of the log, so one pass over both is a merge. Memory: the slot table of one index file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.forensics.audit.index_entries import FileCheck
from rmqctl.forensics.finding import Finding
from rmqctl.format import properties
from rmqctl.format.index_entry import (
    ENTRY_FIRST,
    INDEX_ENTRY,
    INDEX_HEADER,
    SLOT_SIZE,
    TIME_DIFF_MAX,
    IndexEntry,
    IndexHeader,
    key_hash,
    tag_key_hash,
    unique_key_hash,
)
from rmqctl.format.sys_flag import TransactionType, transaction_type
from rmqctl.store.read.index.index_service import SLOTS_MAX
from rmqctl.store.read.version_guess import looks_like_3x

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.message import Message
    from rmqctl.store.read.index.index_service import IndexFile
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class IndexKeys(NamedTuple):
    """keyHashes of a message that the index must have, and those that it may have (what 3.2.6 leaves out)."""

    required: frozenset[int]
    allowed: frozenset[int]


def index_keys(message: Message, *, like_3x: bool) -> IndexKeys:
    """UNIQ_KEY and each word of KEYS; nothing for rollback. 3.2.6 knows no UNIQ_KEY, and leaves out commit records."""
    kind = transaction_type(message.sys_flag)
    if kind is TransactionType.ROLLBACK:
        return IndexKeys(frozenset(), frozenset())
    found = message.properties
    topic = message.topic
    words = frozenset(key_hash(topic, word) for word in properties.keys(found))
    unique = unique_key_hash(message)
    every = words | {unique} if unique is not None else words
    tags = found.get(properties.TAGS)
    allowed = every | {tag_key_hash(topic, tags)} if tags else every
    if not like_3x:
        return IndexKeys(every, allowed)
    return IndexKeys(frozenset() if kind is TransactionType.COMMIT else words, allowed)


class _Place:
    """An entry of the index where it stands."""

    def __init__(self, index_file: IndexFile, header: IndexHeader, number: int, entry: IndexEntry) -> None:
        self.name = index_file.file.name
        self.header = header
        self.number = number
        self.entry = entry
        self.file_offset = INDEX_HEADER.size + index_file.slots * SLOT_SIZE + number * INDEX_ENTRY.size


class IndexAudit:
    """Collects what is wrong with the index in `findings`."""

    def __init__(self, store: ReadOnlyStore) -> None:
        self.findings: list[Finding] = []
        self._store = store
        self._like_3x = False
        self._places = self._walk()
        self._next: _Place | None = None
        self._incomplete = False
        self._open: dict[str, Finding] = {}
        self._wrong_begin: set[str] = set()
        self._missing: Finding | None = None
        self._missing_from = 0
        self._has_tag_entries = False
        self._tags_open: list[int] = []
        self._advance()

    def on_messages(self, message: Message) -> None:
        """A message of the log, in log order."""
        self._skip_before(message.physical_offset)
        keys = index_keys(message, like_3x=self._like_3x)
        found = set()
        while self._next is not None and self._next.entry.phy_offset == message.physical_offset:
            place = self._next
            found.add(place.entry.key_hash)
            if place.entry.key_hash not in keys.allowed:
                self._add(
                    "index-dangling",
                    place,
                    f"entry {place.number}: the message has no key with hash {place.entry.key_hash}",
                )
            else:
                self._check_time(place, message)
            self._advance()
        missing = len(keys.required - found)
        is_told = self._store.conf.index_enabled and not self._incomplete
        if missing and is_told:
            self._add_missing(message, missing)
            return
        if keys.required:
            self._missing = None
        if is_told and not self._like_3x:
            self._see_tags(message, keys.allowed - keys.required, found)

    def _see_tags(self, message: Message, hashes: frozenset[int], found: set[int]) -> None:
        """Messages without an entry for TAGS between such that have one; `hashes` is that of TAGS, where no other key
        has it.
        """
        if hashes and not hashes & found:
            self._tags_open.append(message.physical_offset)
        elif hashes:
            if self._tags_open and self._has_tag_entries:
                path = self._store.storage.display(self._store.index.folder)
                what = "TAGS of the message are not in the index, although those of messages before and after it are"
                self.findings.append(
                    Finding("index-missing", path, self._tags_open[0], what, count=len(self._tags_open))
                )
            self._has_tag_entries, self._tags_open = True, []

    def finish(self) -> None:
        """What the index has after the last message."""
        self._skip_before(None)

    def _advance(self) -> None:
        try:
            self._next = next(self._places, None)
        except OSError as error:
            self._next, self._incomplete = None, True
            path = self._store.storage.display(self._store.index.folder)
            self.findings.append(Finding("unreadable", path, None, f"the index cannot be read: {error.strerror}"))

    def _walk(self) -> Iterator[_Place]:
        """The entries of all files in order; one that is out of order is told and left out.

        Out of order is an entry after the one before, or so far ahead that only for its sake the next would be.
        """
        last_offset = 0
        entries = self._entries()
        place = next(entries, None)
        while place is not None:
            following = next(entries, None)
            offset = place.entry.phy_offset
            ahead = following is not None and last_offset <= following.entry.phy_offset < offset
            if offset < last_offset or ahead:
                self._add(
                    "index-order", place, f"entry {place.number} leads to {offset}, the one before to {last_offset}"
                )
            else:
                yield place
                last_offset = offset
            place = following

    def _entries(self) -> Iterator[_Place]:
        """The entries of all files, each file checked on the way."""
        self._like_3x = looks_like_3x(self._store)
        for index_file in self._store.index.files:
            file = index_file.file
            header = index_file.header()
            problem = self._store.index.length_problem(index_file)
            if problem is not None:
                self.findings.append(Finding("index-length", file.name, None, problem, file_offset=0))
                self._incomplete = True
            if header is None or index_file.slots > SLOTS_MAX:
                continue
            check = _FileCheck(index_file, header)
            for number, entry in _entries_of(index_file, header.index_count):
                place = _Place(index_file, header, number, entry)
                problem = check.see_entry(number, entry)
                if problem:
                    self._add("index-chain", place, f"entry {number}: {problem}")
                yield place
            if file.size == self._store.index.usual_size:
                self.findings += check.finish()
            file.close()

    def _skip_before(self, physical_offset: int | None) -> None:
        """Take entries that lead before `physical_offset` (None: all that are left): to expired
        messages, or to none.
        """
        while self._next is not None and (physical_offset is None or self._next.entry.phy_offset < physical_offset):
            place = self._next
            if place.entry.phy_offset >= self._store.commit_log.min_offset:
                self._add(
                    "index-dangling",
                    place,
                    f"entry {place.number} leads to {place.entry.phy_offset}, where no message is",
                )
            self._advance()

    def _check_time(self, place: _Place, message: Message) -> None:
        """The header's times are those of the first and the last entry's message; a later entry's time is relative to
        the first.
        """
        begin, stored = place.header.begin_timestamp, message.store_timestamp
        if place.number == ENTRY_FIRST and begin != stored:
            self._add_header(
                place, "beginTimestamp", f"beginTimestamp is {begin}, the first message's store time {stored}"
            )
        if place.number == place.header.index_count - 1 and place.header.end_timestamp != stored:
            what = f"endTimestamp is {place.header.end_timestamp}, the last message's store time {stored}"
            self._add_header(place, "endTimestamp", what)
        wanted = min(max(stored - begin, 0) // 1000, TIME_DIFF_MAX)
        if place.number > ENTRY_FIRST and place.name not in self._wrong_begin and place.entry.time_diff != wanted:
            self._add(
                "index-time",
                place,
                f"entry {place.number}: timeDiff is {place.entry.time_diff} s, the message's is {wanted} s",
            )

    def _add_header(self, place: _Place, field: str, detail: str) -> None:
        if field == "beginTimestamp":
            self._wrong_begin.add(place.name)
        self.findings.append(Finding("index-header", place.name, None, detail, file_offset=INDEX_HEADER.offset(field)))

    def _add(self, code: str, place: _Place, detail: str) -> None:
        before = self._open.get(code)
        if before is not None and before.path == place.name and _follows(before, place):
            before.count += 1
            return
        finding = Finding(code, place.name, place.entry.phy_offset, detail, file_offset=place.file_offset)
        self._open[code] = finding
        self.findings.append(finding)

    def _add_missing(self, message: Message, missing: int) -> None:
        """Messages that are not in the index count as one finding until one comes that is."""
        if self._missing is None:
            path = self._store.storage.display(self._store.index.folder)
            self._missing = Finding(
                "index-missing",
                path,
                message.physical_offset,
                f"{missing} keys of the message are not in the index",
                count=0,
            )
            self._missing.topic, self._missing.queue_id, self._missing.queue_offset = (
                message.topic,
                message.queue_id,
                message.queue_offset,
            )
            self._missing_from = message.physical_offset
            self.findings.append(self._missing)
        self._missing.count += 1
        self._missing.size = message.end - self._missing_from


def _entries_of(index_file: IndexFile, index_count: int) -> Iterator[tuple[int, IndexEntry]]:
    for first, data in index_file.entry_blocks(index_count, 1000):
        yield from (
            (first + at, IndexEntry._make(fields)) for at, fields in enumerate(INDEX_ENTRY.struct.iter_unpack(data))
        )


def _follows(before: Finding, place: _Place) -> bool:
    return before.file_offset is not None and before.file_offset + before.count * INDEX_ENTRY.size == place.file_offset


class _FileCheck(FileCheck):
    """The chains of one file, an entry at a time."""

    def see_entry(self, number: int, entry: IndexEntry) -> str | None:
        """Take an entry into account; what is wrong with it."""
        self.first = self.first or entry
        self.last = entry
        if entry.key_hash < 0 or not self.index_file.slots:
            return f"keyHash {entry.key_hash} is negative"
        slot = entry.key_hash % self.index_file.slots
        wanted = int(self.heads[slot])
        self.heads[slot] = number
        return (
            None
            if entry.prev_index == wanted
            else f"prevIndex is {entry.prev_index}, the slot's entry before it is {wanted}"
        )
