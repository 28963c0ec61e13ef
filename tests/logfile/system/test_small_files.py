"""Small files are read once, and every read returns the same bytes as without this."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.logfile.system import small_files
from rmqctl.logfile.system.small_files import SMALL_FILE
from rmqctl.logfile.system.storage import Storage

SIZE = 12000
HEADS = (b"", b"a", b"a" * 60, b"\0" * 100 + b"b", b"c" * SMALL_FILE, b"d" * (SMALL_FILE + 1), b"e" * SIZE)


def file_with(folder: Path, head: bytes) -> MappedFile:
    path = folder / "file"
    with path.open("wb") as file:
        file.write(head)
        file.truncate(SIZE)
    return MappedFile(Storage(folder), path, 0, SIZE)


@pytest.mark.parametrize("head", HEADS)
def test_every_read_is_the_same(tmp_path: Path, head: bytes) -> None:
    file = file_with(tmp_path, head)
    content = head.ljust(SIZE, b"\0")
    buffer = bytearray(b"x" * 40)
    with file._storage.keeping_small_files():
        for position in (0, 50, 8180, SIZE - 40):
            assert file.read(position, 40) == content[position : position + 40]
            assert file.read_into(position, memoryview(buffer)) == 40
            assert buffer == content[position : position + 40]
        assert file.read(SIZE - 10, 40) == content[-10:]
        with pytest.raises(OSError, match="Invalid argument"):
            file.read(-7, 20)
        assert content[file.known_data_end :].strip(b"\0") == b""
        assert content[: file.next_data(len(head))].rstrip(b"\0") == head.rstrip(b"\0")
    file.close()


def test_a_small_file_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_with(tmp_path, b"a" * 60)
    opened = Mock(wraps=file._storage.open)
    monkeypatch.setattr(file._storage, "open", opened)
    with file._storage.keeping_small_files():
        for position in range(0, 100, 20):
            file.read(position, 20)
            file.next_data(position)
    opened.assert_called_once_with(str(file.path))


def test_a_change_is_seen_after_the_block(tmp_path: Path) -> None:
    file = file_with(tmp_path, b"old")
    with file._storage.keeping_small_files():
        assert file.read(0, 3) == b"old"
        file_with(tmp_path, b"new")
        assert file.read(0, 3) == b"old"
    assert file.read(0, 3) == b"new"
    file.close()


def test_a_file_that_became_shorter_is_not_kept(tmp_path: Path) -> None:
    file = file_with(tmp_path, b"a")
    with file.path.open("r+b") as changed:
        changed.truncate(10)
    with file._storage.keeping_small_files(), pytest.raises(OSError, match="shorter"):
        file.read_exact(0, 20)
    file.close()


def test_without_room_files_are_read_as_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_files, "ROOM", 0)
    file = file_with(tmp_path, b"abc")
    with file._storage.keeping_small_files():
        assert file.read(1, 3) == b"bc\0"
        assert file.known_data_end == SIZE
    file.close()
