"""The slave's side on real sockets: what is taken, what a master may not send, and garbage."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rmqctl.errors import PeerError
from rmqctl.store.config.ha_config import HAConf
from rmqctl.store.ha.frames import encode_transfer
from rmqctl.store.ha.ha_client import TRANSFER_SIZE_MAX, HAClient, Transfer
from rmqctl.store.ha.ha_service import HAService
from tests.support.fake_master import HAPort
from tests.support.ha_slave import MemoryLog
from tests.support.memory_growth import memory_growth

DATA = random.Random(3).randbytes(200_000)


@contextmanager
def client_of(*sent: bytes, pause: float = 0, silence: float = 5, stays: bool = False) -> Iterator[HAClient]:
    """A client of a master that sends these bytes, and then closes, or says no more."""

    def behave(connection: socket.socket) -> None:
        connection.recv(8)
        for data in sent:
            connection.sendall(data)
            time.sleep(pause)
        if stays:
            connection.recv(1)

    with HAPort(behave) as port, HAClient("127.0.0.1", port.port, silence=silence) as client:
        client.begin(1000)
        yield client


def received(client: HAClient, size: int) -> bytes:
    """So many bytes, joined."""
    data = b""
    while len(data) < size:
        data += b"".join(bytes(transfer.body) for transfer in client.receive(0.2))
    return data


def test_the_log_of_a_master_arrives_byte_for_byte() -> None:
    log = MemoryLog(DATA, 65536)
    with HAService(log, HAConf(listen_port=0)) as master, HAClient("127.0.0.1", master.port) as client:
        client.begin(1)
        assert received(client, len(DATA) - 1) == DATA[1:]
        assert client.receive(0.05) == []


def test_a_transfer_may_arrive_byte_by_byte() -> None:
    frame = encode_transfer(1000, 3) + b"abc" + encode_transfer(1003, 0)
    with client_of(*(frame[at : at + 1] for at in range(len(frame))), pause=0.001, stays=True) as client:
        found: list[tuple[int, bytes]] = []
        while len(found) < 2:
            found += [(transfer.offset, bytes(transfer.body)) for transfer in client.receive(1)]
    assert found == [(1000, b"abc"), (1003, b"")]


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (encode_transfer(1001, 4), "begins at offset 1001; the next byte is 1000"),
        (encode_transfer(0, 0), "begins at offset 0"),
        (encode_transfer(-1, 0), "begins at offset -1"),
        (encode_transfer(1000, -1), "a size of -1"),
        (encode_transfer(1000, 2**31 - 1), "a size of 2147483647"),
        (encode_transfer(1000, TRANSFER_SIZE_MAX + 1), "a size of"),
        (b"HTTP/1.1 400 Bad Request\r\n", "begins at offset"),
    ],
)
def test_a_transfer_that_breaks_the_protocol_ends_the_pull(frame: bytes, text: str) -> None:
    with client_of(frame, stays=True) as client, pytest.raises(PeerError, match=text):
        received(client, 1)


@pytest.mark.parametrize("sent", [b"", encode_transfer(1000, 10)[:7], encode_transfer(1000, 10) + b"half"])
def test_a_closed_connection_says_where(sent: bytes) -> None:
    with client_of(sent) as client, pytest.raises(PeerError, match="lost at offset 1000"):
        received(client, 1)


def test_a_master_that_stalls_is_given_up() -> None:
    with client_of(encode_transfer(1000, 10), silence=0.1, stays=True) as client:
        began = time.monotonic()
        assert client.receive(0.05) == []
        with pytest.raises(PeerError, match=r"sent nothing for 0\.1 seconds"):
            received(client, 1)
        assert time.monotonic() - began < 3


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(PeerError, match="cannot connect"), HAClient("127.0.0.1", port):
        pass


def test_the_last_report_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.store.ha.ha_client.HA_SEND_HEARTBEAT_INTERVAL", 0.05)
    reports: list[int] = []

    def behave(connection: socket.socket) -> None:
        while len(reports) < 4:
            reports.append(struct.unpack(">q", connection.recv(8))[0])
        connection.sendall(encode_transfer(7, 0))

    with HAPort(behave) as port, HAClient("127.0.0.1", port.port) as client:
        client.begin(7)
        end = time.monotonic() + 5
        while not client.receive(0.01) and time.monotonic() < end:
            pass
    assert reports == [7, 7, 7, 7]


def test_a_slow_reader_takes_no_more_than_it_asks_for() -> None:
    with client_of(encode_transfer(1000, 100) + bytes(100), stays=True) as client:
        assert client.receive(1, size_max=50) == []
        assert [transfer.end for transfer in client.receive(1, size_max=100)] == [1100]


def fuzzed(rng: random.Random) -> bytes:
    """A stream of frames in which something is wrong, mostly."""
    at, stream = 1000, b""
    for _ in range(rng.randrange(6)):
        size = rng.choice((0, 1, 20, 3000))
        stream += encode_transfer(at, size) + rng.randbytes(size)
        at += size
    kind = rng.randrange(5)
    if kind == 0:
        return stream + rng.randbytes(rng.randrange(200))
    if kind == 1:
        return stream + struct.pack(">qi", at + rng.choice((-1, 1, 2**40)), rng.randrange(-(2**31), 2**31))
    if kind == 2:
        return stream + encode_transfer(at, rng.randrange(-(2**31), 2**31))
    if kind == 3 and stream:
        flipped = bytearray(stream)
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        return bytes(flipped)
    return stream[: rng.randrange(len(stream) + 1)]


@pytest.mark.slow
def test_a_thousand_fuzzed_masters_leave_nothing_behind() -> None:
    rng = random.Random(17)

    def behave(connection: socket.socket) -> None:
        connection.recv(8)
        connection.sendall(fuzzed(rng))

    with HAPort(behave) as port:
        assert memory_growth(lambda: pulled_to_its_end(port.port)) < 1_000_000


def pulled_to_its_end(port: int) -> None:
    """Each master here ends, or is found to break the protocol; until then each transfer joins the one before."""
    with HAClient("127.0.0.1", port, silence=5) as client:
        client.begin(1000)
        with pytest.raises(PeerError):
            joined(client)


def joined(client: HAClient) -> None:
    expected = 1000
    while True:
        for transfer in client.receive(1):
            assert transfer.offset == expected
            expected = transfer.end


def test_a_transfer_knows_its_end() -> None:
    assert Transfer(5, memoryview(b"abc")).end == 8
