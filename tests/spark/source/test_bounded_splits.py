"""Splits that can have a wanted record are read, and others are left out."""

from __future__ import annotations

from contextlib import closing
from itertools import accumulate
from pathlib import Path

import pytest

from rmqctl.spark.scan.split import MIB, Split, splits_of
from rmqctl.spark.source import bounded_splits
from rmqctl.spark.source.bounded_splits import NO_BOUNDS, Bounds, splits_within
from rmqctl.spark.source.stream import boundary
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support.log_maker import Record, encode, log_bytes

FILE_SIZE = 12 * MIB
BODY = 50_000
FIRST_MS = 1_795_252_516_848


def write_files(root: Path, heads: list[int]) -> list[int]:
    """Write full files whose first messages have these store times: the offsets of all messages."""
    (root / "commitlog").mkdir(parents=True)
    (root / "consumequeue").mkdir()
    offsets = []
    for number, head in enumerate(heads):
        base = number * FILE_SIZE
        size = len(encode(Record(body=bytes(BODY)), 0))
        count = FILE_SIZE // size
        bodies = [*[bytes(BODY)] * (count - 1), bytes(BODY + FILE_SIZE - count * size)]
        data = log_bytes([Record(body=body, store_timestamp=head + at) for at, body in enumerate(bodies)], base)
        (root / "commitlog" / f"{base:020d}").write_bytes(data)
        offsets += [base + at for at in accumulate([0] + [size] * (count - 1))]
    return offsets


def chosen(root: Path, bounds: Bounds) -> list[Split]:
    with closing(ReadOnlyStore(root)) as store:
        return splits_within(store.commit_log, root, MIB, bounds)


def files_of(splits: list[Split]) -> list[int]:
    return sorted({split.file for split in splits})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    root = tmp_path_factory.mktemp("bounded")
    return root, write_files(root, [FIRST_MS, FIRST_MS + 1000, FIRST_MS + 2000])


def test_offsets(store: tuple[Path, list[int]]) -> None:
    root, offsets = store
    for low in (0, 1, 5 * MIB, *offsets[::37], *(offset + 1 for offset in offsets[20::61]), 3 * FILE_SIZE):
        high = low + 2 * MIB
        splits = chosen(root, Bounds(from_offset=low, last_offset=high))
        parts = [(split.file_from_offset + split.start, split.file_from_offset + split.stop) for split in splits]
        wanted = [offset for offset in offsets if low <= offset <= high]
        assert all(any(start <= offset < stop for start, stop in parts) for offset in wanted)
        assert len(splits) <= 13
        first = {split.file: split for split in reversed(splits)}
        assert all(one.start == 0 or one.file_from_offset + one.start in offsets for one in first.values())
    assert [split.start for split in chosen(root, Bounds(last_offset=MIB - 1))] == [0]
    assert chosen(root, Bounds(from_offset=4 * FILE_SIZE)) == []
    assert chosen(root, Bounds(last_offset=-1)) == []


def test_a_damaged_place_where_reading_would_begin(tmp_path: Path, store: tuple[Path, list[int]]) -> None:
    offsets = write_files(tmp_path, [FIRST_MS])
    low = offsets[230]
    begin = chosen(tmp_path, Bounds(from_offset=low))[0].start
    assert begin in offsets
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[begin + 4 : begin + 8] = b"none"  # its magic
    path.write_bytes(data)
    assert chosen(tmp_path, Bounds(from_offset=low))[0].start == 0


def test_times(store: tuple[Path, list[int]]) -> None:
    root, _ = store
    assert files_of(chosen(root, Bounds(since=FIRST_MS + 1000))) == [0, 1, 2]  # file 0 may end with this time
    assert files_of(chosen(root, Bounds(since=FIRST_MS + 1001))) == [1, 2]
    assert files_of(chosen(root, Bounds(until=FIRST_MS + 1999))) == [0, 1]
    assert files_of(chosen(root, Bounds(since=FIRST_MS + 1001, until=FIRST_MS + 1500))) == [1]
    with closing(ReadOnlyStore(root)) as opened:
        assert chosen(root, NO_BOUNDS) == splits_of(opened.commit_log, root, MIB)


def test_times_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All messages of these times are read, and little more; all of a file whose clock went back."""
    for name, value in {"SEARCH_MIN": MIB, "NEAR": MIB // 8, "SAMPLES": 4, "FALL_MS": 2}.items():
        monkeypatch.setattr(bounded_splits, name, value)
    monkeypatch.setattr(boundary, "LOOK_BACK", MIB // 2)
    offsets = write_files(tmp_path, [FIRST_MS])
    for since in range(FIRST_MS - 5, FIRST_MS + len(offsets) + 5, 23):
        until = since + 40
        splits = chosen(tmp_path, Bounds(since=since, until=until))
        wanted = [offset for at, offset in enumerate(offsets, FIRST_MS) if since <= at <= until]
        assert all(any(one.start <= offset < one.stop for one in splits) for offset in wanted)
        assert sum(one.stop - one.start for one in splits) <= 44 * (BODY + 200) + 2 * MIB
    path = tmp_path / "commitlog" / f"{0:020d}"
    write_files(tmp_path / "back", [FIRST_MS + 5000])
    half = offsets[len(offsets) // 2]
    path.write_bytes((tmp_path / "back" / "commitlog" / path.name).read_bytes()[:half] + path.read_bytes()[half:])
    with closing(ReadOnlyStore(tmp_path)) as opened:
        every = splits_of(opened.commit_log, tmp_path, MIB)
    assert chosen(tmp_path, Bounds(since=FIRST_MS + 180, until=FIRST_MS + 5010)) == every


def test_a_clock_that_went_back(tmp_path: Path) -> None:
    write_files(tmp_path, [FIRST_MS + 5000, FIRST_MS, FIRST_MS + 2000])
    assert files_of(chosen(tmp_path, Bounds(since=FIRST_MS + 1000, until=FIRST_MS + 1500))) == [0, 1, 2]
