"""Any sequence of changes in place does what it says, and is taken back, byte for byte, however small or large the
blocks.
"""

from __future__ import annotations

import os
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.logfile.system.storage import Storage
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.store.journal import pre_image
from rmqctl.store.journal.changes import InPlace, Resize, Write, Zero
from rmqctl.store.journal.transaction import Journal, undo_last

PATH = "commitlog/00000000000000000000"
SIZE_MAX = 300
CONTENT = st.lists(st.one_of(st.binary(max_size=30), st.integers(0, 60).map(bytes)), max_size=10).map(
    lambda parts: b"".join(parts)[:SIZE_MAX]
)
NUMBERS = st.tuples(
    st.sampled_from((Write, Zero, Resize)),
    st.integers(0, SIZE_MAX),
    st.integers(0, 80),
    st.binary(min_size=1, max_size=1),
)


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pre_image, "BLOCK_SIZE", 64)
        patch.setattr(pre_image, "ZERO_BLOCK_SIZE", 16)
        patch.setattr(pre_image, "_ZEROS", bytes(64))
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda _: None)
        yield


def changes_of(numbers: list[tuple[type, int, int, bytes]], size: int) -> list[InPlace]:
    """Changes that fit a file of `size` bytes, each as the one before leaves it."""
    changes: list[InPlace] = []
    for kind, at, length, byte in numbers:
        begin = min(at, size)
        end = min(begin + length, size)
        if kind is Write:
            changes.append(Write(PATH, begin, byte * (end - begin)))
        elif kind is Zero:
            changes.append(Zero(PATH, begin, end))
        else:
            changes.append(Resize(PATH, at))
            size = at
    return changes


def model(data: bytes, changes: list[InPlace]) -> bytes:
    for change in changes:
        if isinstance(change, Write):
            data = data[: change.offset] + change.data + data[change.offset + len(change.data) :]
        elif isinstance(change, Zero):
            data = data[: change.begin] + bytes(change.end - change.begin) + data[change.end :]
        elif isinstance(change, Resize):
            data = data[: change.size].ljust(change.size, b"\0")
    return data


@pytest.mark.parametrize("examples", [40, pytest.param(150, marks=pytest.mark.slow)])
def test_changed_and_back(examples: int) -> None:
    content = given(CONTENT, st.lists(NUMBERS, max_size=6), st.binary(max_size=SIZE_MAX))
    settings(max_examples=examples, deadline=None)(content(changed_and_back))()


def changed_and_back(data: bytes, numbers: list[tuple[type, int, int, bytes]], since: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        path = root / PATH
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        changes = changes_of(numbers, len(data))
        for written_since in (b"", since):
            with Journal.begin(root, "truncate", "", WritableStorage(root)) as journal:
                journal.execute(changes)
            after = path.read_bytes()
            assert after == model(data, changes)
            touched = [at for at in range(min(len(data), len(after))) if is_reached(changes, at, len(data))]
            mixed = bytearray(after)
            for at in touched[: len(written_since)]:
                mixed[at] = written_since[at % len(written_since)]
            path.write_bytes(mixed)
            undo_last(root, WritableStorage(root), force=True)
            assert path.read_bytes() == data
            assert [found.name for found in root.iterdir()] == ["commitlog"]


def is_reached(changes: list[InPlace], at: int, size: int) -> bool:
    """Whether the changes reach the byte of a file that had `size`."""
    for change in changes:
        if isinstance(change, Resize):
            if min(change.size, size) <= at:
                return True
            size = change.size
        else:
            begin, end = (
                (change.begin, change.end) if isinstance(change, Zero) else (change.offset, change.offset + change.size)
            )
            if begin <= at < end:
                return True
    return False


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=10))
def test_merged_ranges_have_the_same_bytes(ranges: list[tuple[int, int]]) -> None:
    found = pre_image.merged(ranges)
    assert {at for begin, end in found for at in range(begin, end)} == {
        at for begin, end in ranges for at in range(begin, end)
    }
    assert all(before[1] < after[0] for before, after in pairwise(found))


@pytest.mark.parametrize("begin", [0, 1, 15, 16, 100])
def test_pieces_in_a_sparse_file(begin: int, tmp_path: Path) -> None:
    path = tmp_path / "f"
    with path.open("wb") as file:
        for at in (200, 100_000, 1_000_000):
            file.seek(at)
            file.write(b"x" * 20)
        file.truncate(3_000_000)
    storage = Storage(tmp_path)
    descriptor = storage.open(path)
    pieces = list(pre_image.nonzero_pieces(storage, descriptor, begin, 3_000_000))
    storage.close(descriptor)
    covered = {at for first, last in pieces for at in range(first, last)}
    assert covered >= {at + more for at in (200, 100_000, 1_000_000) for more in range(20)}
    assert len(covered) <= 3 * 48
