"""The flush services: a put that waits is told, in time or not; nothing is left after at the end."""

from __future__ import annotations

import errno
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pytest

from rmqctl.logfile.memory.transient_store_pool import TransientStorePool
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.logfile.writable_mapped_file import WritableMappedFile
from rmqctl.logfile.writable_mapped_file_queue import WritableMappedFileQueue
from rmqctl.store.engine.flush import (
    CommitRealTimeService,
    FlushDiskWatcher,
    FlushIntervals,
    FlushRealTimeService,
    GroupCommitService,
)
from rmqctl.store.write.group_commit_request import GroupCommitRequest
from rmqctl.store.write.put_message import PutMessageStatus

PAGE = 4096


class CountingStorage(WritableStorage):
    """Counts what is brought to the disk; can be slow or broken."""

    synced = 0
    delay = 0.0
    broken = False

    def sync(self, descriptor: int) -> None:
        self.synced += 1
        time.sleep(self.delay)
        if self.broken:
            raise OSError(errno.EIO, "Input/output error")
        super().sync(descriptor)


@pytest.fixture
def storage(tmp_path: Path) -> CountingStorage:
    return CountingStorage(tmp_path)


@pytest.fixture
def queue(storage: CountingStorage, tmp_path: Path) -> WritableMappedFileQueue:
    return WritableMappedFileQueue(storage, [tmp_path / "log"], 4 * PAGE)


def request(offset: int, seconds: float = 5.0) -> GroupCommitRequest:
    return GroupCommitRequest(offset, time.monotonic() + seconds, Future())


def test_puts_that_wait_are_flushed_together(queue: WritableMappedFileQueue, storage: CountingStorage) -> None:
    flushed = threading.Event()
    service = GroupCommitService(queue, flushed.set)
    queue.last_with_room().append(bytes(300))
    waiting = [request(end) for end in (100, 200, 300)]
    for one in waiting:
        service.put_request(one)
    service.start()
    assert [one.done.result(5) for one in waiting] == [PutMessageStatus.PUT_OK] * 3
    assert flushed.wait(5)
    service.shutdown()
    assert (storage.synced, queue.flushed_where) == (1, 300)


def test_a_put_in_the_next_file_is_flushed_too(queue: WritableMappedFileQueue) -> None:
    service = GroupCommitService(queue, lambda: None)
    queue.last_with_room().append(bytes(4 * PAGE))
    queue.last_with_room().append(bytes(10))
    waiting = request(4 * PAGE + 10)
    service.start()
    service.put_request(waiting)
    assert waiting.done.result(5) is PutMessageStatus.PUT_OK
    service.shutdown()


def test_a_disk_that_fails_is_told_as_a_time_out(queue: WritableMappedFileQueue, storage: CountingStorage) -> None:
    storage.broken = True
    service = GroupCommitService(queue, lambda: None)
    queue.last_with_room().append(bytes(10))
    waiting = request(10)
    service.start()
    service.put_request(waiting)
    assert waiting.done.result(5) is PutMessageStatus.FLUSH_DISK_TIMEOUT
    storage.broken = False
    service.shutdown()


def test_the_watcher_does_not_wait_for_the_disk(queue: WritableMappedFileQueue, storage: CountingStorage) -> None:
    storage.delay = 1.0
    service, watcher = GroupCommitService(queue, lambda: None), FlushDiskWatcher()
    queue.last_with_room().append(bytes(10))
    waiting = request(10, seconds=0.05)
    service.start()
    watcher.start()
    watcher.watch(waiting)
    service.put_request(waiting)
    assert waiting.done.result(5) is PutMessageStatus.FLUSH_DISK_TIMEOUT
    watcher.shutdown()
    service.shutdown()
    assert queue.flushed_where == 10


def test_what_is_left_is_flushed_at_the_end(queue: WritableMappedFileQueue) -> None:
    service = FlushRealTimeService(queue, FlushIntervals(flush=60, flush_thorough=60), lambda: None)
    service.start()
    queue.last_with_room().append(bytes(10))
    service.shutdown()
    assert queue.flushed_where == 10


def test_less_than_the_least_pages_waits_for_the_thorough_flush(queue: WritableMappedFileQueue) -> None:
    queue.last_with_room().append(bytes(2 * PAGE))
    assert queue.flush(4)
    assert queue.flushed_where == 0
    queue.last_with_room().append(bytes(2 * PAGE - 10))
    assert queue.flush(4)
    queue.last_with_room().append(bytes(10))
    assert not queue.flush(4)  # full: whatever the pages
    assert queue.flushed_where == 4 * PAGE


def test_a_pools_buffer_is_committed_then_flushed(storage: CountingStorage, tmp_path: Path) -> None:
    pool = TransientStorePool(1, 4 * PAGE)
    descriptor = storage.create(tmp_path / "log" / f"{0:020d}", 4 * PAGE)
    file = WritableMappedFile(storage, tmp_path / "log" / f"{0:020d}", 0, 4 * PAGE, pool=pool, descriptor=descriptor)
    assert pool.available == 0
    file.append(b"abc")
    assert (file.readable_position, file.flush(), file.path.read_bytes()[:3]) == (0, 0, bytes(3))
    assert file.commit() == 3
    assert (file.readable_position, file.flush(), file.path.read_bytes()[:3]) == (3, 3, b"abc")
    file.append(bytes(4 * PAGE - 3))
    file.commit()
    assert pool.available == 1
    file.close()


def test_the_commit_service_wakes_who_flushes(queue: WritableMappedFileQueue) -> None:
    intervals = FlushIntervals(flush=60, flush_thorough=0, commit=0.01, commit_thorough=0)
    flusher = FlushRealTimeService(queue, intervals, lambda: None)
    committer = CommitRealTimeService(queue, intervals, flusher)
    queue.last_with_room().append(bytes(10))
    flusher.start()
    committer.start()
    deadline = time.monotonic() + 5
    while queue.flushed_where < 10 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert queue.flushed_where == 10
    committer.shutdown()
    flusher.shutdown()


def test_a_file_that_is_held_is_not_destroyed(queue: WritableMappedFileQueue) -> None:
    file = queue.last_with_room()
    file.append(bytes(10))
    assert file.hold()
    assert not file.destroy(60_000)
    assert not file.hold()
    assert file.path.exists()
    file.release()
    assert file.destroy(60_000)
    assert not file.path.exists()


def test_a_held_file_goes_all_the_same_when_it_is_forced(queue: WritableMappedFileQueue) -> None:
    file = queue.last_with_room()
    assert file.hold()
    assert not file.destroy(60_000)
    assert file.destroy(0)
    assert not file.path.exists()
