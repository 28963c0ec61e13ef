"""The slave's side of DefaultHA for tests: a socket that reports what it is told to, and a log in memory to send."""

from __future__ import annotations

import socket
from contextlib import suppress
from types import TracebackType

from rmqctl.store.ha.frames import TRANSFER, TransferHeader, decode_transfer, encode_report


class MemoryLog:
    """A log of `data` from `min_offset` on, in files of `file_size` bytes."""

    def __init__(self, data: bytes, file_size: int, min_offset: int = 0) -> None:
        self.data = data
        self.file_size = file_size
        self.min_offset = min_offset

    @property
    def max_offset(self) -> int:
        return self.min_offset + len(self.data)

    def read(self, offset: int, size: int) -> bytes:
        if not self.min_offset <= offset < self.max_offset:
            return b""
        size = min(size, self.file_size - offset % self.file_size)
        return self.data[offset - self.min_offset :][:size]


class ReportingSlave:
    """A connection to a master that reports what the test says."""

    def __init__(self, port: int, timeout: float = 10) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout)

    def __enter__(self) -> ReportingSlave:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, also under a thread that reads."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def report(self, *offsets: int) -> None:
        """Report offsets in one packet."""
        self.send(b"".join(map(encode_report, offsets)))

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def frame(self) -> tuple[TransferHeader, bytes]:
        """The next frame. Raises EOFError at the end, TimeoutError when nothing comes."""
        header = decode_transfer(self._exactly(TRANSFER.size))
        return header, self._exactly(header.size)

    def data_frame(self) -> tuple[TransferHeader, bytes]:
        """The next frame that is not a heartbeat."""
        while not (found := self.frame())[1]:
            pass
        return found

    def is_silent_for(self, seconds: float) -> bool:
        """Whether nothing comes for so long, and the connection stays."""
        before = self._socket.gettimeout()
        self._socket.settimeout(seconds)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(before)
        return False

    def is_closed(self) -> bool:
        """Whether the master closes, after any frames."""
        try:
            while self._socket.recv(65536):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

    def follow(self, start: int, end: int) -> bytes:
        """Everything from `start` to `end`, each frame reported as a real slave does."""
        received = bytearray()
        while start + len(received) < end:
            header, body = self.frame()
            assert header.offset == start + len(received)
            received += body
            self.report(start + len(received))
        return bytes(received)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data
