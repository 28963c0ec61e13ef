"""Both readers of the RPC get 1,000 damaged streams: no error but their own, and no memory kept."""

from __future__ import annotations

import gc
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rmqctl.errors import PeerError
from rmqctl.remoting.address import Address
from rmqctl.remoting.client import RemotingClient
from rmqctl.remoting.frame import RemotingCommand, SerializeType
from rmqctl.remoting.server import ConnectionWatch, RemotingServer

STREAMS = 1000
LOOPBACK = "127.0.0.1"
PAGE = 4096
MEMORY_MAX = 32 << 20  # bytes: more than the allocator's noise, less than what an announced length may ask for
EDGES = (0, 1, -1, 3, 4, 2**31 - 1, -(2**31), 16 << 20, (16 << 20) + 1, 1 << 24)


def damaged(random_: random.Random, flag: int) -> bytes:
    """Return some frames, damaged in one of several ways."""
    frames = b"".join(
        RemotingCommand(
            random_.choice((1, 2, 103)),
            {"brokerName": "broker-a", "clé": "x" * random_.randrange(30)},
            random_.randbytes(random_.randrange(200)),
            opaque=1,
            flag=flag,
            serialize_type=random_.choice(list(SerializeType)),
        ).encode()
        for _ in range(random_.randrange(1, 4))
    )
    stream = bytearray(frames)
    for _ in range(random_.randrange(4)):
        at = random_.randrange(len(stream))
        kind = random_.randrange(5)
        if kind == 0:
            stream[at] ^= 1 << random_.randrange(8)
        elif kind == 1:
            del stream[at : at + random_.randrange(1, 9)]
        elif kind == 2:
            stream[at:at] = random_.randbytes(random_.randrange(1, 9))
        elif kind == 3:
            stream[at : at + 4] = struct.pack(">i", random_.choice(EDGES))
        else:
            stream = stream[:at] or bytearray(b"\0")
    return bytes(stream)


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def streams(flag: int) -> Iterator[bytes]:
    random_ = random.Random(17)
    yield struct.pack(">i", 16 << 20)  # announces 16 MiB, and sends nothing
    for _ in range(STREAMS - 1):
        yield damaged(random_, flag)


class Counting(ConnectionWatch):
    """Counts ends and their faults."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def closed(self, peer: Address, fault: str) -> None:
        self.faults.append(fault)


def test_the_server_survives_every_stream() -> None:
    def answer(request: RemotingCommand, peer: Address) -> RemotingCommand:
        return RemotingCommand(0, request.ext_fields, request.body)

    watch = Counting()
    server = RemotingServer(LOOPBACK, 0, {1: answer, 2: answer}, watch=watch)
    server.start()
    before = resident()
    for stream in streams(flag=0):
        with socket.create_connection((LOOPBACK, server.port)) as connection:
            connection.settimeout(10)
            with suppress(OSError):  # the server closed before it had read all
                connection.sendall(stream)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
    with RemotingClient(LOOPBACK, server.port) as client:
        assert client.invoke(1, body=b"alive").body == b"alive"
    server.close()
    assert server.failure is None
    assert len(watch.faults) == STREAMS + 1
    assert sum(map(bool, watch.faults)) > STREAMS // 4
    assert all("\n" not in fault for fault in watch.faults)
    assert resident() - before < MEMORY_MAX


def fault_of(client: RemotingClient) -> str:
    try:
        return "" if client.invoke(1, {"a": "b"}).is_answer else "not an answer"
    except PeerError as error:
        return str(error)


def test_the_client_survives_every_stream() -> None:
    listener = socket.create_server((LOOPBACK, 0))

    def send() -> None:
        for stream in streams(flag=1):
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(stream)

    sender = threading.Thread(target=send)
    sender.start()
    before, begin, faults = resident(), time.monotonic(), 0
    for _ in range(STREAMS):
        with RemotingClient(LOOPBACK, listener.getsockname()[1], timeout=10) as client:
            fault = fault_of(client)
            assert "\n" not in fault
            faults += bool(fault)
    sender.join()
    listener.close()
    assert faults > STREAMS // 4
    assert time.monotonic() - begin < 60
    assert resident() - before < MEMORY_MAX
