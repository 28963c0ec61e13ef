from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.format.index_entry import INDEX_ENTRY, IndexEntry, key_hash
from rmqctl.logfile.system.storage import Kind, Storage
from rmqctl.store.read.index import index_service
from rmqctl.store.read.index.index_service import IndexFile, IndexService
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import expected
from tests.support.cqext_store import SMALL_NAMES
from tests.support.golden_store import REBUILT
from tests.support.memory_storage import memory_file
from tests.support.property_settings import PROPERTY

SLOTS = 10
CAPACITY = 4 * SLOTS
NAMES = ["20261121091521172", "20261121091530000"]


def index_bytes(hits: list[tuple[int, int]], *, slots: int = SLOTS) -> bytes:
    """An index file with an entry for each (key hash, physical offset), as a broker fills it."""
    newest = [0] * slots
    entries = [bytes(20)]
    for number, (hash_of_key, phy_offset) in enumerate(hits, 1):
        slot = hash_of_key % slots
        entries.append(struct.pack(">iqii", hash_of_key, phy_offset, number, newest[slot]))
        newest[slot] = number
    header = struct.pack(">qqqqii", 1000, 2000, 0, 99, sum(map(bool, newest)), len(hits) + 1)
    table = struct.pack(f">{slots}i", *newest)
    return (header + table + b"".join(entries)).ljust(40 + slots * 84, b"\0")


def chain_bytes(slot_value: int, previous: list[int], *, index_count: int | None = None) -> bytes:
    """One slot, and entries of hash 0 numbered from 1 with these predecessors; entry n has the
    physical offset 100 n.
    """
    count = len(previous) + 1 if index_count is None else index_count
    entries = b"".join(struct.pack(">iqii", 0, 100 * number, 0, before) for number, before in enumerate(previous, 1))
    return struct.pack(">qqqqii", 0, 0, 0, 0, 1, count) + struct.pack(">i", slot_value) + bytes(20) + entries


def entries_of(file: IndexFile, index_count: int) -> list[tuple[int, IndexEntry]]:
    """(number, entry) of all entries, read three at a time."""
    found = []
    for first, data in file.entry_blocks(index_count, 3):
        found += [
            (first + at, IndexEntry._make(fields)) for at, fields in enumerate(INDEX_ENTRY.struct.iter_unpack(data))
        ]
    return found


def index_file(data: bytes, slots: int = SLOTS) -> IndexFile:
    return IndexFile(memory_file(data), slots)


def test_the_entries_of_a_key_come_newest_first() -> None:
    found = index_file(index_bytes([(3, 100), (13, 200), (3, 300), (4, 400), (3, 500)]))
    assert found.phy_offsets(3) == [500, 300, 100]


def test_another_key_of_the_same_slot_is_not_the_key() -> None:
    assert index_file(index_bytes([(3, 100), (13, 200)])).phy_offsets(13) == [200]


@pytest.mark.parametrize("hash_of_key", [5, 23])
def test_a_key_that_was_never_put_has_no_entries(hash_of_key: int) -> None:
    assert index_file(index_bytes([(3, 100)])).phy_offsets(hash_of_key) == []


@pytest.mark.parametrize(
    ("slot_value", "previous"),
    [(1, [1]), (2, [2, 1]), (3, [2, 3, 2]), (3, [3, 1, 2]), (1, [2, 3, 1])],
)
def test_a_circle_of_entries_ends(slot_value: int, previous: list[int]) -> None:
    found = index_file(chain_bytes(slot_value, previous), 1).phy_offsets(0)
    assert len(found) <= len(previous)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("slot_value", [-1, -(2**31), 4, 1000, 2**31 - 1])
def test_a_slot_that_leads_nowhere_has_no_entries(slot_value: int) -> None:
    assert index_file(chain_bytes(slot_value, [0, 1, 2]), 1).phy_offsets(0) == []


@pytest.mark.parametrize("before", [-1, 3, 99])
def test_a_chain_ends_where_a_predecessor_is_none(before: int) -> None:
    assert index_file(chain_bytes(3, [0, before, 2]), 1).phy_offsets(0) == [300, 200]


def test_an_index_count_beyond_the_file_is_not_believed() -> None:
    found = index_file(chain_bytes(3, [0, 1, 2], index_count=2**31 - 1), 1)
    assert (found.capacity, found.phy_offsets(0), len(entries_of(found, 2**31 - 1))) == (4, [300, 200, 100], 3)


def test_entries_behind_the_index_count_are_stale() -> None:
    assert index_file(chain_bytes(3, [0, 1, 2], index_count=3), 1).phy_offsets(0) == []


def test_the_entries_are_listed_with_their_numbers() -> None:
    found = index_file(index_bytes([(3, 100), (13, 200)]))
    assert [(number, entry.key_hash, entry.phy_offset, entry.prev_index) for number, entry in entries_of(found, 3)] == [
        (1, 3, 100, 0),
        (2, 13, 200, 1),
    ]


def test_the_slot_table_is_four_bytes_a_slot() -> None:
    table = b"".join(data for _, data in index_file(index_bytes([(3, 100), (13, 200), (4, 300)])).slot_blocks())
    assert struct.unpack(f">{SLOTS}i", table) == (0, 0, 0, 2, 3, 0, 0, 0, 0, 0)


def test_a_file_has_room_for_four_entries_a_slot() -> None:
    assert index_file(index_bytes([])).capacity == CAPACITY


@pytest.mark.parametrize("size", [0, 1, 39])
def test_a_file_without_a_whole_header_has_none(size: int) -> None:
    found = index_file(bytes(size))
    assert (found.header(), found.phy_offsets(3), entries_of(found, 5)) == (None, [], [])


def test_a_file_of_zeros_has_no_entries() -> None:
    assert index_file(bytes(40 + SLOTS * 84)).phy_offsets(3) == []


@PROPERTY
@given(st.binary(max_size=300), st.integers(1, 12), st.integers(0, 2**31 - 1))
def test_random_bytes_never_raise_and_no_walk_is_longer_than_the_file(
    data: bytes, slots: int, hash_of_key: int
) -> None:
    found = index_file(data, slots)
    assert len(found.phy_offsets(hash_of_key)) <= found.capacity
    assert len(entries_of(found, 2**31 - 1)) <= found.capacity


@PROPERTY
@given(st.data())
def test_random_chains_end(data: st.DataObject) -> None:
    numbers = st.integers(-1, 12)
    found = index_file(chain_bytes(data.draw(numbers), data.draw(st.lists(numbers, max_size=10))), 1).phy_offsets(0)
    assert found == sorted(set(found), reverse=True)


@PROPERTY
@given(st.lists(st.tuples(st.integers(0, 25), st.integers(0, 10**12)), max_size=CAPACITY - 1))
def test_every_key_that_was_put_is_found(hits: list[tuple[int, int]]) -> None:
    found = index_file(index_bytes(hits))
    for hash_of_key in range(26):
        assert found.phy_offsets(hash_of_key) == [phy for other, phy in reversed(hits) if other == hash_of_key]


@pytest.mark.parametrize("end", [None, 40 + 4 * 5, 40 + 4 * 5 + 2, 40, 39, 0])
@pytest.mark.parametrize("slots_of_block", [3, 65536])
def test_many_hashes_are_found_as_each_alone(
    end: int | None, slots_of_block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a file that ends inside its slot table."""
    hits = [(number % 26, 100 * number) for number in range(1, CAPACITY)]
    found = index_file(index_bytes(hits)[:end])
    alone = {hash_of_key: found.phy_offsets(hash_of_key) for hash_of_key in range(30)}
    assert any(alone.values()) == (end is None)
    monkeypatch.setattr(index_service, "MANY_HASHES", 1)
    monkeypatch.setattr(index_service, "SLOTS_PER_BLOCK", slots_of_block)
    assert found.phy_offsets_of(range(29, -1, -1)) == alone


def put(folder: Path, files: dict[str, bytes]) -> IndexService:
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return IndexService(Storage(folder.parent), folder)


def test_a_key_is_looked_up_in_every_file(tmp_path: Path) -> None:
    k1, k2 = key_hash("OrderPaid", "k1"), key_hash("OrderPaid", "k2")
    index = put(
        tmp_path / "index",
        {NAMES[0]: index_bytes([(k1, 500), (k2, 100)]), NAMES[1]: index_bytes([(k1, 500), (k1, 900)])},
    )
    assert index.phy_offsets("OrderPaid", "k1") == [500, 900]
    assert index.phy_offsets("OrderPaid", "k2") == [100]
    assert index.phy_offsets("Other", "k1") == []
    assert index.phy_offsets_by_topic(["Other", "OrderPaid"], "k1") == {"OrderPaid": [500, 900]}
    index.close()


def test_files_of_different_sizes_have_their_own_slots(tmp_path: Path) -> None:
    hash_of_key = key_hash("T", "k")
    index = put(
        tmp_path / "index",
        {NAMES[0]: index_bytes([(hash_of_key, 1)]), NAMES[1]: index_bytes([(hash_of_key, 2)], slots=33)},
    )
    assert [file.slots for file in index.files] == [SLOTS, 33]
    assert index.phy_offsets("T", "k") == [1, 2]
    index.close()


def test_the_configured_slots_are_believed(tmp_path: Path) -> None:
    put(tmp_path / "index", {NAMES[0]: index_bytes([])})
    assert [file.slots for file in IndexService(Storage(tmp_path), tmp_path / "index", 7).files] == [7]


def test_what_is_no_index_file_is_foreign(tmp_path: Path) -> None:
    index = put(tmp_path / "index", {"readme": b"", NAMES[0] + "0": b"", NAMES[0]: index_bytes([])})
    assert [(path.name, kind) for path, kind in index.foreign] == [(NAMES[0] + "0", Kind.FILE), ("readme", Kind.FILE)]
    assert [file.file.path.name for file in index.files] == [NAMES[0]]


def test_a_fifo_and_a_folder_are_no_index_files(tmp_path: Path) -> None:
    (tmp_path / "index" / NAMES[0]).mkdir(parents=True)
    os.mkfifo(tmp_path / "index" / NAMES[1])
    index = IndexService(Storage(tmp_path), tmp_path / "index")
    assert (index.files, [kind for _, kind in index.foreign]) == ([], [Kind.DIRECTORY, Kind.OTHER])


def test_an_index_that_is_a_link_out_of_the_store_is_left_alone(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere", {NAMES[0]: index_bytes([])})
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "index").symlink_to(tmp_path / "elsewhere")
    index = IndexService(Storage(tmp_path / "store"), tmp_path / "store" / "index")
    assert (index.files, index.foreign) == ([], [(tmp_path / "store" / "index", Kind.LINK_OUT)])


def test_a_store_without_an_index_has_no_files(tmp_path: Path) -> None:
    assert IndexService(Storage(tmp_path), tmp_path / "index").files == []


@pytest.mark.parametrize("name", [name for name in SMALL_NAMES if name not in REBUILT])
def test_the_messages_of_a_key_are_the_brokers(name: str, golden: Callable[[str], Path]) -> None:
    store = ReadOnlyStore(golden(name))
    for query in expected(name)["keyQueries"]:
        ours = [found.physical_offset for found in store.by_key(query["topic"], query["key"])]
        assert ours == sorted(ours)
        # the broker gives the newest `max`
        assert ours[-query["max"] :] == sorted(query["physicalOffsets"])


def many_files(folder: Path) -> IndexService:
    """File n has entries of messages in [100 n, 100 n + 60]; the last file has no entry yet."""
    for number in range(64):
        header = struct.pack(">qqqqii", 1000, 2000, 100 * number, 100 * number + 60, 2, 3)
        (folder / f"{20261121091521172 + number}").write_bytes(header if number < 63 else bytes(40))
    return IndexService(Storage(folder), folder)


@pytest.mark.parametrize(
    ("begin", "end", "places"),
    [
        (0, 1, [0]),
        (60, 61, [0]),
        (61, 100, []),
        (61, 101, [1]),
        (3030, 3210, [30, 31, 32]),
        (6200, 9000, [62]),
        (6261, 9000, []),
    ],
)
def test_only_the_files_of_a_part_of_the_log_are_opened(
    begin: int, end: int, places: list[int], tmp_path: Path
) -> None:
    index = many_files(tmp_path)
    with patch.object(IndexFile, "header", autospec=True, side_effect=IndexFile.header) as header:
        assert [index.files.index(file) for file, _ in index.files_between(begin, end)] == places
    assert header.call_count <= len(places) + 8
