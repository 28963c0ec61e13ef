"""The master's side of replication: RocketMQ's HAService.

RocketMQ 5.x calls this class DefaultHAService.

    AcceptSocketService    accepts slaves
    HAConnection           one for each slave
    GroupTransferService   finishes puts when enough slaves have their messages

The protocol has no authentication, so anyone who can connect to the port can read the whole log.
`rmqctl.store.ha.frames` describes the frames of the protocol.
"""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

from rmqctl.store.config.ha_config import USUAL_HA, HAConf
from rmqctl.store.ha.accept_socket_service import AcceptSocketService
from rmqctl.store.ha.group_transfer_service import GroupTransferService
from rmqctl.store.ha.ha_connection import HAConnection
from rmqctl.store.ha.slave_policy import BrokerPolicy
from rmqctl.store.ha.wait_notify_object import WaitNotifyObject

if TYPE_CHECKING:
    from types import TracebackType

    from rmqctl.store.ha.log_source import LogSource
    from rmqctl.store.ha.slave_policy import SlavePolicy
    from rmqctl.store.write.group_commit_request import GroupCommitRequest

LOOPBACK = "127.0.0.1"
CONNECTIONS_MAX = 64  # each has two threads


class HAService:
    """The master that sends `log` to slaves.

    The service listens on the port `conf.listen_port` of `host`. `push2_slave_max_offset` is the largest offset (bytes)
    that a slave has ever acknowledged. HAService is a context manager. The constructor binds the port, and raises
    OSError if the port cannot be used.
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

        The lag is `master_put_where` minus `push2_slave_max_offset`. The lag must be less than `slave_fallbehind_max`
        bytes.
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
        """Return whether enough brokers have the log up to the end of the put."""
        if request.ack_nums <= 1:
            return self.push2_slave_max_offset >= request.next_offset
        acks = (connection.slave_ack_offset >= request.next_offset for connection in self.connection_list)
        return 1 + sum(acks) >= request.ack_nums
