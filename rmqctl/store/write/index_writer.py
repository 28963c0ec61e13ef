"""The writer of the index of message keys.

When an index file is full, a new one begins (IndexService.buildIndex); its name is the local time of its creation.

The slots of the current file are kept in memory, and new entries are collected and written in groups. A flush writes
the remaining entries, then the changed slots, then the header: so a slot in the file never points to a missing entry.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.format.index_entry import INDEX_ENTRY, INDEX_HEADER, SLOT_SIZE
from rmqctl.kernels.index_build import BUILD_STATE, build, slots_of
from rmqctl.logfile.writable_mapped_file import WritableMappedFile
from rmqctl.store.read.index.index_service import IndexFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rmqctl.logfile.system.writable_storage import WritableStorage
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns

MANY_SLOTS = 4096  # up to this number, changed slots are written one by one; above, the whole table is cheaper
PENDING_ENTRIES_MAX = 50_000


class IndexWriter:
    """The writer of index files in `folder`.

    An index file has `slots` hash slots and room for `capacity` entries, entry 0 included. `made_at` gets the store
    time of a file's first message, and returns the time for the file name (both in ms since 1970). After the flush of a
    full file, `on_full` gets its end timestamp (the checkpoint's index time). Messages must be put by one thread; any
    thread may write or flush the collected entries. Methods raise OSError.
    """

    def __init__(
        self,
        storage: WritableStorage,
        folder: Path,
        slots: int,
        capacity: int,
        *,
        made_at: Callable[[int], int],
        on_full: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._storage = storage
        self._folder = folder
        self._slots = slots
        self._capacity = capacity
        self._made_at = made_at
        self._on_full = on_full
        self._file: WritableMappedFile | None = None
        self._last_name: str | None = None  # listed once: a log may have thousands of index files
        self._heads = np.zeros(slots * SLOT_SIZE, np.uint8)
        self._state = np.zeros(1, BUILD_STATE)
        self._entries = np.empty(PENDING_ENTRIES_MAX * INDEX_ENTRY.size, np.uint8)
        self._changed = np.empty(MANY_SLOTS, np.int32)
        self._synced = True
        self._has_pages = False
        self._lock = threading.Lock()

    def go_on_with(self, file: IndexFile) -> None:
        """Continue to fill an existing index file, if it has room.

        Otherwise the next key begins a new file.
        """
        header = file.header()
        if header is None:
            return
        state = self._state[0]
        state["begin_timestamp"], state["end_timestamp"] = header.begin_timestamp, header.end_timestamp
        state["begin_phy_offset"], state["end_phy_offset"] = header.begin_phy_offset, header.end_phy_offset
        state["index_count"], state["hash_slot_count"] = header.index_count, header.hash_slot_count
        for first, data in file.slot_blocks():
            self._heads[first * SLOT_SIZE :][: len(data)] = np.frombuffer(data, np.uint8)
        self._file = WritableMappedFile(self._storage, file.file.path, 0, file.file.size, file.file.size)

    def follow(self, end_timestamp: int, end_phy_offset: int) -> None:
        """Begin after an index file that another process writes.

        `end_timestamp` (ms) and `end_phy_offset` are those of the file's last entry.
        """
        self._state["end_timestamp"], self._state["end_phy_offset"] = end_timestamp, end_phy_offset

    def put(self, described: DispatchColumns) -> None:
        """Index the keys of messages, in log order."""
        if len(described.hashes):
            with self._lock:
                self._put(described)

    @contextmanager
    def written_out(self) -> Iterator[Path | None]:
        """Write all index entries; keep the index files unchanged in the `with` block.

        Yields the path of the current file, which the block can read, or None if none is open.
        """
        with self._lock:
            self._write_out()
            yield None if self._file is None else self._file.path

    def flush(self) -> None:
        """Write the remaining entries, and flush the file to disk."""
        with self._lock:
            self._flush()

    def _put(self, described: DispatchColumns) -> None:
        state = self._state[0]
        state["row"] = state["key"] = 0
        messages, hashes = described
        slots = np.empty(len(hashes), np.int32)
        slots_of(hashes, self._slots, slots)
        if self._file is None:
            self._begin_file(described)
        while True:
            build(messages, hashes, slots, self._heads, self._capacity, self._entries, self._changed, self._state)
            if state["row"] == len(messages):
                return
            if state["index_count"] >= self._capacity:
                self._begin_file(described)  # only when a key waits, so that no index file is without keys
            else:
                self._write_entries()
                self._make_pages()

    def _make_pages(self) -> None:
        """Write the slot table of a new file early, to make the first flush faster."""
        if self._file is not None and not self._has_pages:
            self._storage.write(self._file.descriptor, INDEX_HEADER.size, self._heads.data)
            self._has_pages = True

    def _write_entries(self) -> None:
        state = self._state[0]
        if self._file is not None and state["pending"]:
            first = int(state["index_count"] - state["pending"])
            at = INDEX_HEADER.size + self._slots * SLOT_SIZE + first * INDEX_ENTRY.size
            self._storage.write(self._file.descriptor, at, self._entries[: state["pending"] * INDEX_ENTRY.size].data)
            state["pending"] = 0

    def _write_out(self) -> None:
        self._write_entries()
        state = self._state[0]
        if self._file is None or not state["changed"]:
            return
        descriptor = self._file.descriptor
        self._write_slots(descriptor)
        names = (
            "begin_timestamp",
            "end_timestamp",
            "begin_phy_offset",
            "end_phy_offset",
            "hash_slot_count",
            "index_count",
        )
        self._storage.write(descriptor, 0, INDEX_HEADER.struct.pack(*(int(state[name]) for name in names)))
        state["changed"] = 0
        self._synced = False

    def _flush(self) -> None:
        self._write_out()
        if self._file is not None and not self._synced:
            self._storage.sync(self._file.descriptor)
            self._synced = True

    def close(self) -> None:
        """Close the file; entries that were not flushed may be missing in it."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write_slots(self, descriptor: int) -> None:
        changed = int(self._state[0]["changed"])
        if changed > MANY_SLOTS:
            self._storage.write(descriptor, INDEX_HEADER.size, self._heads.data)
            return
        for slot in np.unique(self._changed[:changed]).tolist():
            place = slot * SLOT_SIZE
            self._storage.write(descriptor, INDEX_HEADER.size + place, self._heads[place : place + SLOT_SIZE].data)

    def _begin_file(self, described: DispatchColumns) -> None:
        state = self._state[0]
        if self._file is not None:
            self._flush()
            self._file.close()
            self._file = None
            self._on_full(int(state["end_timestamp"]))
        state["begin_timestamp"], state["begin_phy_offset"] = state["end_timestamp"], state["end_phy_offset"]
        state["index_count"], state["hash_slot_count"] = 1, 0
        self._heads[:] = 0
        size = INDEX_HEADER.size + self._slots * SLOT_SIZE + self._capacity * INDEX_ENTRY.size
        rest = described.messages[int(state["row"]) :]
        path = self._free_name(self._made_at(int(rest["store_timestamp"][np.argmax(rest["hashes_count"] > 0)])))
        descriptor = self._storage.create(path, size)
        self._has_pages = False
        self._file = WritableMappedFile(self._storage, path, 0, size, size, descriptor=descriptor)

    def _free_name(self, at: int) -> Path:
        """Return a file name that sorts after the names of all index files.

        It is the time `at` in local time, or one millisecond later than the last name if that is not earlier.
        """
        if self._last_name is None:
            self._last_name = max((entry.name for entry in self._storage.listing(self._folder)), default="")
        self._last_name = name_after(self._last_name, at)
        return self._folder / self._last_name


def name_after(last: str, at: int) -> str:
    """Return the name of an index file created at `at` (ms since 1970) after `last`."""
    return _name_of(at) if _name_of(at) > last else _name_of(_time_of(last) + 1)


def _name_of(milliseconds: int) -> str:
    """Return a time as `yyyyMMddHHmmssSSS` (UtilAll.timeMillisToHumanString)."""
    local = datetime.fromtimestamp(milliseconds // 1000).astimezone()
    return f"{local:%Y%m%d%H%M%S}{milliseconds % 1000:03d}"


def _time_of(name: str) -> int:
    local = datetime.strptime(name[:14], "%Y%m%d%H%M%S").astimezone()
    return int(local.timestamp()) * 1000 + int(name[14:])
