"""Write an index file, in a task.

The number of keys before a part of the log shows which index files get the keys of the part. An index file has the same
bytes as in a rebuild by one process.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmqctl.operations.rebuild.in_parts.grouped_part import KeysHeader
from rmqctl.operations.rebuild.in_parts.queue_range import Refused, own_folder, refusal_of
from rmqctl.store.dispatch.dispatch_requests import DispatchColumns
from rmqctl.store.write.index_writer import IndexWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rmqctl.operations.rebuild.in_parts.grouped_part import IndexPiece, PileHeader
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class IndexSlice(NamedTuple):
    """Keys of one part of the log that are in one index file.

    `split` is the number of the part.
    """

    split: int
    keys: DispatchColumns


class LastEntry(NamedTuple):
    """The last entry of the previous index file.

    `store_timestamp` is in ms since 1970.
    """

    store_timestamp: int
    physical_offset: int


class IndexPlan(NamedTuple):
    """The places of all keys in index files.

    `starts` is the number of keys before each part of the log, by the number of the part. A file has `capacity` keys.
    All keys together are `entries`. With `only_ends`, no file is written, and only the last entries are needed.
    """

    starts: Mapping[int, int]
    capacity: int
    entries: int
    only_ends: bool

    @property
    def files(self) -> int:
        """Return the number of index files."""
        return -(-self.entries // self.capacity)

    def route(self, header: PileHeader | KeysHeader) -> Iterator[tuple[int, Callable[[IndexPiece], Any]]]:
        """Yield the number of each index file that needs a piece.

        With the number, yield the function that returns what the file needs of the piece.
        """
        if not isinstance(header, KeysHeader) or header.split not in self.starts:
            return
        start, count = self.starts[header.split], header.keys
        for number in range(start // self.capacity, (start + count - 1) // self.capacity + 1):
            begin, end = max(number * self.capacity - start, 0), min((number + 1) * self.capacity - start, count)
            if not self.only_ends:
                yield number, partial(_slice, begin=begin, end=end)
            if start + end == (number + 1) * self.capacity and start + end < self.entries:
                yield number + 1, partial(_last_entry, end=end)


class BuiltIndexFile(NamedTuple):
    """An index file, with its number.

    `full_until` is the store time (ms) of the last entry in the previous file, or 0. `begin_timestamp` and
    `end_timestamp` are the store times of the file's first and last entry. `path` is the written file.
    """

    number: int
    full_until: int
    begin_timestamp: int = 0
    end_timestamp: int = 0
    path: str | None = None
    refused: Refused | None = None


class IndexGeometry(NamedTuple):
    """The numbers of hash slots and of entries in an index file.

    Entry 0, which is never used, counts.
    """

    slots: int
    entries: int


def build_index_file(
    store: ReadOnlyStore,
    number: int,
    found: Sequence[IndexSlice | LastEntry],
    *,
    geometry: IndexGeometry,
    staging: str | None,
) -> BuiltIndexFile:
    """Write the index file with the number `number` in a new folder below `staging`.

    `found` has all keys of the file. Without `staging`, nothing is written. If Spark runs the task several times, each
    run has its own folder.
    """
    previous = next((one for one in found if isinstance(one, LastEntry)), None)
    built = BuiltIndexFile(number, 0 if previous is None else previous.store_timestamp)
    slices = sorted((one for one in found if isinstance(one, IndexSlice)), key=lambda one: one.split)
    if staging is None or not slices:
        return built
    try:
        storage = own_folder(staging, store)
        writer = IndexWriter(storage, storage.root, *geometry, made_at=lambda _: 0)  # the driver names the file
        if previous is not None:
            writer.follow(previous.store_timestamp, previous.physical_offset)
        for one in slices:
            writer.put(one.keys)
        writer.flush()
        writer.close()
        (path,) = (entry.path for entry in storage.listing(storage.root))
    except OSError as error:
        return built._replace(refused=refusal_of(error))
    first, last = slices[0].keys.messages[0], slices[-1].keys.messages[-1]
    times = int(first["store_timestamp"]), int(last["store_timestamp"])
    return built._replace(begin_timestamp=times[0], end_timestamp=times[1], path=str(path))


def _slice(piece: IndexPiece, *, begin: int, end: int) -> IndexSlice:
    return IndexSlice(piece.split, _cut(piece.keys, begin, end))


def _last_entry(piece: IndexPiece, *, end: int) -> LastEntry:
    """Return the last entry before the key with the number `end`."""
    last = _cut(piece.keys, end - 1, end).messages[0]
    return LastEntry(int(last["store_timestamp"]), int(last["physical_offset"]))


def _cut(keys: DispatchColumns, begin: int, end: int) -> DispatchColumns:
    """Return the keys with the numbers [begin, end), and their messages."""
    messages = keys.messages
    ends = messages["hashes_start"] + messages["hashes_count"]
    found = messages[np.searchsorted(ends, begin, side="right") : np.searchsorted(messages["hashes_start"], end)].copy()
    starts = np.maximum(found["hashes_start"], begin)
    found["hashes_count"] = np.minimum(found["hashes_start"] + found["hashes_count"], end) - starts
    found["hashes_start"] = starts - begin
    return DispatchColumns(found, keys.hashes[begin:end])
