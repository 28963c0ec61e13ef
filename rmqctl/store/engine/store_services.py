"""The threads of a store that stays open for a long time.

These threads flush, commit, dispatch and deliver, while a put does not have to wait for the disk.

`rmqctl append` needs none of these threads, because `rmqctl append` flushes all files when it ends. A program that
embeds the engine starts them beside `MessageStore`.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rmqctl.errors import Unreadable
from rmqctl.store.engine.flush import (
    SYNC_FLUSH_TIMEOUT_SECONDS,
    CommitRealTimeService,
    FlushDiskWatcher,
    FlushIntervals,
    FlushRealTimeService,
    GroupCommitService,
)
from rmqctl.store.engine.message_store import now_ms
from rmqctl.store.write.group_commit_request import GroupCommitRequest
from rmqctl.store.write.put_message import PutMessageResult, PutMessageStatus

if TYPE_CHECKING:
    from types import TracebackType

    from rmqctl.format.encode import MessageExtBrokerInner
    from rmqctl.store.engine.message_store import MessageStore
    from rmqctl.store.engine.schedule import ScheduleMessageService

REPUT_INTERVAL_SECONDS = 0.1
DELIVER_INTERVAL_SECONDS = 0.1
DELIVER_AFTER_ERROR_SECONDS = 10.0
PERSIST_INTERVAL_SECONDS = 10.0  # flushDelayOffsetInterval


class StoreServices:
    """The background services of `store`.

    With `sync_flush`, a put gets its result only when the message is flushed to disk (FlushDiskType.SYNC_FLUSH). With
    `deliver`, delayed messages are delivered to their topics when the messages are due. Without `deliver`, delayed
    messages wait for a broker. Raises Unreadable if `deliver` is set and the offsets of earlier deliveries cannot be
    read. Arguments that are not given are taken from the store's broker.conf.

    This class is a context manager. At its end, the context manager stops the threads, dispatches and flushes the
    remaining messages, and closes the store.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        sync_flush: bool | None = None,
        deliver: bool = False,
        intervals: FlushIntervals | None = None,
    ) -> None:
        self._store = store
        self._sync_flush = store.conf.writing.sync_flush if sync_flush is None else sync_flush
        queue = store.log_queue
        found = intervals or FlushIntervals.of(store.conf.writing)
        self._group = GroupCommitService(queue, store.note_flushed)
        self._flusher = FlushRealTimeService(queue, found, store.note_flushed)
        self._committer = CommitRealTimeService(queue, found, self._flusher)
        self._watcher = FlushDiskWatcher()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run_reput, name="ReputMessageService", daemon=True)]
        self._schedule = store.schedule_message_service() if deliver else None
        if self._schedule is not None:
            arguments = (self._schedule,)
            self._threads.append(
                threading.Thread(target=self._run_schedule, args=arguments, name="ScheduleMessageService", daemon=True)
            )
        self._services = (self._group, self._watcher) if self._sync_flush else (self._flusher, self._committer)

    def __enter__(self) -> StoreServices:
        for service in self._services:
            service.start()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        for service in reversed(self._services):
            service.shutdown()
        try:
            if self._schedule is not None:
                self._schedule.persist()
        finally:
            self._store.close()

    def async_put_message(self, message: MessageExtBrokerInner) -> Future[PutMessageResult]:
        """Store a message, and return a future of the result.

        Normally, the future is done when the message is stored. With synchronous flush, the future is done when the
        message is flushed to disk. If this flush lasts longer than 5 s, the future is done after 5 s.
        """
        return self._after_flush(self._store.put_message(message))

    def async_put_messages(self, messages: list[MessageExtBrokerInner]) -> Future[PutMessageResult]:
        """Store a batch, and return a future of the result like `async_put_message`."""
        return self._after_flush(self._store.put_messages(messages))

    def put_message(self, message: MessageExtBrokerInner) -> PutMessageResult:
        """Store a message, and wait for the future of `async_put_message`."""
        return self.async_put_message(message).result()

    def _after_flush(self, result: PutMessageResult) -> Future[PutMessageResult]:
        told: Future[PutMessageResult] = Future()
        if result.append is None or not self._sync_flush:
            told.set_result(result)
            return told
        flushed: Future[PutMessageStatus] = Future()
        flushed.add_done_callback(lambda done: told.set_result(replace(result, status=done.result())))
        end = result.append.wrote_offset + result.append.wrote_bytes
        request = GroupCommitRequest(end, time.monotonic() + SYNC_FLUSH_TIMEOUT_SECONDS, flushed)
        self._watcher.watch(request)
        self._group.put_request(request)
        return told

    def _run_reput(self) -> None:
        while not self._stop.wait(REPUT_INTERVAL_SECONDS):
            try:
                self._store.dispatch()
            except OSError:  # the store takes no more messages and says so to each put; `close` raises it again
                return

    def _run_schedule(self, schedule: ScheduleMessageService) -> None:
        persisted = time.monotonic()
        wait = DELIVER_INTERVAL_SECONDS
        while not self._stop.wait(wait):
            wait = DELIVER_INTERVAL_SECONDS
            try:
                schedule.deliver_due(now_ms())
                if time.monotonic() - persisted >= PERSIST_INTERVAL_SECONDS:
                    schedule.persist()
                    persisted = time.monotonic()
            except (OSError, Unreadable):  # it may pass: a broker goes on, too; `__exit__` tells when it does not
                wait = DELIVER_AFTER_ERROR_SECONDS
