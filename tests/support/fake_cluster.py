"""A name server and a broker in one, which takes messages and breaks on demand."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

from rmqctl.remoting.address import Address
from rmqctl.remoting.frame import RemotingCommand
from rmqctl.remoting.server import RemotingServer

LOOPBACK = "127.0.0.1"
DROP, DROP_STORED = -1, -2  # in place of a response code: close the connection, before or after the messages are stored
Fault = Callable[[RemotingCommand], int]


class Arrived(NamedTuple):
    """A message that the broker stored."""

    topic: str
    queue_id: int
    sys_flag: int
    flag: int
    body: bytes
    properties: dict[str, str]


class FakeCluster:
    """Has `topics` with their numbers of queues; `fault` returns the response code of each batch."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        self.topics = topics
        self.arrived: list[Arrived] = []
        self.fault: Fault = lambda _: 0
        self.batches = 0
        self.ids_left_out = 0
        handlers = {105: self._route, 26: lambda *_: RemotingCommand(0, body=b"maxMessageSize=65536\n")}
        self.server = RemotingServer(LOOPBACK, 0, handlers | dict.fromkeys((310, 320), self._put))
        self.address = f"{LOOPBACK}:{self.server.port}"

    def _route(self, request: RemotingCommand, _: Address) -> RemotingCommand:
        topic = request.ext_fields["topic"]
        if topic not in self.topics:
            return RemotingCommand(17, remark="No topic route info")
        queues = {"brokerName": "a", "perm": 6, "readQueueNums": 9, "writeQueueNums": self.topics[topic]}
        broker = b'{"brokerAddrs":{0:"%s",1:"10.9.9.9:1"},"brokerName":"a"}' % self.address.encode()
        body = b'{"brokerDatas":[%s],"queueDatas":[%s]}' % (broker, json.dumps(queues).encode())
        return RemotingCommand(0, body=body)

    def _put(self, request: RemotingCommand, _: Address) -> RemotingCommand:
        fields = request.ext_fields
        code = self.fault(request)
        if code in (0, 10, 11, 12, DROP_STORED):
            first = len(self.arrived)
            whole = request.body if request.code == 320 else one_as_batch(request)
            for flag, body, pairs in in_batch(whole):
                found = dict(pair.partition("\x01")[::2] for pair in pairs.decode().split("\x02"))
                self.arrived.append(Arrived(fields["b"], int(fields["e"]), int(fields["f"]), flag, body, found))
            self.batches += 1
        if code < 0:
            for connection in list(self.server.connections):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            return RemotingCommand(1)
        if code not in (0, 10, 11, 12):
            return RemotingCommand(code, remark="no\n\tat a stack trace")
        ids = ",".join(f"{number:032X}" for number in range(first, len(self.arrived) - self.ids_left_out))
        return RemotingCommand(code, {"msgId": ids, "queueId": fields["e"], "queueOffset": str(first)})


def one_as_batch(request: RemotingCommand) -> bytes:
    pairs = request.ext_fields["i"].encode()
    head = struct.pack(">5i", 0, 0, 0, int(request.ext_fields["h"]), len(request.body))
    return head + request.body + struct.pack(">h", len(pairs)) + pairs


def in_batch(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The messages of a batch, as MessageDecoder.decodeMessages reads them."""
    at = 0
    while at < len(data):
        flag, size = struct.unpack_from(">2i", data, at + 12)
        body = data[at + 20 : at + 20 + size]
        at += 20 + size
        (length,) = struct.unpack_from(">h", data, at)
        yield flag, body, data[at + 2 : at + 2 + length]
        at += 2 + length


@contextmanager
def cluster_with(topics: Mapping[str, int]) -> Iterator[FakeCluster]:
    cluster = FakeCluster(topics)
    cluster.server.start()
    try:
        yield cluster
    finally:
        cluster.server.close()
    assert cluster.server.failure is None
