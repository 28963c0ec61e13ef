"""The bytes that a master sends: a store's log as it is on disk, a few files at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.logfile.mapped_file_queue import MappedFileQueue
from rmqctl.logfile.system.storage import Storage
from rmqctl.store.ha.log_source import OPEN_FILES_MAX, LogFiles
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import unpack


def log_files(store: ReadOnlyStore) -> LogFiles:
    log = store.commit_log
    return LogFiles(store.storage, lambda: log.queue.files, lambda: log.end()[0], log.queue.file_size)


def test_the_parts_together_are_the_log_byte_for_byte(tmp_path: Path) -> None:
    store = ReadOnlyStore(unpack("497-basic", tmp_path))
    source = log_files(store)
    on_disk = b"".join(file.path.read_bytes() for file in store.commit_log.queue.files)
    at, received = source.min_offset, b""
    while part := source.read(at, 32768):
        assert at // source.file_size == (at + len(part) - 1) // source.file_size
        received, at = received + part, at + len(part)
    source.close()
    assert at == source.max_offset > source.file_size
    assert received == on_disk[: source.max_offset - source.min_offset]


@pytest.mark.parametrize("offset", [-1, 10**9])
def test_nothing_is_read_outside_the_log(offset: int, tmp_path: Path) -> None:
    assert log_files(ReadOnlyStore(unpack("497-basic", tmp_path))).read(offset, 100) == b""


def test_few_files_are_open_at_once(tmp_path: Path) -> None:
    for base in range(0, 120, 10):
        (tmp_path / f"{base:020d}").write_bytes(bytes(range(base, base + 10)))
    queue = MappedFileQueue(Storage(tmp_path), [tmp_path])
    source = LogFiles(queue.storage, lambda: queue.files, lambda: 115, queue.file_size)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(2):
        assert b"".join(source.read(base, 10) for base in range(0, 120, 10)) == bytes(range(115))
        assert len(list(Path("/proc/self/fd").iterdir())) - before == OPEN_FILES_MAX
    source.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
