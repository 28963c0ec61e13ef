"""The slave's side of DefaultHA: RocketMQ's HAClient.

It receives the log of a master, and checks the header of each transfer (`rmqctl.store.ha.frames`). It writes no file;
`rmqctl.store.ha.received_log` checks the records.

A master closes a connection if no report arrives for 20 s, so `receive` repeats the last one every 5 s. A master sends
a heartbeat at least every 5 s; if nothing arrives for 20 s, `receive` raises PeerError.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.errors import PeerError
from rmqctl.store.ha.frames import (
    HA_HOUSEKEEPING_INTERVAL,
    HA_SEND_HEARTBEAT_INTERVAL,
    TRANSFER,
    decode_transfer,
    encode_report,
)

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from rmqctl.store.ha.frames import TransferHeader

READ_MAX_BUFFER_SIZE = 4 * 1024 * 1024  # a real slave's buffer, in bytes: no larger transfer arrives at a slave
TRANSFER_SIZE_MAX = READ_MAX_BUFFER_SIZE - TRANSFER.size
CONNECT_TIMEOUT = 10.0  # seconds
LEAST_WAIT = 0.1  # seconds
LEAST_TIMEOUT = 0.001  # seconds; 0 would make the socket non-blocking


class Transfer(NamedTuple):
    """A part of the master's log that begins at the physical offset `offset`."""

    offset: int
    body: memoryview  # empty in a heartbeat; overwritten by the next `receive`

    @property
    def end(self) -> int:
        """Return the physical offset after the body."""
        return self.offset + len(self.body)


class HAClient:
    """A connection to the HA port of a master at `host`:`port`; a context manager.

    `silence` is the longest time in seconds without data from the master. Methods raise PeerError if the master cannot
    be reached, closes the connection, or breaks the protocol.
    """

    sends_last_file_for_0 = True  # a first report of 0 asks for the last file of the log
    header_size = TRANSFER.size

    def __init__(self, host: str, port: int, *, silence: float = HA_HOUSEKEEPING_INTERVAL) -> None:
        self.address = f"{host}:{port}"
        self._host, self._port = host, port
        self._silence = silence
        self._socket: socket.socket | None = None
        self._buffer = memoryview(bytearray(2 * READ_MAX_BUFFER_SIZE))
        self._start = self._end = 0  # of the bytes in the buffer that no call has returned
        self._expected = 0
        self._report = 0
        self._reported_at = self._received_at = 0.0  # time.monotonic()

    def __enter__(self) -> Self:
        try:
            self._socket = socket.create_connection((self._host, self._port), min(CONNECT_TIMEOUT, self._silence))
        except OSError as error:
            raise PeerError(
                f"cannot connect: {_reason(error)}", path=self.address, hint="this is the HA port of the master"
            ) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received_at = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def begin(self, offset: int) -> None:
        """Ask for the log from the physical offset `offset`.

        The first report of a connection says where the transfers begin; each later one acknowledges the log up to its
        offset.
        """
        self._expected = offset
        self.report(offset)

    def report(self, max_offset: int) -> None:
        """Report that this machine has the log on disk up to `max_offset`."""
        self._report, self._reported_at = max_offset, time.monotonic()
        self._send(self._encode_report(max_offset))

    def repeat_report(self) -> None:
        """Repeat the last report if it is at least 5 seconds old.

        Without reports, a master closes the connection.
        """
        if time.monotonic() - self._reported_at >= HA_SEND_HEARTBEAT_INTERVAL:
            self.report(self._report)

    def receive(self, timeout: float, size_max: int = READ_MAX_BUFFER_SIZE) -> list[Transfer]:
        """Return the transfers that have arrived completely, in order, or none.

        It waits at most `timeout` seconds for the first one, and reads at most `size_max` bytes.
        """
        self.repeat_report()
        if self._read(timeout, size_max):
            self._received_at = time.monotonic()
        elif time.monotonic() - self._received_at >= self._silence:
            raise PeerError(f"the master sent nothing for {self._silence:g} seconds", path=self.address)
        found: list[Transfer] = []
        try:
            while (transfer := self._next()) is not None:
                found.append(transfer)
        except PeerError:
            if not found:  # else the next call raises it again
                raise
        return found

    def _next(self) -> Transfer | None:
        begin = self._start + self.header_size
        if begin > self._end:
            return None
        header = self._decode_transfer(self._buffer[self._start : begin])
        problem = header.problem(self._expected, TRANSFER_SIZE_MAX)
        if problem:
            raise self._broken(problem)
        if begin + header.size > self._end:
            return None
        self._start = begin + header.size
        self._expected = header.offset + header.size
        return Transfer(header.offset, self._buffer[begin : self._start])

    def _encode_report(self, max_offset: int) -> bytes:
        return encode_report(max_offset)

    def _decode_transfer(self, raw: memoryview) -> TransferHeader:
        return decode_transfer(raw)

    def _exactly(self, size: int) -> bytes:
        end = time.monotonic() + self._silence
        while self._end - self._start < size:
            if not self._read(LEAST_WAIT, size) and time.monotonic() >= end:
                raise PeerError(f"the master sent nothing for {self._silence:g} seconds", path=self.address)
        data = bytes(self._buffer[self._start : self._start + size])
        self._start += size
        return data

    def _broken(self, problem: str) -> PeerError:
        return PeerError(f"the master breaks the protocol: {problem}", path=self.address)

    def _read(self, timeout: float, size_max: int) -> int:
        """Return the number of bytes that have arrived."""
        rest = self._end - self._start
        if self._start:
            self._buffer[:rest] = self._buffer[self._start : self._end]
            self._start, self._end = 0, rest
        self._connection.settimeout(max(timeout, LEAST_TIMEOUT))
        try:
            count = self._connection.recv_into(self._buffer[rest : rest + size_max])
        except TimeoutError:
            return 0
        except OSError as error:
            raise self._lost(_reason(error)) from error
        if not count:
            raise self._lost("the master closed the connection")
        self._end += count
        return count

    def _send(self, data: bytes) -> None:
        self._connection.settimeout(self._silence)
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise self._lost(_reason(error)) from error

    def _lost(self, why: str) -> PeerError:
        return PeerError(f"connection lost at offset {self._expected}: {why}", path=self.address)

    @property
    def _connection(self) -> socket.socket:
        if self._socket is None:
            raise ValueError("not connected: use HAClient in a with statement")
        return self._socket


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
