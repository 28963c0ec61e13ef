"""The index, which finds the physical offsets for a topic and a key.

The index contains only the hash of a key. A message that the index finds may have another key with the same hash.

A slot has the number of its newest entry, and each entry has the number of the next older entry of the slot. A look-up
reads this chain of entries. In a damaged file, the number in an entry may be the same as the entry's own number, or
higher. The chain ends at such an entry, because otherwise a chain could be endless.
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
SLOTS_MAX = 50_000_000  # ten times the default: more would be memory for a lie


class IndexFile:
    """One index file; `slots` is the number of its hash slots.

    If broker.conf sets the number of slots, `configured` is this number. Otherwise the number of slots is found from
    the content of the file. `usual` is the number of slots in a file of the most common length. Methods raise OSError
    if the file cannot be read.
    """

    def __init__(self, file: MappedFile, configured: int | None = None, usual: int = 0) -> None:
        self.file = file
        self._configured = configured
        self._usual = usual

    @cached_property
    def slots(self) -> int:
        """Return the number of hash slots of the file.

        If broker.conf sets the number of slots, the result is this number. Otherwise, two numbers are tried. Normally,
        the number for the length of this file is tried first, and then the number for the most common length of the
        index files. If the length of this file is not the length of a whole index file, the number for the most common
        length is tried first. The first number that agrees with the header and the entries is returned. If neither
        number agrees, the number is computed from the place of the last entry. If this computation is not possible, the
        number that is tried first is returned.
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

        Two conditions must be met. The first condition is that the physical offsets of the first and the last entry are
        beginPhyOffset and endPhyOffset of the header. The second condition is that the slot of the last entry points to
        the last entry.
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
        """Return the number of slots that the place of the last entry shows.

        The last entry is found by its physical offset, which is endPhyOffset of the header. The result is None if no
        place in the file fits.
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
        """Return the number of entries that the file has room for.

        The unused entry 0 is included.
        """
        return max(0, (self.file.size - self._entries_at) // INDEX_ENTRY.size)

    def header(self) -> IndexHeader | None:
        """Return the header; None if the file is shorter than a header.

        In a file without entries, 4.x writes indexCount as 0, but reads the 0 as 1. For such a file, the returned
        header has indexCount 1.
        """
        raw = self.file.read(0, INDEX_HEADER.size)
        if len(raw) < INDEX_HEADER.size:
            return None
        header = index_entry.decode_header(raw)
        return header if header.index_count or header.hash_slot_count else header._replace(index_count=ENTRY_FIRST)

    def phy_offsets(self, key_hash: int) -> list[int]:
        """Return the physical offsets of all entries with a key hash, newest first.

        The result is empty if the file is shorter than a header.
        """
        header = self.header()
        return (
            []
            if header is None
            else [entry.phy_offset for entry in self._chain(header, key_hash) if entry.key_hash == key_hash]
        )

    def stored_at(self, key_hash: int, phy_offset: int) -> int | None:
        """Return the store time (ms) of the message that an entry points to.

        The time is exact to a second. The result is None if the file has no entry with this key hash and physical
        offset.
        """
        header = self.header()
        entries = self._chain(header, key_hash) if header is not None else iter(())
        times = (entry.time_diff for entry in entries if (entry.key_hash, entry.phy_offset) == (key_hash, phy_offset))
        seconds = next(times, None)
        return None if header is None or seconds is None else header.begin_timestamp + seconds * 1000

    def select_phy_offset(self, key_hash: int, max_num: int, begin: int, end: int) -> list[int]:
        """Return at most `max_num` physical offsets of a key hash, newest first.

        Only messages stored in [begin, end] (ms) are included. The time of an entry is exact only to the second. The
        rule is IndexFile.selectPhyOffset.
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
        """Yield the entries in the slot of a key hash, newest first.

        The function also yields entries of the same slot that have other hashes.
        """
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
        """Yield blocks of entries: (number of the first entry, bytes).

        A block has the bytes of `count` whole entries. The last block may have fewer entries. The function reads the
        entries whose numbers are at least 1 and less than index_count, or fewer entries if the file is too short.
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
        """Yield those entries of the file that have numbers in [first, end).

        One read of the file fetches all of these entries.
        """
        count = max(min(end, self.capacity) - first, 0)
        data = self.file.read(self._entries_at + first * INDEX_ENTRY.size, count * INDEX_ENTRY.size)
        for at in range(0, len(data) - INDEX_ENTRY.size + 1, INDEX_ENTRY.size):
            yield index_entry.decode_entry(data[at : at + INDEX_ENTRY.size])

    def slot_blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield blocks of the slot table: (number of the first slot, bytes).

        A slot has 4 bytes. If the file is too short for the whole table, the slots that are missing are left out.
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
    """All index files of `folder`, in order from the oldest to the newest.

    `foreign` has the files and folders in `folder` that are not index files. `usual_size` is the most common length of
    the files, in bytes. A broker silently resizes a file of any other length.
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

    def length_problem(self, index_file: IndexFile) -> str | None:
        """Return the fault of the length of a file; None if the length is right.

        Raises OSError.
        """
        size, usual = index_file.file.size, self.usual_size
        found = f"{size} bytes" if size else "the file is empty"
        if size != usual:
            return f"{found}, the others have {usual}"
        is_usable = index_file.header() is not None and index_file.slots <= SLOTS_MAX
        return None if is_usable else f"{found}: no index file has this length"

    def phy_offsets(self, topic: str, key: str) -> list[int]:
        """Return the physical offsets that the index has for a key, ascending.

        Each offset is returned once. Some offsets may belong to messages with another key, because two keys can have
        the same hash. Raises OSError.
        """
        key_hash = index_entry.key_hash(topic, key)
        return sorted({offset for file in self.files for offset in file.phy_offsets(key_hash)})

    def stored_at(self, topic: str, key: str, phy_offset: int) -> int | None:
        """Return the store time (ms) that the index has for an entry, exact to a second.

        The result is None if no entry for the key points to this physical offset. Raises OSError.
        """
        key_hash = index_entry.key_hash(topic, key)
        times = (file.stored_at(key_hash, phy_offset) for file in self.files)
        return next((time for time in times if time is not None), None)

    def query_offset(self, topic: str, key: str, max_num: int, begin: int, end: int) -> list[int]:
        """Return at most `max_num` physical offsets for a key, newest first.

        Only messages stored in [begin, end] (ms) are included. The rule is IndexService.queryOffset. The same offset
        may appear twice. Raises OSError.
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
        """Close the descriptors of all index files."""
        for index_file in self.files:
            index_file.file.close()
