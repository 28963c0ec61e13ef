"""The slaves that registered, and a comparison of their logs with the served log.

A slave only reports the offset at which its log ends. One with a different log of about the same length would append
the served log there. The server therefore reads the last bytes of the slave's log, which a slave sends from its HA
port, and compares them with the served log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.errors import PeerError
from rmqctl.remoting.broker_requests import BrokerRequests
from rmqctl.remoting.client import RemotingClient
from rmqctl.store.ha.ha_client import HAClient

if TYPE_CHECKING:
    from rmqctl.operations.serve.notices import Notices
    from rmqctl.remoting.address import Address
    from rmqctl.store.ha.log_source import LogSource

COMPARED_SIZE = 32768  # bytes before the slave's end; a record of another log differs in its store time at least
SLAVES_MAX = 1000
CHECK_SECONDS = 6.0  # for each of two questions: a slave answers slowly while it starts, and waits 20 s for us


class RegisteredSlave(NamedTuple):
    """The addresses of a slave."""

    host: str  # the IP address from which it registered
    broker: Address  # for requests
    ha: Address


class RegisteredSlaves:
    """The slaves that registered with the name server."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._lock = threading.Lock()
        self._slaves: dict[Address, RegisteredSlave] = {}

    def add(self, slave: RegisteredSlave) -> None:
        """Add a slave, or replace a slave that registers again."""
        with self._lock:
            if slave.broker in self._slaves or len(self._slaves) < SLAVES_MAX:
                self._slaves[slave.broker] = slave

    def knows(self, host: str) -> bool:
        """Return whether a slave registered from an IP address."""
        with self._lock:
            return any(slave.host == host for slave in self._slaves.values())

    def have_another_log(self, host: str, end: int, log: LogSource) -> bool:
        """Return whether the log of a slave differs from `log`.

        `host` is the slave's IP address, and `end` is the end of its log in bytes. False if no slave registered from
        `host`, or if it does not answer.
        """
        with self._lock:
            slaves = [slave for slave in self._slaves.values() if slave.host == host]
        if len(slaves) > 1:  # a slave that starts has its HA port before it answers requests
            slaves = [slave for slave in slaves if _log_end(slave) == end]
        compared = [_has_same_log(slave, end, log) for slave in slaves]
        if None in compared or not compared:
            self._notices.add(f"note: the slave of {host} at {end} does not send its log: it is not compared")
        return bool(compared) and not any(same is None or same for same in compared)


def _log_end(slave: RegisteredSlave) -> int:
    # -1 if the slave does not answer
    try:
        with RemotingClient(slave.broker.host, slave.broker.port, CHECK_SECONDS) as client:
            return int(BrokerRequests(client).runtime_info().get("commitLogMaxOffset", -1))
    except (PeerError, ValueError):
        return -1


def _has_same_log(slave: RegisteredSlave, end: int, log: LogSource) -> bool | None:
    """Return whether the served log has the last bytes of a slave's log.

    None if the slave does not send them, or if the served log cannot be read.
    """
    begin = max(log.min_offset, end - COMPARED_SIZE, 1)  # a broker takes 0 for its last file
    try:
        theirs, ours = _read(slave.ha, begin, end - begin), _read_all(log.read, begin, end - begin)
    except (PeerError, OSError):
        return None
    return theirs == ours if len(theirs) == len(ours) else None


def _read(address: Address, offset: int, size: int) -> bytes:
    """Return bytes of a broker's log, received from the broker's HA port.

    They are fewer than `size` if the broker does not send all in time. Raises PeerError.
    """
    deadline = time.monotonic() + CHECK_SECONDS
    received = bytearray()
    with HAClient(address.host, address.port, silence=CHECK_SECONDS) as client:
        client.begin(offset)
        while len(received) < size and (seconds := deadline - time.monotonic()) > 0:
            for transfer in client.receive(seconds):
                received += transfer.body
    return bytes(received[:size])


def _read_all(read: Callable[[int, int], bytes], offset: int, size: int) -> bytes:
    # from one or two log files
    found = b""
    while len(found) < size and (part := read(offset + len(found), size - len(found))):
        found += part
    return found
