"""A master's connection to one slave: RocketMQ's HAConnection.

    ReadSocketService    reads the slave's reports; closes the connection after haHousekeepingInterval without a byte
    WriteSocketService   sends transfers, and a heartbeat after haSendHeartbeatInterval without a transfer

The master sends nothing before the slave's first report, and ignores negative ones. Of several that arrive together, it
uses the last.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from rmqctl.store.ha.frames import REPORT, decode_report, encode_transfer

if TYPE_CHECKING:
    from rmqctl.store.config.ha_config import HAConf
    from rmqctl.store.ha.log_source import LogSource
    from rmqctl.store.ha.slave_policy import SlavePolicy
    from rmqctl.store.ha.wait_notify_object import WaitNotifyObject

READ_SIZE = 65536
SELECT_SECONDS = 1.0
WAIT_SECONDS = 0.1  # for new bytes of the log
NO_OFFSET = -1
ENDS_KEPT = 65536  # of transfers that the slave has not reported: 2 GiB in transfers of 32 KiB


class Master(Protocol):
    """The part of HAService that HAConnection uses."""

    log: LogSource
    conf: HAConf
    policy: SlavePolicy
    wait_notify_object: WaitNotifyObject

    def notify_transfer_some(self, offset: int) -> None:
        """Record that a slave has the log up to `offset`."""

    def remove_connection(self, connection: HAConnection, reason: str) -> None:
        """Remove a connection that has ended, and call `policy.on_close`."""


class ReportReader:
    """Splits a stream of bytes into the reports of a slave."""

    def __init__(self) -> None:
        self._rest = b""

    def last_report(self, data: bytes) -> int | None:
        """Add `data`, and return the last complete report, or None."""
        received = self._rest + data
        end = len(received) - len(received) % REPORT.size
        self._rest = received[end:]
        return decode_report(received[end - REPORT.size : end]) if end else None


class HAConnection:
    """The connection of `master` to the slave at `client_address`.

    It owns `channel`. Offsets are in bytes; -1 means "not known yet". `slave_request_offset` is the offset in the
    slave's first report, `slave_ack_offset` the one that the slave acknowledged last, and `next_transfer_from_where`
    that of the next byte to send.
    """

    def __init__(self, master: Master, channel: socket.socket, client_address: str) -> None:
        self._master = master
        self._channel = channel
        self.client_address = client_address
        self.slave_request_offset = NO_OFFSET
        self.slave_ack_offset = NO_OFFSET
        self.next_transfer_from_where = NO_OFFSET
        self._is_ahead = False
        self._ends: deque[int] = deque(maxlen=ENDS_KEPT)
        self._reason = ""
        self._stopped = threading.Event()
        self._writer = threading.Thread(target=self._run_write, name="WriteSocketService", daemon=True)
        self._reader = threading.Thread(target=self._run_read, name="ReadSocketService", daemon=True)

    def start(self) -> None:
        """Start both threads."""
        self._writer.start()
        self._reader.start()

    def shutdown(self) -> None:
        """Close the connection, and wait for both threads."""
        self._stop("the master closes")
        self._reader.join()

    def is_end_of_transfer(self, offset: int) -> bool:
        """Return whether a transfer ended at `offset`.

        Transfers that end before the last reported offset are forgotten.
        """
        return offset in self._ends.copy()

    def _stop(self, reason: str) -> None:
        """Stop both threads; keep the reason of the first call."""
        self._reason = self._reason or reason
        self._stopped.set()
        try:
            self._channel.shutdown(socket.SHUT_RDWR)  # wakes a thread that sends
        except OSError:  # the slave was faster
            return

    def _run_read(self) -> None:
        reason = "an error of the master"
        try:
            reason = self._read()
        finally:
            self._stop(reason)
            self._master.remove_connection(self, self._reason)
            self._master.wait_notify_object.wakeup_all()
            self._writer.join()
            self._channel.close()

    def _read(self) -> str:
        """Read reports until the connection ends, and return why it ended."""
        reports, housekeeping = ReportReader(), self._master.conf.housekeeping_interval_ms / 1000
        last_read = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            while not self._stopped.is_set():
                if selector.select(min(SELECT_SECONDS, housekeeping)):
                    try:
                        data = self._channel.recv(READ_SIZE)
                    except OSError as error:
                        return f"the connection failed: {error.strerror}"
                    if not data:
                        return "the slave closed the connection"
                    last_read = time.monotonic()
                    report = reports.last_report(data)
                    try:
                        problem = self._take(report) if report is not None else ""
                    except OSError as error:  # a file of the log
                        return f"comparing the report failed: {_words(error)}"
                    if problem:
                        return problem
                if time.monotonic() - last_read > housekeeping:
                    return f"no report came for {housekeeping:g} s"
        return ""

    def _take(self, report: int) -> str:
        """Return the reason to close the connection, or ""."""
        log, policy = self._master.log, self._master.policy
        if report < 0:
            return ""
        problem = policy.problem(self, report, log)
        if problem:
            return problem
        self._is_ahead = self._is_ahead or report > log.max_offset  # the slave has another log
        if not self._is_ahead:
            self.slave_ack_offset = report
        while self._ends and self._ends[0] < report:
            self._ends.popleft()
        if self.slave_request_offset < 0:
            self.next_transfer_from_where = policy.first_offset(report, log)
            self.slave_request_offset = report
            self._master.wait_notify_object.wakeup_all()
        if not self._is_ahead:
            self._master.notify_transfer_some(report)
        return ""

    def _run_write(self) -> None:
        try:
            self._write()
        except OSError as error:
            self._stop(f"sending failed: {_words(error)}")

    def _write(self) -> None:
        master, heartbeat = self._master, self._master.conf.send_heartbeat_interval_ms / 1000
        seen, last_write = 0, time.monotonic()
        while not self._stopped.is_set():
            if self.slave_request_offset < 0:
                seen = master.wait_notify_object.all_wait_for_running(WAIT_SECONDS, seen)
                continue
            if time.monotonic() - last_write > heartbeat:
                self._channel.sendall(encode_transfer(self.next_transfer_from_where, 0))
                last_write = time.monotonic()
            if self._transfer():
                last_write = time.monotonic()
            else:
                seen = master.wait_notify_object.all_wait_for_running(WAIT_SECONDS, seen)

    def _transfer(self) -> bool:
        """Return whether bytes were sent. Raises OSError."""
        offset = self.next_transfer_from_where
        data = self._master.log.read(offset, self._master.conf.transfer_batch_size)
        if not data:
            return False
        self._ends.append(offset + len(data))
        self._channel.sendall(encode_transfer(offset, len(data)) + data)
        self.next_transfer_from_where = offset + len(data)
        return True


def _words(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
