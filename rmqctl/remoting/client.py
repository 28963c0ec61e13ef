"""A client of a broker: one connection, one request at a time.

A user may give the broker's HA port by mistake. There, a broker reads each group of 8 bytes as an offset that a slave
acknowledges, and with one beyond the log's end, a SYNC_MASTER confirms puts that no slave has. It ignores negative
offsets, so the last complete group of 8 bytes in a request must be one. In a ROCKETMQ request without fields and body,
this group begins with the lowest byte of `opaque`, which is 0x80. By default, requests have ROCKETMQ headers.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rmqctl.errors import PeerError
from rmqctl.remoting.address import Address
from rmqctl.remoting.frame import NO_FIELDS, RemotingCommand, SerializeType, receive_command
from rmqctl.remoting.receive import remaining_seconds
from rmqctl.remoting.request_code import ResponseCode

if TYPE_CHECKING:
    import ssl

    from rmqctl.remoting.access_key import AccessKey

REQUEST_TIMEOUT = 3.0  # seconds, as a slave waits for its master
ANSWER_LENGTH_MAX = 256 * 1024 * 1024  # bytes; a broker also sends frames that are too long for a broker to read
REMARK_LENGTH_MAX = 200  # characters of a remark in an error; brokers send whole stack traces
_REQUESTS_MAX = 2**23 - 1  # opaque has 31 bits; the lowest 8 are the same in all requests
_OPAQUE_LOW = 0x80
_ONLY_SUCCESS = (ResponseCode.SUCCESS,)


class RequestRefused(PeerError):
    """The broker answered with an error; `code` is RocketMQ's ResponseCode."""

    def __init__(self, code: int, what: str, *, path: str) -> None:
        super().__init__(what, path=path)
        self.code = code


class RemotingClient:
    """Sends requests to the broker at `host` and `port`.

    `timeout` is the time limit of each request, in seconds. The first request connects, and so does the first one after
    an error. With `key`, requests are signed; with `tls`, they are encrypted.
    """

    def __init__(
        self,
        host: str,
        port: int,
        timeout: float = REQUEST_TIMEOUT,
        *,
        serialize_type: SerializeType = SerializeType.ROCKETMQ,
        answer_length_max: int = ANSWER_LENGTH_MAX,
        key: AccessKey | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address = Address(host, port)
        self._timeout = timeout
        self._serialize_type = serialize_type
        self._answer_length_max = answer_length_max
        self._key, self._tls = key, tls
        self._connection: socket.socket | None = None
        self._requests = 0
        self._opaque = self._code = 0  # of the last request

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def connect(self) -> None:
        """Connect, so that a later error means that the request may have left.

        Raises PeerError.
        """
        try:
            self._connected(time.monotonic() + self._timeout)
        except OSError as error:
            raise self._fault(f"cannot connect: {error.strerror or error}") from error

    def invoke(
        self,
        code: int,
        ext_fields: Mapping[str, str] = NO_FIELDS,
        body: bytes = b"",
        accepted: Container[int] = _ONLY_SUCCESS,
    ) -> RemotingCommand:
        """Send a request, and return the answer, with a code that is `accepted`.

        Raises RequestRefused for another code, and PeerError if the broker cannot be reached, does not answer in time,
        or breaks the protocol.
        """
        self.request(code, ext_fields, body)
        return self.answer(accepted)

    def request(self, code: int, ext_fields: Mapping[str, str] = NO_FIELDS, body: bytes = b"") -> None:
        """Send a request, whose `answer` is to be taken before the next one.

        Raises PeerError.
        """
        if self._key is not None:
            ext_fields = self._key.signed(ext_fields, body)
        self._requests = self._requests % _REQUESTS_MAX + 1
        self._opaque, self._code = self._requests << 8 | _OPAQUE_LOW, int(code)
        request = RemotingCommand(
            self._code, ext_fields, body, opaque=self._opaque, serialize_type=self._serialize_type
        ).encode()
        with self._faults():
            deadline = time.monotonic() + self._timeout
            connection = self._connected(deadline)
            connection.settimeout(remaining_seconds(deadline))
            connection.sendall(request)

    def answer(self, accepted: Container[int] = _ONLY_SUCCESS) -> RemotingCommand:
        """Return the answer to the last request, as `invoke` does."""
        with self._faults():
            if self._connection is None:
                raise EOFError
            deadline = time.monotonic() + self._timeout
            while True:  # the broker may send requests in between
                answer = receive_command(self._connection, self._answer_length_max, deadline)
                if answer.is_answer and answer.opaque == self._opaque:
                    break
        if answer.code not in accepted:
            what = f"the broker refused request {self._code} with code {answer.code}: {_one_line(answer.remark)}"
            raise RequestRefused(answer.code, what, path=str(self.address))
        return answer

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise self._fault(f"no answer to request {self._code} within {self._timeout:g} s") from None
        except EOFError:
            raise self._fault(f"the broker closed the connection before it answered request {self._code}") from None
        except ValueError as error:
            raise self._fault(f"the answer to request {self._code} is not RocketMQ's protocol: {error}") from error
        except OSError as error:
            what = "cannot connect" if self._connection is None else f"request {self._code} failed"
            raise self._fault(f"{what}: {error.strerror or error}") from error

    def _connected(self, deadline: float) -> socket.socket:
        if self._connection is None:
            self._connection = socket.create_connection(self.address, remaining_seconds(deadline))
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                self._connection = self._tls.wrap_socket(self._connection, server_hostname=self.address.host)
        return self._connection

    def _fault(self, what: str) -> PeerError:
        self.close()
        return PeerError(what, path=str(self.address), hint="check that a broker runs there, and that this is its port")


def _one_line(remark: str) -> str:
    return " ".join(remark.split())[:REMARK_LENGTH_MAX] or "no remark"
