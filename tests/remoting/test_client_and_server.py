"""The client and the server of the RPC, with each other and with peers that misbehave."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rmqctl.errors import ExitCode, PeerError
from rmqctl.remoting.address import Address
from rmqctl.remoting.client import RemotingClient, RequestRefused
from rmqctl.remoting.frame import IS_ONEWAY, RemotingCommand, SerializeType, decode
from rmqctl.remoting.request_code import RequestCode
from rmqctl.remoting.server import ConnectionWatch, Handler, RemotingServer
from rmqctl.store.config.ha_config import HAConf
from rmqctl.store.ha.ha_service import HAService
from rmqctl.store.ha.log_source import LogSource
from rmqctl.store.ha.slave_policy import BrokerPolicy, Slave
from tests.support.ha_slave import MemoryLog, ReportingSlave

LOOPBACK = "127.0.0.1"


class Log(ConnectionWatch):
    """What the server reported."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def refused(self, peer: Address, why: str) -> None:
        self.told.append(f"refused: {why}")

    def closed(self, peer: Address, fault: str) -> None:
        self.told.append(f"closed: {fault}")

    def wait_for(self, count: int) -> list[str]:
        end = time.monotonic() + 10
        while len(self.told) < count and time.monotonic() < end:
            time.sleep(0.01)
        return self.told


def echo(request: RemotingCommand, peer: Address) -> RemotingCommand:
    assert peer.host == LOOPBACK
    return RemotingCommand(0, request.ext_fields, request.body)


def refuse(request: RemotingCommand, peer: Address) -> RemotingCommand:
    return RemotingCommand(1, remark="no such thing\n\tat a stack trace" + "." * 1000)


HANDLERS: dict[int, Handler] = {1: echo, 2: refuse}


@contextmanager
def serving(log: Log | None = None, **options: object) -> Iterator[RemotingServer]:
    server = RemotingServer(LOOPBACK, 0, HANDLERS, watch=log, **options)  # type: ignore[arg-type]
    server.start()
    try:
        yield server
    finally:
        server.close()
    assert server.failure is None
    assert not server.connections


@contextmanager
def broken_server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that does with its connections whatever `answer` does."""
    with socket.create_server((LOOPBACK, 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    answer(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize("form", SerializeType)
def test_a_request_gets_its_answer_in_either_form(form: SerializeType) -> None:
    body = bytes(range(256)) * 4096
    with serving() as server, RemotingClient(LOOPBACK, server.port, serialize_type=form) as client:
        for number in range(3):
            answer = client.invoke(1, {"ключ": str(number)}, body)
            assert (answer.ext_fields, answer.body) == ({"ключ": str(number)}, body)
            assert answer.serialize_type is form


def test_a_refused_request_has_the_brokers_code_and_one_line() -> None:
    with serving() as server, RemotingClient(LOOPBACK, server.port) as client:
        with pytest.raises(RequestRefused, match="code 1: no such thing at a stack trace") as refused:
            client.invoke(2)
        assert refused.value.code == 1
        assert len(str(refused.value)) < 400
        with pytest.raises(RequestRefused, match="request type 77 not supported") as unknown:
            client.invoke(77)
        assert unknown.value.code == 3
        assert client.invoke(1).code == 0


def test_requests_of_the_broker_and_late_answers_are_skipped() -> None:
    def answer(connection: socket.socket) -> None:
        request = decode(connection.recv(1000)[4:])
        connection.sendall(RemotingCommand(40, flag=IS_ONEWAY, opaque=request.opaque).encode())
        connection.sendall(RemotingCommand(0, flag=1, opaque=99, body=b"late").encode())
        connection.sendall(RemotingCommand(0, flag=1, opaque=request.opaque, body=b"ours").encode())

    with broken_server(answer) as port, RemotingClient(LOOPBACK, port) as client:
        assert client.invoke(1).body == b"ours"


class RecordingPolicy(BrokerPolicy):
    """What a broker does with a slave, and the slave's reports."""

    def __init__(self) -> None:
        self.reports: list[int] = []

    def problem(self, slave: Slave, report: int, log: LogSource) -> str:
        self.reports.append(report)
        return super().problem(slave, report, log)


def test_a_request_to_a_ha_port_is_no_acknowledgement() -> None:
    """A report after the end would let the master acknowledge puts that no slave has."""
    policy = RecordingPolicy()
    with HAService(
        MemoryLog(bytes(1000), 1000), HAConf(listen_port=0, send_heartbeat_interval_ms=50), policy
    ) as master:
        for code in (RequestCode.GET_BROKER_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO):
            with (
                RemotingClient(LOOPBACK, master.port, timeout=0.5) as client,
                pytest.raises(PeerError, match="no answer"),
            ):
                client.invoke(code)
        with ReportingSlave(master.port) as slave:
            slave.report(1000)
            slave.frame()
    assert policy.reports == [1000]


@pytest.mark.parametrize(
    ("sent", "what"),
    [
        (b"", "closed the connection before it answered request 28"),
        (struct.pack(">i", 100) + b"abc", "closed the connection before it answered"),
        (struct.pack(">i", 2**31 - 1), "a length of 2147483647"),
        (struct.pack(">i", -5), "a length of -5"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not RocketMQ's protocol"),
        (struct.pack(">ii", 6, 2) + b"[]", "not a JSON object"),
    ],
)
def test_a_peer_that_breaks_the_protocol_is_told_in_one_line(sent: bytes, what: str) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(sent)

    with broken_server(answer) as port, RemotingClient(LOOPBACK, port) as client:
        with pytest.raises(PeerError, match=what) as error:
            client.invoke(28)
        assert str(error.value).startswith(f"127.0.0.1:{port}: ")
        assert "\n" not in str(error.value)
        assert error.value.exit_code is ExitCode.PARTIAL


def test_a_silent_peer_is_given_up_after_the_timeout() -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        client = RemotingClient(LOOPBACK, listener.getsockname()[1], timeout=0.2)
        with client, pytest.raises(PeerError, match=r"no answer to request 28 within 0\.2 s"):
            client.invoke(28)


def test_nobody_listens_and_later_somebody_does() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
    client = RemotingClient(LOOPBACK, port)
    with pytest.raises(PeerError, match="cannot connect: Connection refused"):
        client.invoke(1)
    server = RemotingServer(LOOPBACK, port, HANDLERS)
    server.start()
    with client:
        assert client.invoke(1, body=b"x").body == b"x"
        server.close()
        with pytest.raises(PeerError):
            client.invoke(1)


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (b"", ""),
        (RemotingCommand(1, flag=IS_ONEWAY).encode(), ""),
        (RemotingCommand(1, flag=1).encode(), ""),
        (b"\0\0", "closed inside a frame"),
        (struct.pack(">i", 100), "closed inside a frame"),
        (struct.pack(">i", 2**31 - 1), "the frame has a length of 2147483647; 4 to 16777216 bytes are possible"),
        (struct.pack(">ii", 6, 2) + b"[]", "the header is not a JSON object"),
    ],
)
def test_the_server_reports_how_a_connection_ended(sent: bytes, fault: str) -> None:
    log = Log()
    with serving(log) as server, socket.create_connection((LOOPBACK, server.port)) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100) == b""
        assert log.wait_for(1) == [f"closed: {fault}"]


def test_the_server_ends_a_silent_connection() -> None:
    log = Log()
    with serving(log, idle_timeout=0.1) as server, socket.create_connection((LOOPBACK, server.port)) as connection:
        assert connection.recv(100) == b""
        assert log.wait_for(1) == ["closed: no request for 0.1 s"]


def test_the_server_refuses_other_addresses_and_too_many_connections() -> None:
    log = Log()
    with serving(log, accepts=lambda host: host != LOOPBACK) as server:
        with socket.create_connection((LOOPBACK, server.port)) as connection:
            assert connection.recv(100) == b""
        assert log.wait_for(1) == ["refused: the address is not allowed"]
    log = Log()
    with serving(log, connections_max=1) as server, RemotingClient(LOOPBACK, server.port) as client:
        client.invoke(1)
        with socket.create_connection((LOOPBACK, server.port)) as second:
            assert second.recv(100) == b""
        assert log.wait_for(1) == ["refused: 1 clients are connected"]
        client.invoke(1)


def test_a_bug_in_a_handler_is_kept_for_the_caller() -> None:
    def fail(request: RemotingCommand, peer: Address) -> RemotingCommand:
        raise KeyError("bug")

    server = RemotingServer(LOOPBACK, 0, {1: fail})
    server.start()
    with RemotingClient(LOOPBACK, server.port) as client, pytest.raises(PeerError, match="closed"):
        client.invoke(1)
    server.close()
    assert isinstance(server.failure, KeyError)
