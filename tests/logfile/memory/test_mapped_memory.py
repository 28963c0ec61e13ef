"""Memory of a file that is appended to: what is ready, and what the file has in the end."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from rmqctl.logfile.memory.mapped_memory import OS_PAGE_SIZE, READY_AHEAD, READY_AT_ONCE, MappedMemory
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.logfile.writable_mapped_file import LARGE_APPEND, WritableMappedFile

SIZE = 64 * READY_AT_ONCE


class RefusingStorage(WritableStorage):
    """Allocates blocks up to `room` bytes of a file; beyond, it fails with `code`."""

    def __init__(self, root: Path, room: int, code: int) -> None:
        super().__init__(root)
        self.room, self.code = room, code

    def allocate(self, descriptor: int, position: int, size: int) -> None:
        if position + size > self.room:
            raise OSError(self.code, os.strerror(self.code))
        super().allocate(descriptor, position, size)


class FailingStorage(WritableStorage):
    """Writes `left` more bytes, then it fails with ENOSPC; a write that fails has written what there was room for."""

    left = SIZE

    def write(self, descriptor: int, position: int, data: bytes | bytearray | memoryview) -> None:
        room, self.left = self.left, max(self.left - len(data), 0)
        super().write(descriptor, position, data[:room])
        if room < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class CopyingStorage(WritableStorage):
    """Allocates as the C library does where the file system cannot: by a read, and a write of what was read."""

    def allocate(self, descriptor: int, position: int, size: int) -> None:
        read = os.pread(descriptor, size, position)
        time.sleep(0.01)
        os.pwrite(descriptor, read, position)


def memory_of(storage: WritableStorage, position: int = 0, size: int = SIZE) -> MappedMemory:
    return MappedMemory(storage, storage.create(storage.root / "file", size), size, position)


def test_a_little_more_than_is_asked_for(tmp_path: Path) -> None:
    memory = memory_of(WritableStorage(tmp_path), position=OS_PAGE_SIZE + 5)
    assert memory.ready == OS_PAGE_SIZE
    assert memory.make_ready(2 * OS_PAGE_SIZE + 1)
    assert memory.ready == 3 * OS_PAGE_SIZE + READY_AT_ONCE
    assert (tmp_path / "file").stat().st_blocks * 512 < 2 * READY_AT_ONCE
    memory.close()


def test_who_goes_on_finds_the_next_pages_ready(tmp_path: Path) -> None:
    memory = memory_of(WritableStorage(tmp_path))
    assert memory.make_ready(1)
    assert memory.make_ready(memory.ready + READY_AT_ONCE)
    known = memory.ready
    assert memory.make_ready(known + 1)
    assert memory.ready == known + READY_AHEAD
    memory.close()
    assert (tmp_path / "file").stat().st_blocks * 512 >= known + READY_AHEAD


def test_never_beyond_the_file(tmp_path: Path) -> None:
    size = 2 * READY_AT_ONCE + OS_PAGE_SIZE
    memory = memory_of(WritableStorage(tmp_path), size=size)
    for end in (1, READY_AT_ONCE + OS_PAGE_SIZE + 1, size):
        assert memory.make_ready(end)
    assert memory.ready == size
    memory.close()


def test_a_file_system_that_cannot_allocate(tmp_path: Path) -> None:
    memory = memory_of(RefusingStorage(tmp_path, 0, errno.EOPNOTSUPP))
    assert not memory.make_ready(1)
    memory.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_what_fails_ahead_is_told_when_it_is_needed(code: int, tmp_path: Path) -> None:
    room = 3 * READY_AT_ONCE + 8 * OS_PAGE_SIZE
    memory = memory_of(RefusingStorage(tmp_path, room, code))
    assert memory.make_ready(1)
    assert memory.make_ready(memory.ready + READY_AT_ONCE)
    ready = memory.ready
    with pytest.raises(OSError, match=os.strerror(code)):
        memory.make_ready(room + 1)
    assert memory.ready == ready
    memory.close()


@pytest.mark.parametrize("kind", [WritableStorage, CopyingStorage])
def test_much_that_is_appended_is_there(kind: type[WritableStorage], tmp_path: Path) -> None:
    storage = kind(tmp_path)
    path = tmp_path / "file"
    file = WritableMappedFile(storage, path, 0, SIZE, descriptor=storage.create(path, SIZE), mapped=True)
    sizes = (LARGE_APPEND - 1, 9000, LARGE_APPEND, 3 * LARGE_APPEND)
    pieces = [bytes([number % 251 + 1]) * (sizes[number * 7 % 11 % 4] + number) for number in range(400)]
    for piece in pieces:
        file.append(piece)
    file.flush()
    file.close()
    assert path.read_bytes().rstrip(b"\0") == b"".join(pieces)


def test_a_large_append_that_fails_leaves_nothing_behind_the_next_one(tmp_path: Path) -> None:
    storage = FailingStorage(tmp_path)
    path = tmp_path / "file"
    file = WritableMappedFile(storage, path, 0, SIZE, descriptor=storage.create(path, SIZE), mapped=True)
    file.append(b"first")
    storage.left = 1000
    with pytest.raises(OSError, match="No space"):
        file.append(b"x" * LARGE_APPEND)
    assert file.wrote_position == 5
    storage.left = SIZE
    file.append(b"second")
    file.close()
    assert path.read_bytes().rstrip(b"\0") == b"firstsecond"
