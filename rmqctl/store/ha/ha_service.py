"""The master's side of replication: RocketMQ's HAService (5.x: DefaultHAService).

    AcceptSocketService    accepts slaves
    HAConnection           one for each slave
    GroupTransferService   finishes puts when enough slaves have their messages

The protocol has no authentication: anyone who can connect to the port can read the whole log. `rmqctl.store.ha.frames`
describes its frames.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from rmqctl.store.config.ha_config import USUAL_HA, HAConf
from rmqctl.store.ha.ha_connection import HAConnection
from rmqctl.store.ha.slave_policy import BrokerPolicy
from rmqctl.store.ha.wait_notify_object import WaitNotifyObject
from rmqctl.store.write.put_message import PutMessageStatus
from rmqctl.store.write.service_thread import ServiceThread

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from rmqctl.store.ha.log_source import LogSource
    from rmqctl.store.ha.slave_policy import SlavePolicy
    from rmqctl.store.write.group_commit_request import GroupCommitRequest

LOOPBACK = "127.0.0.1"
CONNECTIONS_MAX = 64  # each has two threads
ACCEPT_SECONDS = 0.2
AFTER_ERROR_SECONDS = 1.0  # for example, no descriptor is free
GROUP_TRANSFER_INTERVAL_SECONDS = 0.01


class GroupTransferService(ServiceThread):
    """Finishes the puts that wait for acknowledgements from slaves.

    A put gets PUT_OK when `is_acknowledged` returns True, and FLUSH_SLAVE_TIMEOUT after its deadline, or when the
    service stops. A broker waits for one put at a time; rmqctl checks all in each round, with the same results.
    """

    def __init__(self, is_acknowledged: Callable[[GroupCommitRequest], bool]) -> None:
        super().__init__("GroupTransferService", GROUP_TRANSFER_INTERVAL_SECONDS)
        self._is_acknowledged = is_acknowledged
        self._lock = threading.Lock()
        self._requests: list[GroupCommitRequest] = []

    def put_request(self, request: GroupCommitRequest) -> None:
        """Queue a request, and wake the service."""
        with self._lock:
            self._requests.append(request)
        self.wake_up()

    def notify_transfer_some(self) -> None:
        """Wake the service, because a slave has reported a new offset."""
        self.wake_up()

    def _work(self) -> None:
        with self._lock:
            requests, self._requests = self._requests, []
        now, waiting = time.monotonic(), []
        for request in requests:
            if self._is_acknowledged(request):
                request.finish(PutMessageStatus.PUT_OK)
            elif request.deadline <= now or self._stopped:
                request.finish(PutMessageStatus.FLUSH_SLAVE_TIMEOUT)
            else:
                waiting.append(request)
        with self._lock:
            self._requests = waiting + self._requests


class AcceptSocketService:
    """Listens on a port of `host`.

    For each new connection, `on_connect` is called with the socket, the peer's host and the peer's port. Port 0 means
    any free one; the attribute `port` is the one in use. Raises OSError if it cannot be used.
    """

    def __init__(self, host: str, port: int, on_connect: Callable[[socket.socket, str, int], None]) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family)
        self._listener.settimeout(ACCEPT_SECONDS)
        self.port: int = self._listener.getsockname()[1]
        self._on_connect = on_connect
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="AcceptSocketService", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def shutdown(self) -> None:
        """Stop the thread, and close the port."""
        self._stopped.set()
        with suppress(OSError):  # only Linux wakes the thread
            self._listener.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                channel, address = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                self._stopped.wait(AFTER_ERROR_SECONDS)
                continue
            self._on_connect(channel, address[0], address[1])


class HAService:
    """The master that sends `log` to slaves, a context manager.

    It listens on the port `conf.listen_port` of `host`, which the constructor binds: OSError if it cannot be used.
    `push2_slave_max_offset` is the largest offset (bytes) that a slave has ever acknowledged.
    """

    def __init__(
        self, log: LogSource, conf: HAConf = USUAL_HA, policy: SlavePolicy | None = None, host: str = LOOPBACK
    ) -> None:
        self.log = log
        self.conf = conf
        self.policy = policy or BrokerPolicy()
        self.wait_notify_object = WaitNotifyObject()
        self.push2_slave_max_offset = 0
        self._lock = threading.Lock()
        self._connections: list[HAConnection] = []
        self._accept_socket_service = AcceptSocketService(host, conf.listen_port, self._connect)
        self._group_transfer_service = GroupTransferService(self._is_acknowledged)

    def __enter__(self) -> HAService:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    @property
    def port(self) -> int:
        """Return the port that the service listens on."""
        return self._accept_socket_service.port

    @property
    def connection_list(self) -> list[HAConnection]:
        """Return the slaves that are connected now."""
        with self._lock:
            return list(self._connections)

    def start(self) -> None:
        """Start all threads."""
        self._accept_socket_service.start()
        self._group_transfer_service.start()

    def shutdown(self) -> None:
        """Close the port and all connections, and finish all waiting puts."""
        self._accept_socket_service.shutdown()
        for connection in self.connection_list:
            connection.shutdown()
        self._group_transfer_service.shutdown()

    def put_request(self, request: GroupCommitRequest) -> None:
        """Queue a put that waits for slaves, and wake the threads that send the log."""
        self._group_transfer_service.put_request(request)
        self.wait_notify_object.wakeup_all()

    def is_slave_ok(self, master_put_where: int) -> bool:
        """Return whether a slave is connected and the lag is small enough (4.x).

        The lag, `master_put_where` minus `push2_slave_max_offset`, must be less than `slave_fallbehind_max` bytes.
        """
        lag = master_put_where - self.push2_slave_max_offset
        return bool(self.connection_list) and lag < self.conf.slave_fallbehind_max

    def in_sync_replicas_nums(self, master_put_where: int) -> int:
        """Return the number of brokers in sync, including the master (5.x).

        A slave is in sync if `master_put_where` minus `slave_ack_offset` is less than `slave_fallbehind_max` bytes.
        """
        lags = (master_put_where - connection.slave_ack_offset for connection in self.connection_list)
        return 1 + sum(lag < self.conf.slave_fallbehind_max for lag in lags)

    def notify_transfer_some(self, offset: int) -> None:
        """Record that a slave has the log up to `offset`."""
        with self._lock:
            self.push2_slave_max_offset = max(self.push2_slave_max_offset, offset)
        self._group_transfer_service.notify_transfer_some()

    def remove_connection(self, connection: HAConnection, reason: str) -> None:
        """Remove a connection that has ended, and call `policy.on_close`."""
        with self._lock:
            self._connections.remove(connection)
        self.policy.on_close(connection, reason)

    def _connect(self, channel: socket.socket, host: str, port: int) -> None:
        if not self.policy.admits(host) or len(self.connection_list) >= CONNECTIONS_MAX:
            channel.close()
            return
        channel.setblocking(True)
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = HAConnection(self, channel, f"{host}:{port}")
        with self._lock:
            self._connections.append(connection)
        connection.start()

    def _is_acknowledged(self, request: GroupCommitRequest) -> bool:
        if request.ack_nums <= 1:
            return self.push2_slave_max_offset >= request.next_offset
        acks = (connection.slave_ack_offset >= request.next_offset for connection in self.connection_list)
        return 1 + sum(acks) >= request.ack_nums
