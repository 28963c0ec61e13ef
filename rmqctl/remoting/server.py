"""A small server for RPC requests, with one thread for each connection.

The protocol has no authentication: the program that starts the server decides which addresses may connect.
"""

from __future__ import annotations

import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from rmqctl.remoting.address import Address
from rmqctl.remoting.frame import FRAME_LENGTH_MAX, RemotingCommand, receive_command
from rmqctl.remoting.request_code import ResponseCode

IDLE_TIMEOUT = 120.0  # seconds without a request: serverChannelMaxIdleTimeSeconds
SEND_TIMEOUT = 15.0  # seconds for one answer
CONNECTIONS_MAX = 64
STOP_INTERVAL = 0.1  # seconds between two checks whether the server must stop


Handler = Callable[[RemotingCommand, Address], RemotingCommand]  # gets the address of the client


class ConnectionWatch:
    """Callbacks for a server's connections, which its threads call; they do nothing."""

    def refused(self, peer: Address, why: str) -> None:
        """Report a connection that the server refused and closed."""

    def closed(self, peer: Address, fault: str) -> None:
        """Report the end of a connection.

        `fault` is empty if the client closed the connection between two requests.
        """


class RemotingServer:
    """Answers the requests for which it has a handler.

    `handlers` has one for each request code; any other request gets the answer REQUEST_CODE_NOT_SUPPORTED (3). Port 0
    means any free one. `accepts` says whether a client with this IP address may connect. A connection is closed after
    an invalid frame, one longer than `length_max` bytes, or `idle_timeout` seconds without a request; at most
    `connections_max` are open at the same time.

    Raises OSError if the server cannot listen on the address.
    """

    def __init__(
        self,
        host: str,
        port: int,
        handlers: Mapping[int, Handler],
        *,
        accepts: Callable[[str], bool] = lambda _: True,
        watch: ConnectionWatch | None = None,
        length_max: int = FRAME_LENGTH_MAX,
        idle_timeout: float = IDLE_TIMEOUT,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self.handlers = handlers
        self.accepts = accepts
        self.watch = watch or ConnectionWatch()
        self.length_max = length_max
        self.idle_timeout = idle_timeout
        self.connections_max = connections_max
        self.connections: set[socket.socket] = set()
        self.failure: BaseException | None = None  # the first error of a handler: a bug, for the caller to raise
        self._listener = _Listener(self, host, port)
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(STOP_INTERVAL,), name="RemotingServer", daemon=True
        )

    @property
    def port(self) -> int:
        """Return the port that the server listens on."""
        return int(self._listener.server_address[1])

    def start(self) -> None:
        """Start the thread that accepts connections."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening, close all connections, and wait for all threads."""
        if self._thread.is_alive():
            self._listener.shutdown()
            self._thread.join()
        for connection in list(self.connections):
            _shut_down(connection)
        self._listener.server_close()


class _Listener(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = False

    def __init__(self, owner: RemotingServer, host: str, port: int) -> None:
        self.owner = owner
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _Connection)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        owner, peer = self.owner, Address(*client_address[:2])
        if not owner.accepts(peer.host):
            owner.watch.refused(peer, "the address is not allowed")
            return False
        if len(owner.connections) >= owner.connections_max:
            owner.watch.refused(peer, f"{owner.connections_max} clients are connected")
            return False
        owner.connections.add(request)
        return True

    def shutdown_request(self, request: Any) -> None:
        self.owner.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, _request: Any, _client_address: Any) -> None:
        self.owner.failure = self.owner.failure or sys.exception()


class _Connection(socketserver.BaseRequestHandler):
    server: _Listener
    request: socket.socket

    def handle(self) -> None:
        peer = Address(*self.client_address[:2])
        fault = self._answer_requests(peer)
        self.server.owner.watch.closed(peer, fault)

    def _answer_requests(self, peer: Address) -> str:
        """Return why the connection ended, or ""."""
        owner = self.server.owner
        while True:
            try:
                request = receive_command(self.request, owner.length_max, time.monotonic() + owner.idle_timeout)
            except EOFError as error:
                return "closed inside a frame" if error.args[0] else ""
            except TimeoutError:
                return f"no request for {owner.idle_timeout:g} s"
            except ValueError as error:
                return str(error)
            except OSError as error:
                return error.strerror or str(error)
            if request.is_answer:
                continue
            answer = owner.handlers.get(request.code, _not_supported)(request, peer)
            if request.wants_answer and (fault := self._send(request.answered_by(answer).encode())):
                return fault

    def _send(self, frame: bytes) -> str:
        self.request.settimeout(SEND_TIMEOUT)
        try:
            self.request.sendall(frame)
        except OSError as error:
            return error.strerror or str(error)
        return ""


def _not_supported(request: RemotingCommand, peer: Address) -> RemotingCommand:  # noqa: ARG001
    remark = f" request type {request.code} not supported"
    return RemotingCommand(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)


def _shut_down(connection: socket.socket) -> None:
    """Wake the thread that reads from the connection."""
    with suppress(OSError):  # the connection is already closed
        connection.shutdown(socket.SHUT_RDWR)
