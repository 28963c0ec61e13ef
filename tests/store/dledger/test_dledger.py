"""The log of a DLedger group: records after headers, damaged or not."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rmqctl.format.message import Blank, Damage, Message
from rmqctl.store.read.commit_log import ScanSummary
from rmqctl.store.read.file_scan import ScanItem
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support.file_edits import write_at
from tests.support.log_maker import Record, write_entries, write_log

COUNTS = [4, 3]
HEADER = 48


def scanned(root: Path) -> list[ScanItem]:
    """Every item of the log, read one by one; by columns it is the same."""
    with_columns = ReadOnlyStore(root, log_only=True).commit_log.scan_columns(ScanSummary(), threads=2)
    items = list(ReadOnlyStore(root, log_only=True).commit_log.scan())
    assert list(with_columns) == items
    return items


def damages(items: list[ScanItem]) -> list[tuple[str, int, int]]:
    return [(item.code, item.physical_offset, item.size) for item in items if isinstance(item, Damage)]


def queue_offsets(items: list[ScanItem]) -> list[int]:
    return [item.queue_offset for item in items if isinstance(item, Message)]


def write(root: Path, at: int, data: bytes) -> None:
    write_at(root / "dledger-n0" / "data" / f"{at // 2048 * 2048:020d}", at % 2048, data)


def read(root: Path, at: int, size: int) -> bytes:
    return (root / "dledger-n0" / "data" / f"{at // 2048 * 2048:020d}").read_bytes()[at % 2048 :][:size]


def test_entries_of_several_files(tmp_path: Path) -> None:
    starts = write_entries(tmp_path, COUNTS)
    items = scanned(tmp_path)
    assert (damages(items), queue_offsets(items)) == ([], list(range(7)))
    assert [item.physical_offset for item in items if isinstance(item, Message)] == [
        at + HEADER for file in starts for at in file
    ]
    assert [item.end for item in items if isinstance(item, Blank)] == [2048]


def test_a_record_is_found_by_its_own_offset_and_by_its_entry(tmp_path: Path) -> None:
    starts = write_entries(tmp_path, COUNTS)
    log = ReadOnlyStore(tmp_path, log_only=True).commit_log
    for at in starts[0]:
        assert isinstance(found := log.at(at + HEADER), Message)
        assert log.at(at) == found
    assert log.end()[0] == log.end(starts[1][1] + HEADER)[0]


def test_an_ordinary_log_before_the_group(tmp_path: Path) -> None:
    write_log(tmp_path, [Record(queue_offset=at) for at in range(3)], file_size=2048, blank=True)
    write_entries(tmp_path, COUNTS, base=2048)
    items = scanned(tmp_path)
    assert (damages(items), queue_offsets(items)) == ([], [0, 1, 2, *range(7)])


@pytest.mark.parametrize("at", range(HEADER))
def test_each_byte_of_a_header(at: int, tmp_path: Path) -> None:
    starts = write_entries(tmp_path, COUNTS)
    start = starts[0][2]
    byte = read(tmp_path, start + at, 1)[0]
    for bit in (1, 128):
        write(tmp_path, start + at, bytes([byte ^ bit]))
        items = scanned(tmp_path)
        found = damages(items)
        assert queue_offsets(items) == list(range(7))
        if 16 <= at < 24 and found[0][1] != start:  # a term that is too high shows in the next entry
            assert found == [("bad-entry", starts[0][3], HEADER)]
        else:
            assert found == [("bad-entry", start, HEADER)]


def test_a_header_of_zeros(tmp_path: Path) -> None:
    for number in (1, 3):
        root = tmp_path / str(number)
        starts = write_entries(root, COUNTS)
        write(root, starts[0][number], bytes(HEADER))
        items = scanned(root)
        assert (damages(items), queue_offsets(items)) == ([("bad-entry", starts[0][number], HEADER)], list(range(7)))


@pytest.mark.parametrize("number", [1, 3])
def test_header_and_record_destroyed(number: int, tmp_path: Path) -> None:
    starts = write_entries(tmp_path, COUNTS)
    start = starts[0][number]
    write(tmp_path, start, b"\xee" * 100)
    items = scanned(tmp_path)
    blank = next(item.physical_offset for item in items if isinstance(item, Blank))
    end = [*starts[0], blank][number + 1]
    assert (damages(items), queue_offsets(items)) == (
        [("bad-entry", start, end - start)],
        [at for at in range(7) if at != number],
    )


@pytest.mark.parametrize(
    ("at", "data", "code"),
    [
        (HEADER, bytes(8), "bad-magic"),
        (HEADER, struct.pack(">i", 5000), "bad-size"),
        (HEADER + 84, struct.pack(">i", 1), "bad-length"),
        (HEADER + 88, b"H", "bad-body-crc"),
        (HEADER + 28, bytes(8), "bad-physical-offset"),
    ],
)
def test_the_entry_says_where_a_damaged_record_ends(at: int, data: bytes, code: str, tmp_path: Path) -> None:
    starts = write_entries(tmp_path, COUNTS)
    start, end = starts[0][1:3]
    write(tmp_path, start + at, data)
    items = scanned(tmp_path)
    assert (damages(items), queue_offsets(items)) == (
        [(code, start + HEADER, end - start - HEADER)],
        [0, 2, 3, 4, 5, 6],
    )


def test_a_blank_of_a_wrong_size(tmp_path: Path) -> None:
    write_entries(tmp_path, COUNTS)
    blank = next(item for item in scanned(tmp_path) if isinstance(item, Blank))
    write(tmp_path, blank.physical_offset + 4, struct.pack(">i", 7))
    items = scanned(tmp_path)
    assert (damages(items), queue_offsets(items)) == (
        [("bad-blank-size", blank.physical_offset, blank.size)],
        list(range(7)),
    )


def test_an_entry_that_is_missing(tmp_path: Path) -> None:
    """The index does not go on: the entry before is an older one's."""
    starts = write_entries(tmp_path, COUNTS)
    for at in starts[0][2:]:
        write(tmp_path, at + 8, struct.pack(">q", struct.unpack(">q", read(tmp_path, at + 8, 8))[0] + 5))
    items = scanned(tmp_path)
    assert (damages(items), queue_offsets(items)) == ([("bad-entry", starts[0][2], HEADER)], list(range(7)))


def test_a_range_that_begins_inside_an_entry(tmp_path: Path) -> None:
    starts = write_entries(tmp_path, COUNTS)
    log = ReadOnlyStore(tmp_path, log_only=True).commit_log
    for start, first in (
        (starts[0][1], 1),
        (starts[0][1] + 1, 1),
        (starts[0][1] + HEADER, 1),
        (starts[0][1] + HEADER + 1, 2),
    ):
        assert queue_offsets(list(log.scan(start=start))) == list(range(first, 7)), start
