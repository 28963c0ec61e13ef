"""Background threads for a store that stays open for a long time.

They flush, commit, dispatch and deliver messages, so puts need not wait for the disk. `rmqctl append` needs none,
because it flushes all files when it ends. A program that embeds the engine opens a MessageStore, and starts them with
StoreServices.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rmqctl.errors import Unreadable
from rmqctl.format.properties import is_wait_store_msg_ok
from rmqctl.store.engine.flush import (
    SYNC_FLUSH_TIMEOUT_SECONDS,
    CommitRealTimeService,
    FlushDiskWatcher,
    FlushIntervals,
    FlushRealTimeService,
    GroupCommitService,
)
from rmqctl.store.engine.message_store import now_ms
from rmqctl.store.ha.ha_service import LOOPBACK, HAService
from rmqctl.store.write.group_commit_request import GroupCommitRequest
from rmqctl.store.write.put_message import PutMessageResult, PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from rmqctl.format.encode import MessageExtBrokerInner
    from rmqctl.format.profile import Profile
    from rmqctl.store.engine.message_store import MessageStore
    from rmqctl.store.engine.schedule import ScheduleMessageService

REPUT_INTERVAL_SECONDS = 0.1
DELIVER_INTERVAL_SECONDS = 0.1
DELIVER_AFTER_ERROR_SECONDS = 10.0
PERSIST_INTERVAL_SECONDS = 10.0  # flushDelayOffsetInterval
NOT_ENOUGH = "in-sync replicas not enough"  # the broker's own words
_PUT_OK: Future[PutMessageStatus] = Future()
_PUT_OK.set_result(PutMessageStatus.PUT_OK)
ANY_SLAVE = 1  # ackNums of the requests of a 4.x broker


class SynchronousMaster:
    """Waits for the slaves of `service`, as a broker of `profile` does.

    | brokers | how many slaves | too few |
    |---|---|---|
    | 4.x | one | SLAVE_NOT_AVAILABLE at once (none is connected, or all are haSlaveFallbehindMax behind) |
    | 5.x | inSyncReplicas - 1; none by default | FLUSH_SLAVE_TIMEOUT after slaveTimeout |
    | 5.x, enableSlaveActingMaster | the same | IN_SYNC_REPLICAS_NOT_ENOUGH at once, and nothing is stored |

    With enableAutoInSyncReplicas, the number of slaves falls to that of slaves in sync, but not below minInSyncReplicas
    - 1.

    If a connected slave does not acknowledge in time, the put gets FLUSH_SLAVE_TIMEOUT. In 4.x, a put with
    SLAVE_NOT_AVAILABLE or FLUSH_SLAVE_TIMEOUT stores the message. Up to 4.9.2, a put waits for syncFlushTimeout instead
    of slaveTimeout.

    `alive_replica_num_in_group` is the number of live brokers in the group, with the master (5.x,
    enableSlaveActingMaster). A broker regularly asks a name server for it; in rmqctl, the embedding program sets it
    (default: totalReplicas of broker.conf).
    """

    def __init__(self, service: HAService, profile: Profile) -> None:
        self.service = service
        self._conf = service.conf
        self._counts_replicas = profile.counts_in_sync_replicas
        timeout = self._conf.slave_timeout_ms if profile.has_slave_timeout else self._conf.sync_flush_timeout_ms
        self._timeout = timeout / 1000
        self.alive_replica_num_in_group = self._conf.total_replicas

    def need_ack_nums(self, max_phy_offset: int) -> int | None:
        """Return how many brokers, with the master, must have the next message, or None.

        `max_phy_offset` is the end of the log before the put. None if too few brokers are in sync: the message must not
        be stored (calcNeedAckNums).
        """
        if not self._counts_replicas:
            return ANY_SLAVE
        needed = self._conf.in_sync_replicas
        if not self._conf.slave_acting_master:
            return needed
        in_sync = min(self.alive_replica_num_in_group, self.service.in_sync_replicas_nums(max_phy_offset))
        if self._conf.auto_in_sync_replicas:
            needed = max(min(needed, in_sync), self._conf.min_in_sync_replicas)
        return needed if needed <= in_sync else None

    def submit_replica_request(self, end: int, ack_nums: int) -> Future[PutMessageStatus]:
        """Return a future of the replication status; the message ends at `end`."""
        done: Future[PutMessageStatus] = Future()
        if self._counts_replicas and ack_nums <= 1:
            done.set_result(PutMessageStatus.PUT_OK)
        elif not self._counts_replicas and not self.service.is_slave_ok(end):
            done.set_result(PutMessageStatus.SLAVE_NOT_AVAILABLE)
        else:
            self.service.put_request(GroupCommitRequest(end, time.monotonic() + self._timeout, done, ack_nums))
        return done


class StoreServices:
    """The background services of `store`, a context manager.

    With `sync_flush`, a put waits until the message is flushed to disk (FlushDiskType.SYNC_FLUSH). With `deliver`,
    delayed messages are delivered when they are due, and Unreadable is raised if config/delayOffset.json and its `.bak`
    are both unreadable; without it, they wait for a broker. The defaults of `sync_flush` and `intervals` are in the
    store's broker.conf.

    With brokerRole=SYNC_MASTER in broker.conf, `master` sends the log to slaves. It listens on haListenPort at the
    address `ha_host`, by default loopback, because the HA protocol has no authentication; a broker listens on all
    addresses. The start of the `with` block opens the port; if that fails, the store is closed and OSError is raised.

    The end of the `with` block stops the threads, dispatches and flushes all messages, and closes the store.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        sync_flush: bool | None = None,
        deliver: bool = False,
        intervals: FlushIntervals | None = None,
        ha_host: str = LOOPBACK,
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
        self._log_source = store.log_source()
        self.master: SynchronousMaster | None = None
        self._ha_host = ha_host
        self._services = (self._group, self._watcher) if self._sync_flush else (self._flusher, self._committer)

    def __enter__(self) -> StoreServices:
        if self._store.conf.ha.sync_master:
            self.master = self._synchronous_master()
            self.master.service.start()
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
        if self.master is not None:
            self.master.service.shutdown()
        self._log_source.close()
        for service in reversed(self._services):
            service.shutdown()
        try:
            if self._schedule is not None:
                self._schedule.persist()
        finally:
            self._store.close()

    def _synchronous_master(self) -> SynchronousMaster:
        try:
            service = HAService(self._log_source, self._store.conf.ha, host=self._ha_host)
        except OSError:
            self._log_source.close()
            self._store.close()
            raise
        return SynchronousMaster(service, self._store.profile)

    def async_put_message(self, message: MessageExtBrokerInner) -> Future[PutMessageResult]:
        """Store a message, and return a future of the result.

        It is done when the message is stored; with synchronous flush, when it is flushed to disk, but after 5 s at
        most; with brokerRole=SYNC_MASTER, when enough slaves have the message, or after slaveTimeout. Flush and slaves
        work in parallel. With WAIT=false, it waits for neither.
        """
        return self._put(message, partial(self._store.put_message, message))

    def async_put_messages(self, messages: list[MessageExtBrokerInner]) -> Future[PutMessageResult]:
        """Store a batch, and return a future of the result.

        It is done as that of `async_put_message`. The first message's property WAIT applies to the batch.
        """
        return self._put(messages[0], partial(self._store.put_messages, messages))

    def put_message(self, message: MessageExtBrokerInner) -> PutMessageResult:
        """Store a message, and wait for the future of `async_put_message`."""
        return self.async_put_message(message).result()

    def _put(self, first: MessageExtBrokerInner, put: Callable[[], PutMessageResult]) -> Future[PutMessageResult]:
        told: Future[PutMessageResult] = Future()
        waits = is_wait_store_msg_ok(first.properties)
        master = self.master if waits else None
        ack_nums = master.need_ack_nums(self._store.max_phy_offset) if master is not None else 0
        if ack_nums is None:
            told.set_result(PutMessageResult(PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, remark=NOT_ENOUGH))
            return told
        result = put()
        if result.append is None or not waits:
            told.set_result(result)
            return told
        end = result.append.wrote_offset + result.append.wrote_bytes
        flushed = self._flushed(end) if self._sync_flush else _PUT_OK
        replicated = master.submit_replica_request(end, ack_nums) if master is not None else _PUT_OK

        def tell(_: Future[PutMessageStatus]) -> None:
            status = flushed.result() if replicated.result() is PutMessageStatus.PUT_OK else replicated.result()
            told.set_result(replace(result, status=status))

        flushed.add_done_callback(lambda _: replicated.add_done_callback(tell))
        return told

    def _flushed(self, end: int) -> Future[PutMessageStatus]:
        request = GroupCommitRequest(end, time.monotonic() + SYNC_FLUSH_TIMEOUT_SECONDS, Future())
        self._watcher.watch(request)
        self._group.put_request(request)
        return request.done

    def _run_reput(self) -> None:
        while not self._stop.wait(REPUT_INTERVAL_SECONDS):
            try:
                self._store.dispatch()
            except OSError:  # the store now refuses each put, and `close` raises the error again
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
            except (OSError, Unreadable):  # try again later, as a broker does; `__exit__` raises a lasting error
                wait = DELIVER_AFTER_ERROR_SECONDS
