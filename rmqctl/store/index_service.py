"""The index: from a key of a topic to the physical offsets of messages that may have it.

A look-up walks a slot's chain from the newest entry to the oldest. A chain in a damaged file ends where its next number is
not below the entry's own, so that no walk is longer than the file.
"""

from __future__ import annotations

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
    """One index file with `slots` hash slots. Methods raise OSError."""

    def __init__(self, file: MappedFile, slots: int) -> None:
        self.file = file
        self.slots = slots

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
        raw = self.file.read(self._entries_at + number * INDEX_ENTRY.size, INDEX_ENTRY.size)
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
            self.files.append(IndexFile(file, configured_slots or index_entry.slots_of_file(entry.size)))

    def phy_offsets(self, topic: str, key: str) -> list[int]:
        """Physical offsets that the index gives for a key, ascending, each once. Others may share the hash. Raises OSError."""
        key_hash = index_entry.key_hash(topic, key)
        return sorted({offset for file in self.files for offset in file.phy_offsets(key_hash)})

    def close(self) -> None:
        """Close all descriptors."""
        for index_file in self.files:
            index_file.file.close()
