"""The entries of the index, checked without the log: chains, order, headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.forensics.audit.index_findings import IndexEvent
from rmqctl.forensics.finding import Finding
from rmqctl.format.index_entry import ENTRY_FIRST, INDEX_ENTRY, INDEX_HEADER, SLOT_SIZE, IndexEntry, IndexHeader
from rmqctl.kernels import index_match
from rmqctl.kernels.index_match import INDEX_EVENTS
from rmqctl.store.read.index.index_service import SLOTS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rmqctl.format.columns import Bytes, Row
    from rmqctl.store.read.index.index_service import IndexFile
    from rmqctl.store.read.read_only_store import ReadOnlyStore

ENTRIES_PER_BLOCK = 65536


class Block(NamedTuple):
    """Successive entries of one index file."""

    file: FileCheck
    first: int  # number of the first entry
    data: Bytes  # the entries
    skipped: Bytes  # which of them are not compared
    incomplete: bool

    def entry(self, number: int) -> IndexEntry:
        """Return one entry of the block."""
        at = (number - self.first) * INDEX_ENTRY.size
        return IndexEntry._make(INDEX_ENTRY.struct.unpack(self.data[at : at + INDEX_ENTRY.size].tobytes()))


class IndexEntries:
    """Reads the entries of an index; `events` tells what is wrong with them."""

    def __init__(self, store: ReadOnlyStore) -> None:
        self.events: list[IndexEvent] = []
        self.files = 0  # of a part: the index files that begin there
        self.last_offset = 0  # the physical offset in the last entry that is in order
        self.is_incomplete = False  # some entries were not read: a key without an entry may have one
        self._store = store
        self._events = np.zeros(3 * ENTRIES_PER_BLOCK, INDEX_EVENTS)

    def cannot_be_read(self, error: OSError) -> None:
        """Add the finding for an index that cannot be read to its end."""
        self.is_incomplete = True
        path = self._store.storage.display(self._store.index.folder)
        self.add(Finding("unreadable", path, None, f"the index cannot be read: {error.strerror}"))

    def add(self, finding: Finding, kind: int | None = None, *, goes_on: bool = False) -> None:
        """Add an event, unless it belongs to the event before."""
        event = IndexEvent(finding, kind, goes_on)
        if not (self.events and self.events[-1].take(event)):
            self.events.append(event)

    def checked(self, files: Iterable[IndexFile]) -> Iterator[Block]:
        """Check slots, order and headers of `files`, and yield their entries.

        The check of a block needs the first entry of the next block.
        """
        before: Block | None = None
        whole = True
        try:
            for block in self._blocks(files):
                if before is not None:
                    following = block.entry(block.first).phy_offset
                    yield self._checked(before, following, last_of_file=block.file is not before.file)
                before = block
        except OSError as error:
            self.cannot_be_read(error)
            whole = False
        if before is not None:
            yield self._checked(before, -1, last_of_file=whole)

    def _blocks(self, files: Iterable[IndexFile]) -> Iterator[Block]:
        for index_file in files:
            file = index_file.file
            header = index_file.header()
            problem = self._store.index.length_problem(index_file)
            if problem is not None:
                self.add(Finding("index-length", file.name, None, problem, file_offset=0))
                self.is_incomplete = True
            if header is None or index_file.slots > SLOTS_MAX:
                continue
            check = FileCheck(index_file, header)
            has_entries = False
            for first, data in index_file.entry_blocks(header.index_count, ENTRIES_PER_BLOCK):
                has_entries = True
                yield self._block_of(check, first, data)
            if not has_entries:
                self._end_file(check)

    def _block_of(self, check: FileCheck, first: int, data: bytes) -> Block:
        raw = np.frombuffer(data, np.uint8)
        skipped = np.zeros(len(raw) // INDEX_ENTRY.size, np.uint8)
        return Block(check, first, raw, skipped, self.is_incomplete)

    def are_right(self, files: Iterable[IndexFile]) -> bool:
        """Check slots, order and headers of `files`, and return whether nothing is wrong."""
        for _ in self.checked(files):
            pass
        return not self.events

    def of_part(self, begin: int, end: int) -> Iterator[Block]:
        """Yield the entries that lead to the physical offsets [begin, end).

        A part checks the files whose first entry leads into it; the log's first part, also those whose first entry is
        of an expired message. If one of them is wrong, `is_incomplete` is set. The entries of all index files must be
        in order, or some may be left out.
        """
        begin = begin if begin > self._store.commit_log.min_offset else 0
        files = list(self._store.index.files_between(begin, end))
        begun = [index_file for index_file, header in files if header.begin_phy_offset >= begin]
        self.files = len(begun)
        self.is_incomplete = not self.are_right(begun)
        for index_file, header in files:
            check = FileCheck(index_file, header)
            first, behind = (index_file.first_reaching(offset, header.index_count) for offset in (begin, end))
            for number, data in index_file.entry_blocks(behind, ENTRIES_PER_BLOCK, first):
                yield self._block_of(check, number, data)
            index_file.file.close()

    def _checked(self, block: Block, following: int, *, last_of_file: bool) -> Block:
        events = self._events
        self.last_offset, used = index_match.check_entries(
            block.data, block.first, block.file.heads, self.last_offset, following, block.skipped, events
        )
        for event in events[:used]:
            self._check_event(event, block)
        block.file.on_messages(block)
        if last_of_file:
            self._end_file(block.file)
        return block

    def _end_file(self, check: FileCheck) -> None:
        if check.index_file.file.size == self._store.index.usual_size:
            for finding in check.finish():
                self.add(finding)
        check.index_file.file.close()

    def _check_event(self, event: Row, block: Block) -> None:
        entry, value = block.entry(int(event["entry"])), int(event["value"])
        if event["kind"] == index_match.ORDER:
            self.add_entries("index-order", event, block, f" leads to {entry.phy_offset}, the one before to {value}")
        elif event["kind"] == index_match.CHAIN:
            detail = f": prevIndex is {entry.prev_index}, the slot's entry before it is {value}"
            self.add_entries("index-chain", event, block, detail)
        else:
            self.add_entries("index-chain", event, block, f": keyHash {entry.key_hash} is negative")

    def add_entries(self, code: str, event: Row, block: Block, detail: str) -> None:
        """Add a row of INDEX_EVENTS about successive entries of a block."""
        number, place = int(event["entry"]), block.file.place(int(event["entry"]))
        finding = Finding(code, block.file.name, block.entry(number).phy_offset, f"entry {number}{detail}", place)
        finding.count = int(event["count"])
        self.add(finding, int(event["kind"]))


class FileCheck:
    """The chains of entries in one file, compared with its slots and header.

    `heads` (int32) has the number of the newest entry of each slot.
    """

    def __init__(self, index_file: IndexFile, header: IndexHeader) -> None:
        self.index_file = index_file
        self.header = header
        # the values that the merge needs
        self.bounds = np.array([header.begin_timestamp, header.end_timestamp, header.index_count], np.int64)
        self.name = index_file.file.name
        self.heads = np.zeros(index_file.slots, np.int32)
        self.first: IndexEntry | None = None
        self.last: IndexEntry | None = None

    def place(self, number: int) -> int:
        """Return the position of an entry in the file."""
        return INDEX_HEADER.size + self.index_file.slots * SLOT_SIZE + number * INDEX_ENTRY.size

    def on_messages(self, block: Block) -> None:
        """Process the entries of a block, in the order of the file."""
        self.first = self.first or block.entry(block.first)
        self.last = block.entry(block.first + len(block.skipped) - 1)

    def finish(self) -> Iterator[Finding]:
        """Yield the differences between slots, header and entries."""
        yield from self._wrong_slots()
        for field, problem in self._header_problems(int(np.count_nonzero(self.heads))):
            what = f"{field} is {problem}"
            yield Finding("index-header", self.name, None, what, file_offset=INDEX_HEADER.offset(field))

    def _wrong_slots(self) -> Iterator[Finding]:
        """Yield a finding if slots do not point to the newest entries of their chains."""
        found: Finding | None = None
        for first, data in self.index_file.slot_blocks():
            stored = np.frombuffer(data, ">i4")
            wrong = np.flatnonzero(stored != self.heads[first : first + len(stored)])
            if found is None and len(wrong):
                slot = first + int(wrong[0])
                detail = f"slot {slot} leads to entry {stored[wrong[0]]}, its newest is {self.heads[slot]}"
                found = Finding("index-chain", self.name, None, detail, INDEX_HEADER.size + slot * SLOT_SIZE, count=0)
            if found is not None:
                found.count += len(wrong)
        if found is not None:
            yield found

    def _header_problems(self, occupied: int) -> Iterator[tuple[str, str]]:
        header = self.header
        if not ENTRY_FIRST <= header.index_count <= self.index_file.capacity:
            yield "indexCount", f"{header.index_count}, the file has room for {self.index_file.capacity}"
        entries = header.index_count - 1
        # brokers up to 4.7.0 count entries, later ones slots
        if not occupied <= header.hash_slot_count <= max(entries, occupied):
            yield "hashSlotCount", f"{header.hash_slot_count}: {occupied} slots are used, by {entries} entries"
        if self.first and self.first.phy_offset != header.begin_phy_offset:
            leads_to = f"the first entry leads to {self.first.phy_offset}"
            yield "beginPhyOffset", f"{header.begin_phy_offset}, {leads_to}"
        if self.last and self.last.phy_offset != header.end_phy_offset:
            yield "endPhyOffset", f"{header.end_phy_offset}, the last entry leads to {self.last.phy_offset}"
