"""RocketMQ's flush services: threads that write from memory to the disk.

| service | when | how much |
|---|---|---|
| GroupCommitService | a put waits (synchronous flush), or every 10 ms | the log up to the put's end, at most twice |
| FlushRealTimeService | every 500 ms | 4 pages or more; every 10 s all pages |
| CommitRealTimeService | every 200 ms (with a transient store pool) | 4 pages or more; every 200 ms all pages |
| FlushDiskWatcher | a put waits for longer than 5 s | nothing; the put gets FLUSH_DISK_TIMEOUT |
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.store.write.put_message import PutMessageStatus
from rmqctl.store.write.service_thread import ServiceThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.logfile.writable_mapped_file_queue import WritableMappedFileQueue
    from rmqctl.store.config.message_store_config import WritingConf
    from rmqctl.store.write.group_commit_request import GroupCommitRequest

SYNC_FLUSH_TIMEOUT_SECONDS = 5.0
GROUP_COMMIT_INTERVAL_SECONDS = 0.01
WATCH_INTERVAL_SECONDS = 0.1


class FlushIntervals(NamedTuple):
    """The intervals of the flush services in seconds, and the least numbers of pages.

    A flush needs at least `least_pages` waiting pages of 4 KiB, and a commit `commit_least_pages`. In broker.conf, the
    settings have names such as flushIntervalCommitLog; the defaults are the broker's.
    """

    flush: float = 0.5
    flush_thorough: float = 10.0
    commit: float = 0.2
    commit_thorough: float = 0.2
    least_pages: int = 4
    commit_least_pages: int = 4

    @classmethod
    def of(cls, conf: WritingConf) -> FlushIntervals:
        """Return the intervals and the least numbers of pages from broker.conf."""
        return cls(
            conf.flush_interval_ms / 1000, conf.flush_thorough_ms / 1000, conf.commit_interval_ms / 1000,
            conf.commit_thorough_ms / 1000, conf.flush_least_pages, conf.commit_least_pages,
        )  # fmt: skip


class GroupCommitService(ServiceThread):
    """Flushes the log for puts that wait.

    New requests are collected in `_write` while the service works on `_read`.
    """

    def __init__(self, queue: WritableMappedFileQueue, on_flushed: Callable[[], None]) -> None:
        super().__init__("GroupCommitService", GROUP_COMMIT_INTERVAL_SECONDS)
        self._queue = queue
        self._on_flushed = on_flushed
        self._lock = threading.Lock()
        self._write: list[GroupCommitRequest] = []
        self._read: list[GroupCommitRequest] = []

    def put_request(self, request: GroupCommitRequest) -> None:
        """Queue a request, and wake the service."""
        with self._lock:
            self._write.append(request)
        self.wake_up()

    def _work(self) -> None:
        with self._lock:
            self._read, self._write = self._write, self._read
        for request in self._read:
            request.finish(self._flush_up_to(request.next_offset))
        if not self._read:  # messages with WAIT=false
            self._flush_up_to(self._queue.max_offset)
        self._on_flushed()
        self._read.clear()

    def _flush_up_to(self, offset: int) -> PutMessageStatus:
        """Flush twice if the message is in the next log file."""
        try:
            for _ in range(2):
                if self._queue.flushed_where >= offset:
                    break
                self._queue.commit()
                self._queue.flush()
        except OSError:
            return PutMessageStatus.FLUSH_DISK_TIMEOUT
        return PutMessageStatus.PUT_OK if self._queue.flushed_where >= offset else PutMessageStatus.FLUSH_DISK_TIMEOUT


class _Periodic(ServiceThread):
    """A service that flushes or commits when `least_pages` pages are waiting.

    Every `thorough` seconds, and when the service stops, it flushes or commits all.
    """

    def __init__(
        self, name: str, interval: float, thorough: float, least_pages: int, do: Callable[[int], object]
    ) -> None:
        super().__init__(name, interval)
        self._thorough = thorough
        self._least_pages = least_pages
        self._do = do
        self._last = time.monotonic()

    def _work(self) -> None:
        now = time.monotonic()
        thorough = self._stopped or now - self._last >= self._thorough
        self._last = now if thorough else self._last
        try:
            self._do(0 if thorough else self._least_pages)
        except OSError:  # after a failed flush, `close` raises the error again; a failed commit is repeated
            return


class FlushRealTimeService(_Periodic):
    """Flushes the log in the background (asynchronous flush)."""

    def __init__(
        self, queue: WritableMappedFileQueue, intervals: FlushIntervals, on_flushed: Callable[[], None]
    ) -> None:
        def flush(least_pages: int) -> None:
            queue.flush(least_pages)
            on_flushed()

        super().__init__(
            "FlushRealTimeService", intervals.flush, intervals.flush_thorough, intervals.least_pages, flush
        )


class CommitRealTimeService(_Periodic):
    """Commits the buffers of the transient store pool to the log files.

    After a commit that wrote data, it wakes the service that flushes the log.
    """

    def __init__(self, queue: WritableMappedFileQueue, intervals: FlushIntervals, flusher: ServiceThread) -> None:
        def commit(least_pages: int) -> None:
            if not queue.commit(least_pages):
                flusher.wake_up()

        super().__init__(
            "CommitRealTimeService", intervals.commit, intervals.commit_thorough, intervals.commit_least_pages, commit
        )


class FlushDiskWatcher(ServiceThread):
    """Finishes a put with FLUSH_DISK_TIMEOUT after the put's deadline.

    It does not wait for the disk.
    """

    def __init__(self) -> None:
        super().__init__("FlushDiskWatcher", WATCH_INTERVAL_SECONDS)
        self._lock = threading.Lock()
        self._requests: list[GroupCommitRequest] = []

    def watch(self, request: GroupCommitRequest) -> None:
        """Watch a request until its deadline."""
        with self._lock:
            self._requests.append(request)

    def _work(self) -> None:
        now = time.monotonic()
        with self._lock:
            late = [request for request in self._requests if request.deadline <= now]
            self._requests = [
                request for request in self._requests if request.deadline > now and not request.done.done()
            ]
        for request in late:
            request.finish(PutMessageStatus.FLUSH_DISK_TIMEOUT)
