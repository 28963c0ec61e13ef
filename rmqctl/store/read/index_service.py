"""The index: from a topic's key to the physical offsets of messages.

Messages found by their key's hash may have another key.

A look-up follows a slot's chain from the newest entry to the oldest. In a damaged file a chain ends where its next
number is not below the entry's own, so that no chain is longer than the file.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

from rmqctl.format import index_entry
from rmqctl.format.index_entry import ENTRY_FIRST, INDEX_ENTRY, INDEX_HEADER, SLOT_SIZE, IndexEntry, IndexHeader
from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.logfile.system.storage import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmqctl.logfile.system.storage import Storage

SLOTS_PER_BLOCK = 65536
NAME_LENGTH = 17  # yyyyMMddHHmmssSSS


class IndexFile:
    """One index file with `slots` hash slots (`configured`, or read off the file).

    Methods raise OSError.
    """

    def __init__(self, file: MappedFile, configured: int | None = None, usual: int = 0) -> None:
        self.file = file
        self._configured = configured
        self._usual = usual

    @cached_property
    def slots(self) -> int:
        """Return how many hash slots the file has.

        That is the configured number, or the one that its length or the other files show where its header agrees;
        otherwise the one that the entries show.
        """
        if self._configured:
            return self._configured
        own = index_entry.slots_of_file(self.file.size)
        guesses = (own, self._usual) if index_entry.is_whole_file(self.file.size) else (self._usual, own)
        header = self.header()
        if header is None or header.index_count < 2:
            return guesses[0]
        fitting = [guess for guess in guesses if guess and self._fits(guess, header)]
        return fitting[0] if fitting else self._slots_by_last_entry(header) or guesses[0]

    def _fits(self, slots: int, header: IndexHeader) -> bool:
        """Return whether the first and the last entry agree with a number of slots.

        They lead where the header says, and the last entry is the newest of its slot.
        """
        first, last = self._entry_of(slots, 1), self._entry_of(slots, header.index_count - 1)
        if first is None or last is None or last.key_hash < 0:
            return False
        ends = (first.phy_offset, last.phy_offset) == (header.begin_phy_offset, header.end_phy_offset)
        return ends and self._slot_of(slots, last.key_hash) == header.index_count - 1

    def _slot_of(self, slots: int, key_hash: int) -> int:
        return int.from_bytes(
            self.file.read(INDEX_HEADER.size + key_hash % slots * SLOT_SIZE, SLOT_SIZE), "big", signed=True
        )

    def _slots_by_last_entry(self, header: IndexHeader) -> int | None:
        """Return the number of slots at which the file's last entry fits.

        The last entry has the header's endPhyOffset.

        None when no place fits.
        """
        wanted = header.end_phy_offset.to_bytes(8, "big", signed=True)
        before = INDEX_HEADER.size + (header.index_count - 1) * INDEX_ENTRY.size + INDEX_ENTRY.offset("phyOffset")
        for position, block in self.file.blocks():
            at = block.find(wanted)
            while at >= 0:
                slots, rest = divmod(position + at - before, SLOT_SIZE)
                if slots > 0 and not rest and self._fits(slots, header):
                    return slots
                at = block.find(wanted, at + 1)
        return None

    @property
    def capacity(self) -> int:
        """Return how many entries the file has room for, the unused entry 0 included."""
        return max(0, (self.file.size - self._entries_at) // INDEX_ENTRY.size)

    def header(self) -> IndexHeader | None:
        """Return the header.

        None when the file is shorter than a header. In a file without an entry 4.x leaves an indexCount of 0, and loads
        it as 1.
        """
        raw = self.file.read(0, INDEX_HEADER.size)
        if len(raw) < INDEX_HEADER.size:
            return None
        header = index_entry.decode_header(raw)
        return header if header.index_count or header.hash_slot_count else header._replace(index_count=ENTRY_FIRST)

    def phy_offsets(self, key_hash: int) -> list[int]:
        """Return the physical offsets of the entries with this hash, newest first."""
        header = self.header()
        return (
            []
            if header is None
            else [entry.phy_offset for entry in self._chain(header, key_hash) if entry.key_hash == key_hash]
        )

    def select_phy_offset(self, key_hash: int, max_num: int, begin: int, end: int) -> list[int]:
        """Return at most `max_num` physical offsets of a hash, newest first.

        Their messages were stored in [begin, end] (ms). An entry's time is exact to the second
        (IndexFile.selectPhyOffset).
        """
        header = self.header()
        found: list[int] = []
        if header is None or not header.is_time_matched(begin, end):
            return found
        for entry in self._chain(header, key_hash):
            if len(found) >= max_num or entry.time_diff < 0:
                break
            stored = header.begin_timestamp + entry.time_diff * 1000
            if entry.key_hash == key_hash and begin <= stored <= end:
                found.append(entry.phy_offset)
            if stored < begin:
                break
        return found

    def _chain(self, header: IndexHeader, key_hash: int) -> Iterator[IndexEntry]:
        """Yield the entries of a hash's slot, newest first, also those of other hashes."""
        if not self.slots:
            return
        number = self._slot_of(self.slots, key_hash)
        below = min(header.index_count, self.capacity)
        while 0 < number < below:
            entry = self._entry(number)
            if entry is None:
                return
            yield entry
            below, number = number, entry.prev_index

    def entry_blocks(self, index_count: int, count: int) -> Iterator[tuple[int, bytes]]:
        """Yield (number of the first, bytes of whole entries), `count` at a time.

        The entries are 1 to index_count - 1, as far as the file has them.
        """
        number = 1
        end = min(index_count, self.capacity)
        while number < end:
            wanted = min(count, end - number)
            data = self.file.read(self._entries_at + number * INDEX_ENTRY.size, wanted * INDEX_ENTRY.size)
            whole = len(data) // INDEX_ENTRY.size
            if whole:
                yield number, data[: whole * INDEX_ENTRY.size]
            if whole < wanted:
                return
            number += whole

    def newest_entries(self, count: int) -> Iterator[IndexEntry]:
        """Yield the last `count` entries, oldest first."""
        header = self.header()
        end = min(header.index_count, self.capacity) if header is not None else 0
        yield from self.entries(max(end - count, ENTRY_FIRST), end)

    def entries(self, first: int, end: int) -> Iterator[IndexEntry]:
        """Yield the entries with numbers in [first, end) that the file has.

        They are read in one read.
        """
        count = max(min(end, self.capacity) - first, 0)
        data = self.file.read(self._entries_at + first * INDEX_ENTRY.size, count * INDEX_ENTRY.size)
        for at in range(0, len(data) - INDEX_ENTRY.size + 1, INDEX_ENTRY.size):
            yield index_entry.decode_entry(data[at : at + INDEX_ENTRY.size])

    def slot_blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield blocks of the slot table: (number of the first slot, bytes).

        A slot has 4 bytes. A short file gives the part of the table that it has.
        """
        for first in range(0, self.slots, SLOTS_PER_BLOCK):
            count = min(SLOTS_PER_BLOCK, self.slots - first)
            data = self.file.read(INDEX_HEADER.size + first * SLOT_SIZE, count * SLOT_SIZE)
            yield first, data[: len(data) // SLOT_SIZE * SLOT_SIZE]

    @property
    def _entries_at(self) -> int:
        return INDEX_HEADER.size + self.slots * SLOT_SIZE

    def _entry(self, number: int) -> IndexEntry | None:
        return self._entry_of(self.slots, number)

    def _entry_of(self, slots: int, number: int) -> IndexEntry | None:
        raw = self.file.read(INDEX_HEADER.size + slots * SLOT_SIZE + number * INDEX_ENTRY.size, INDEX_ENTRY.size)
        return index_entry.decode_entry(raw) if len(raw) == INDEX_ENTRY.size else None


class IndexService:
    """All index files of `folder`, oldest first.

    `foreign` are the entries of the folder that are not index files. `usual_size` (bytes) is the length of most files:
    a broker silently resizes any other.
    """

    def __init__(self, storage: Storage, folder: Path, configured_slots: int | None = None) -> None:
        self.folder = folder
        self.foreign: list[tuple[Path, Kind]] = []
        self.files: list[IndexFile] = []
        if storage.entry(folder).kind is Kind.LINK_OUT:
            self.foreign.append((folder, Kind.LINK_OUT))
        entries = storage.listing(folder)
        ours = [
            entry
            for entry in entries
            if entry.kind is Kind.FILE and entry.name.isdecimal() and len(entry.name) == NAME_LENGTH
        ]
        self.foreign += [(entry.path, entry.kind) for entry in entries if entry not in ours]
        self.allocated = sum(entry.allocated for entry in ours)
        sizes = Counter(entry.size for entry in ours)
        self.usual_size = max(sizes, key=lambda size: (sizes[size], size), default=0)
        usual_slots = index_entry.slots_of_file(self.usual_size)
        for entry in ours:
            self.files.append(IndexFile(MappedFile(storage, entry.path, 0, entry.size), configured_slots, usual_slots))

    def phy_offsets(self, topic: str, key: str) -> list[int]:
        """Return the distinct physical offsets of a key in the index, ascending.

        Messages of other keys may be among them, because other keys may have the same hash. Raises OSError.
        """
        key_hash = index_entry.key_hash(topic, key)
        return sorted({offset for file in self.files for offset in file.phy_offsets(key_hash)})

    def query_offset(self, topic: str, key: str, max_num: int, begin: int, end: int) -> list[int]:
        """Return at most `max_num` physical offsets for a key, newest first.

        Only messages stored in [begin, end] (ms) are returned, as in IndexService.queryOffset. A message may appear
        twice. Raises OSError.
        """
        key_hash = index_entry.key_hash(topic, key)
        found: list[int] = []
        for file in reversed(self.files):
            found += file.select_phy_offset(key_hash, max_num - len(found), begin, end)
            header = file.header()
            if len(found) >= max_num or (header is not None and header.begin_timestamp < begin):
                break
        return found

    def close(self) -> None:
        """Close all descriptors."""
        for index_file in self.files:
            index_file.file.close()
