"""The index of a store, which finds messages by topic and key.

It has no keys, only their hashes: a look-up also finds the messages of another key with the same hash.

The entries of a slot are a chain. The slot has the number of its newest entry, and each entry that of the next older
one. In a damaged file, an entry can point to itself or to a newer one, which would make the chain endless: a look-up
stops there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

from rmqctl.format import index_entry
from rmqctl.format.index_entry import ENTRY_FIRST, INDEX_ENTRY, INDEX_HEADER, SLOT_SIZE, IndexEntry, IndexHeader
from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.logfile.mapped_file_queue import OFFSET_MAX
from rmqctl.logfile.system.storage import Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from rmqctl.logfile.system.storage import Storage
    from rmqctl.store.config.broker_conf import BrokerConf
    from rmqctl.store.read.index.index_database import IndexDatabase

SLOTS_PER_BLOCK = 65536
MANY_HASHES = 1000  # from here on, a look-up reads the whole slot table, by default 20 MB
NAME_LENGTH = 17  # yyyyMMddHHmmssSSS
SLOTS_MAX = 50_000_000  # ten times the default; a damaged file could claim any number


class IndexFile:
    """One index file of a store.

    `configured` is the number of hash slots that broker.conf sets. If it is None, the number is found from the content
    of the file. `usual` is the number of slots in an index file of the most common length. Methods raise OSError if the
    file cannot be read.
    """

    def __init__(self, file: MappedFile, configured: int | None = None, usual: int = 0) -> None:
        self.file = file
        self._configured = configured
        self._usual = usual

    @cached_property
    def slots(self) -> int:
        """Return the number of hash slots in the index file.

        Without a number in broker.conf, it is a guess with which header and entries agree: the number for this file's
        length, or `usual` (tried first if no index file can have this length). If both are wrong, it is computed from
        the position of the last entry; if that is not found, the first guess remains.
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
        """Return whether the header and the entries agree with a number of slots.

        The first entry must point to beginPhyOffset of the header, and the last entry to endPhyOffset. The slot of the
        last entry must have the number of the last entry.
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
        """Compute the number of slots from where the last entry's endPhyOffset is found."""
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
        """Return how many entries the index file has space for.

        Entry 0, which brokers do not use, is counted too.
        """
        return max(0, (self.file.size - self._entries_at) // INDEX_ENTRY.size)

    def header(self) -> IndexHeader | None:
        """Return the file's header, or None if the file is too short for one.

        For a file without entries, indexCount is 1, although 4.x writes 0.
        """
        raw = self.file.read(0, INDEX_HEADER.size)
        if len(raw) < INDEX_HEADER.size:
            return None
        header = index_entry.decode_header(raw)
        return header if header.index_count or header.hash_slot_count else header._replace(index_count=ENTRY_FIRST)

    def phy_offsets(self, key_hash: int) -> list[int]:
        """Return the physical offsets of all entries with a key hash, newest first.

        There are none if the file is shorter than a header.
        """
        return self.phy_offsets_of([key_hash])[key_hash]

    def phy_offsets_of(self, key_hashes: Collection[int]) -> dict[int, list[int]]:
        """Return a dict from each key hash to the physical offsets, newest first."""
        header = self.header()
        if header is None:
            return {key_hash: [] for key_hash in key_hashes}
        return {
            key_hash: [entry.phy_offset for entry in self._chain(header, newest) if entry.key_hash == key_hash]
            for key_hash, newest in self._newest_of(key_hashes)
        }

    def stored_at(self, key_hash: int, phy_offset: int) -> int | None:
        """Return the store time (ms since 1970) of an index entry, or None without one.

        It has no milliseconds.
        """
        header = self.header()
        entries = self._chain(header, self._newest(key_hash)) if header is not None else iter(())
        times = (entry.time_diff for entry in entries if (entry.key_hash, entry.phy_offset) == (key_hash, phy_offset))
        seconds = next(times, None)
        return None if header is None or seconds is None else header.begin_timestamp + seconds * 1000

    def select_phy_offset(self, key_hash: int, max_num: int, begin: int, end: int) -> list[int]:
        """Return at most `max_num` physical offsets for a key hash, newest first.

        They are those of messages stored in [begin, end] (ms since 1970; in index entries without milliseconds), as in
        RocketMQ's IndexFile.selectPhyOffset.
        """
        header = self.header()
        found: list[int] = []
        if header is None or not header.is_time_matched(begin, end):
            return found
        for entry in self._chain(header, self._newest(key_hash)):
            if len(found) >= max_num or entry.time_diff < 0:
                break
            stored = header.begin_timestamp + entry.time_diff * 1000
            if entry.key_hash == key_hash and begin <= stored <= end:
                found.append(entry.phy_offset)
            if stored < begin:
                break
        return found

    def _newest(self, key_hash: int) -> int:
        return self._slot_of(self.slots, key_hash) if self.slots else 0

    def _newest_of(self, key_hashes: Collection[int]) -> Iterator[tuple[int, int]]:
        """Read the whole slot table for many key hashes: single reads take longer."""
        if len(key_hashes) < MANY_HASHES or not self.slots:
            yield from ((key_hash, self._newest(key_hash)) for key_hash in key_hashes)
            return
        waiting = sorted(key_hashes, key=self._slot_number, reverse=True)
        for first, block in self.slot_blocks():
            end = first + len(block) // SLOT_SIZE
            while waiting and self._slot_number(waiting[-1]) < end:
                at = (self._slot_number(waiting[-1]) - first) * SLOT_SIZE
                yield waiting.pop(), int.from_bytes(block[at : at + SLOT_SIZE], "big", signed=True)
        yield from ((key_hash, 0) for key_hash in waiting)  # the file ends inside its slot table

    def _slot_number(self, key_hash: int) -> int:
        return key_hash % self.slots

    def _chain(self, header: IndexHeader, newest: int) -> Iterator[IndexEntry]:
        """Yield all entries of a slot, newest first.

        Several key hashes can share one slot, so the entries may have different ones.
        """
        number = newest
        below = min(header.index_count, self.capacity)
        while 0 < number < below:
            entry = self._entry(number)
            if entry is None:
                return
            yield entry
            below, number = number, entry.prev_index

    def first_reaching(self, phy_offset: int, index_count: int) -> int:
        """Return the number of the first entry that leads to `phy_offset` or later.

        If there is none, this is `index_count`, the number after the last entry. The physical offsets of the entries
        must be ascending.
        """
        numbers = range(ENTRY_FIRST, max(min(index_count, self.capacity), ENTRY_FIRST))
        return numbers.start + bisect_left(numbers, phy_offset, key=self._phy_offset)

    def _phy_offset(self, number: int) -> int:
        entry = self._entry(number)
        return OFFSET_MAX if entry is None else entry.phy_offset

    def entry_blocks(self, index_count: int, count: int, first: int = ENTRY_FIRST) -> Iterator[tuple[int, bytes]]:
        """Yield the index entries in blocks: (number of the first entry, bytes).

        They have the numbers [first, index_count), or fewer if the file is too short. A block has the bytes of `count`
        whole entries, the last one possibly of fewer.
        """
        number = first
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
        """Yield the newest `count` entries of the index file, oldest first."""
        header = self.header()
        end = min(header.index_count, self.capacity) if header is not None else 0
        yield from self.entries(max(end - count, ENTRY_FIRST), end)

    def entries(self, first: int, end: int) -> Iterator[IndexEntry]:
        """Yield the index entries with the numbers [first, end), in one read."""
        count = max(min(end, self.capacity) - first, 0)
        data = self.file.read(self._entries_at + first * INDEX_ENTRY.size, count * INDEX_ENTRY.size)
        for at in range(0, len(data) - INDEX_ENTRY.size + 1, INDEX_ENTRY.size):
            yield index_entry.decode_entry(data[at : at + INDEX_ENTRY.size])

    def slot_blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield the slot table in blocks: (number of the first slot, bytes).

        A slot has 4 bytes. If the file ends inside the slot table, the missing slots are left out.
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
    """All index files in `folder`, from the oldest to the newest.

    `foreign` lists its files and folders that are not index files. `usual_size` is the most common length of the index
    files in bytes: a broker silently resizes the others. With `database`, look-ups ask it and not the files.
    """

    def __init__(self, storage: Storage, folder: Path, configured_slots: int | None = None) -> None:
        self.folder = folder
        self.database: IndexDatabase | None = None
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

    def is_asked(self, conf: BrokerConf) -> bool:
        """Return whether a broker looks keys up in the files."""
        return conf.index_enabled and not conf.index_in_database and self.database is None

    def length_problem(self, index_file: IndexFile) -> str | None:
        """Return why a file's length is wrong, or None. Raises OSError."""
        size, usual = index_file.file.size, self.usual_size
        found = f"{size} bytes" if size else "the file is empty"
        if size != usual:
            return f"{found}, the others have {usual}"
        is_usable = index_file.header() is not None and index_file.slots <= SLOTS_MAX
        return None if is_usable else f"{found}: no index file has this length"

    def files_between(self, begin: int, end: int) -> Iterator[tuple[IndexFile, IndexHeader]]:
        """Yield the files and headers for the physical offsets [begin, end) of the log.

        The first file is found by bisection, so that few files are opened; files may be missed if messages are not
        after those of the file before. All opened files are closed at the end. Raises OSError.
        """
        headers: dict[int, IndexHeader | None] = {}

        def header_of(at: int) -> IndexHeader | None:
            if at not in headers:
                found = self.files[at].header()
                headers[at] = found if found is not None and found.index_count > ENTRY_FIRST else None
            return headers[at]

        def reaches(at: int) -> bool:  # a broker makes the next file before the file has entries
            header = header_of(at)
            return header is None or header.end_phy_offset >= begin

        try:
            for at in range(bisect_left(range(len(self.files)), True, key=reaches), len(self.files)):
                header = header_of(at)
                if header is not None and header.begin_phy_offset >= end:
                    return
                if header is not None:
                    yield self.files[at], header
        finally:
            for at in headers:
                self.files[at].file.close()

    def spans(self) -> list[tuple[int, int]]:
        """Return where the first and the last record of each index file begin, ascending.

        The offsets come from the headers. Files without entries are left out. A database counts as one file. Raises
        OSError.
        """
        if self.database is not None:
            return [self.database.span]
        headers = (file.header() for file in self.files)
        return sorted(
            (header.begin_phy_offset, header.end_phy_offset)
            for header in headers
            if header is not None and header.index_count > ENTRY_FIRST
        )

    def not_covered(self, begin: int) -> Iterator[tuple[int, int | None]]:
        """Yield the parts [from, to) of the log that no index file covers.

        The log begins at the physical offset `begin`. `to` is None at the end of the log. A part that follows an index
        file begins with the last record that the file has. Raises OSError.
        """
        for first, last in self.spans():
            if first > begin:
                yield begin, first
            begin = max(begin, last)
        yield begin, None

    def phy_offsets(self, topic: str, key: str) -> list[int]:
        """Return the physical offsets for a key, ascending, each once.

        Some may belong to messages of another key with the same hash. Raises OSError.
        """
        return self.phy_offsets_by_topic([topic], key).get(topic, [])

    def phy_offsets_by_topic(self, topics: Iterable[str], key: str) -> dict[str, list[int]]:
        """Return the `phy_offsets` of a key in each topic that has any.

        Raises OSError.
        """
        if self.database is not None:
            of_topics = {
                topic: sorted({row.physical_offset for row in self.database.of_key(topic, key)}) for topic in topics
            }
            return {topic: offsets for topic, offsets in of_topics.items() if offsets}
        hashes = index_entry.key_hashes(topics, key)
        found: dict[int, set[int]] = {}
        for file in self.files:
            for key_hash, offsets in file.phy_offsets_of(set(hashes.values())).items():
                found.setdefault(key_hash, set()).update(offsets)
        return {topic: sorted(found[key_hash]) for topic, key_hash in hashes.items() if found.get(key_hash)}

    def stored_at(self, topic: str, key: str, phy_offset: int) -> int | None:
        """Return the store time (ms since 1970) that the index gives for a message.

        It has no milliseconds. None if no entry for the key points to `phy_offset`. Raises OSError.
        """
        if self.database is not None:
            rows = self.database.of_key(topic, key)
            return next((row.stored_ms for row in rows if row.physical_offset == phy_offset), None)
        key_hash = index_entry.key_hash(topic, key)
        times = (file.stored_at(key_hash, phy_offset) for file in self.files)
        return next((time for time in times if time is not None), None)

    def leads_to(self, phy_offset: int, topic: str, keys: Iterable[str]) -> bool:
        """Return whether an entry for one of the keys leads to a physical offset.

        In files, it is found by bisection. Raises OSError.
        """
        if self.database is not None:
            return any(phy_offset in self.phy_offsets(topic, key) for key in keys)
        hashes = [index_entry.key_hash(topic, key) for key in keys]
        for file, header in self.files_between(phy_offset, phy_offset + 1):
            first = file.first_reaching(phy_offset, header.index_count)
            found = file.entries(first, min(first + len(hashes), header.index_count))
            if any(entry.phy_offset == phy_offset and entry.key_hash in hashes for entry in found):
                return True
        return False

    def query_offset(self, topic: str, key: str, max_num: int, begin: int, end: int) -> list[int]:
        """Return at most `max_num` physical offsets for a key, newest first.

        They are those of messages stored in [begin, end] (ms since 1970), as in RocketMQ's IndexService.queryOffset: an
        offset may appear twice. Raises OSError.
        """
        if self.database is not None:
            rows = self.database.of_key(topic, key)
            offsets = sorted({row.physical_offset for row in rows if begin <= row.stored_ms <= end}, reverse=True)
            return offsets[:max_num]
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
