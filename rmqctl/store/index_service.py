"""The index: from a key of a topic to the physical offsets of messages that may have it.

A look-up walks a slot's chain from the newest entry to the oldest. A chain in a damaged file ends where its next number is
not below the entry's own, so that no walk is longer than the file.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from rmqctl.format import index_entry
from rmqctl.format.index_entry import INDEX_ENTRY, INDEX_HEADER, SLOT_SIZE, IndexEntry, IndexHeader
from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.logfile.storage import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmqctl.logfile.storage import Storage

ENTRIES_PER_READ = 16384
NAME_LENGTH = 17  # yyyyMMddHHmmssSSS


class IndexFile:
    """One index file with `slots` hash slots (`configured`, or read off the file). Methods raise OSError."""

    def __init__(self, file: MappedFile, configured: int | None = None) -> None:
        self.file = file
        self._configured = configured

    @cached_property
    def slots(self) -> int:
        """How many hash slots the file has: as configured; else a fifth of the file's units, where its header agrees; else as it shows."""
        usual = self._configured or index_entry.slots_of_file(self.file.size)
        header = self.header()
        if self._configured or header is None or header.index_count < 2 or self._fits(usual, header):
            return usual
        return self._slots_by_last_entry(header) or usual

    def _fits(self, slots: int, header: IndexHeader) -> bool:
        """Whether first and last entry lead where the header says when there are `slots` slots."""
        first, last = self._entry_of(slots, 1), self._entry_of(slots, header.index_count - 1)
        if first is None or last is None:
            return False
        return (first.phy_offset, last.phy_offset) == (header.begin_phy_offset, header.end_phy_offset)

    def _slots_by_last_entry(self, header: IndexHeader) -> int | None:
        """The number of slots that puts the last entry where endPhyOffset stands in the file; None when no place fits."""
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
        """Entries that the file has room for, the unused entry 0 included."""
        return max(0, (self.file.size - self._entries_at) // INDEX_ENTRY.size)

    def header(self) -> IndexHeader | None:
        """The header; None when the file is shorter."""
        raw = self.file.read(0, INDEX_HEADER.size)
        return index_entry.decode_header(raw) if len(raw) == INDEX_HEADER.size else None

    def phy_offsets(self, key_hash: int) -> list[int]:
        """Physical offsets of the entries with this hash, newest first."""
        header = self.header()
        if header is None or not self.slots:
            return []
        found = []
        number = int.from_bytes(self.file.read(INDEX_HEADER.size + key_hash % self.slots * SLOT_SIZE, SLOT_SIZE), "big", signed=True)
        below = min(header.index_count, self.capacity)
        while 0 < number < below:
            entry = self._entry(number)
            if entry is None:
                break
            if entry.key_hash == key_hash:
                found.append(entry.phy_offset)
            below, number = number, entry.prev_index
        return found

    def entries(self, index_count: int) -> Iterator[tuple[int, IndexEntry]]:
        """(number, entry) of the entries 1 .. index_count - 1, as far as the file has them."""
        number = 1
        end = min(index_count, self.capacity)
        while number < end:
            count = min(ENTRIES_PER_READ, end - number)
            data = self.file.read(self._entries_at + number * INDEX_ENTRY.size, count * INDEX_ENTRY.size)
            for fields in INDEX_ENTRY.struct.iter_unpack(data[: len(data) // INDEX_ENTRY.size * INDEX_ENTRY.size]):
                yield number, IndexEntry._make(fields)
                number += 1
            if len(data) < count * INDEX_ENTRY.size:
                return

    def slot_values(self) -> bytes:
        """The whole slot table, 4 bytes a slot."""
        return self.file.read(INDEX_HEADER.size, self.slots * SLOT_SIZE)

    @property
    def _entries_at(self) -> int:
        return INDEX_HEADER.size + self.slots * SLOT_SIZE

    def _entry(self, number: int) -> IndexEntry | None:
        return self._entry_of(self.slots, number)

    def _entry_of(self, slots: int, number: int) -> IndexEntry | None:
        raw = self.file.read(INDEX_HEADER.size + slots * SLOT_SIZE + number * INDEX_ENTRY.size, INDEX_ENTRY.size)
        return index_entry.decode_entry(raw) if len(raw) == INDEX_ENTRY.size else None


class IndexService:
    """All index files of `folder`, oldest first; `foreign` are the entries of the folder that are none."""

    def __init__(self, storage: Storage, folder: Path, configured_slots: int | None = None) -> None:
        self.folder = folder
        self.foreign: list[tuple[Path, Kind]] = []
        self.files: list[IndexFile] = []
        self.allocated = 0
        if storage.entry(folder).kind is Kind.LINK_OUT:
            self.foreign.append((folder, Kind.LINK_OUT))
        for entry in storage.listing(folder):
            if entry.kind is not Kind.FILE or not (entry.name.isdecimal() and len(entry.name) == NAME_LENGTH):
                self.foreign.append((entry.path, entry.kind))
                continue
            self.allocated += entry.allocated
            file = MappedFile(storage, entry.path, 0, entry.size)
            self.files.append(IndexFile(file, configured_slots))

    def phy_offsets(self, topic: str, key: str) -> list[int]:
        """Physical offsets that the index gives for a key, ascending, each once. Others may share the hash. Raises OSError."""
        key_hash = index_entry.key_hash(topic, key)
        return sorted({offset for file in self.files for offset in file.phy_offsets(key_hash)})

    def close(self) -> None:
        """Close all descriptors."""
        for index_file in self.files:
            index_file.file.close()
