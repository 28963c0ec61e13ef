from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.logfile.system.storage import Storage
from rmqctl.logfile.system.zeros import BLOCK_SIZE
from tests.support.memory_storage import FOLDER, MemoryStorage, memory_file
from tests.support.property_settings import PROPERTY

NAME = f"{65536:020d}"


def test_the_end_is_the_offset_behind_the_last_byte() -> None:
    assert memory_file(bytes(100), 65536).end == 65636


def test_the_name_is_the_path_inside_the_store() -> None:
    assert memory_file(b"", 65536).name == f"commitlog/{NAME}"


def test_a_file_is_opened_when_it_is_first_read_and_only_once() -> None:
    storage = MemoryStorage({NAME: b"0123456789"})
    file = MappedFile(storage, FOLDER / NAME, 65536, 10)
    assert storage.opened == []
    assert (file.read(0, 2), file.read(8, 5)) == (b"01", b"89")
    assert storage.opened == [NAME]


def test_a_closed_file_opens_again_when_it_is_read() -> None:
    storage = MemoryStorage({NAME: b"0123456789"})
    with MappedFile(storage, FOLDER / NAME, 65536, 10) as file:
        file.read(0, 2)
    assert storage.closed == [NAME]
    assert file.read(2, 2) == b"23"
    assert storage.opened == [NAME, NAME]


def test_closing_twice_closes_once() -> None:
    storage = MemoryStorage({NAME: b"0123456789"})
    file = MappedFile(storage, FOLDER / NAME, 65536, 10)
    file.close()
    file.read(0, 1)
    file.close()
    file.close()
    assert storage.closed == [NAME]


def test_a_file_that_went_away_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        MappedFile(Storage(tmp_path), tmp_path / NAME, 65536, 10).read(0, 1)


def test_blocks_cover_the_rest_of_the_file() -> None:
    data = bytes(range(256)) * (BLOCK_SIZE // 128) + b"end"
    blocks = list(memory_file(data).blocks(1))
    assert b"".join(block for _, block in blocks) == data[1:]
    assert [position for position, _ in blocks] == [1, 1 + BLOCK_SIZE, 1 + 2 * BLOCK_SIZE]


def test_blocks_of_a_shrunken_file_cannot_be_read() -> None:
    file = MappedFile(MemoryStorage({NAME: b"0123"}), FOLDER / NAME, 65536, 10)
    with pytest.raises(OSError, match="became shorter"):
        list(file.blocks())


def test_an_empty_file_has_no_blocks() -> None:
    assert list(memory_file(b"").blocks()) == []


def sparse(tmp_path: Path, size: int, data: dict[int, bytes]) -> MappedFile:
    path = tmp_path / NAME
    with path.open("wb") as out:
        out.truncate(size)
        for position, part in data.items():
            out.seek(position)
            out.write(part)
    return MappedFile(Storage(tmp_path), path, 65536, size)


def test_the_data_of_a_huge_sparse_file_is_found(tmp_path: Path) -> None:
    with sparse(tmp_path, 2**36, {2**35 + 5: b"xyz"}) as file:
        assert file.first_nonzero(0) == 2**35 + 5
        assert file.data_end(0) == 2**35 + 8


def test_a_huge_hole_is_only_zeros(tmp_path: Path) -> None:
    with sparse(tmp_path, 2**36, {}) as file:
        assert file.first_nonzero(0) is None
        assert file.data_end(77) == 77


@PROPERTY
@given(st.lists(st.sampled_from([b"\0", b"\0" * 7, b"a", b"bc"]), max_size=12).map(b"".join), st.integers(0, 30))
def test_the_data_is_between_the_first_and_the_last_byte_that_is_not_zero(data: bytes, position: int) -> None:
    nonzero = [at for at in range(position, len(data)) if data[at]]
    file = memory_file(data)
    assert file.first_nonzero(position) == (nonzero[0] if nonzero else None)
    assert file.data_end(position) == (nonzero[-1] + 1 if nonzero else position)
