"""The learner's side of AutoSwitchHA: the handshake, epochs, and what a master may not send."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from rmqctl.errors import PeerError
from rmqctl.store.ha.auto_switch_frames import (
    AUTO_SWITCH_REPORT,
    AUTO_SWITCH_TRANSFER,
    EPOCH,
    MASTER_HANDSHAKE,
    SLAVE_HANDSHAKE,
    EpochEntry,
)
from rmqctl.store.ha.auto_switch_ha_client import LEARNER_ID, AutoSwitchHAClient
from rmqctl.store.ha.epoch_file import decode_epoch_file, encode_epochs
from tests.support.fake_master import HAPort
from tests.support.memory_growth import memory_growth

EPOCHS = [EpochEntry(1, 0), EpochEntry(2, 700)]


def handshake(epochs: list[EpochEntry] = EPOCHS, size: int | None = None, state: int = 1) -> bytes:
    body = b"".join(EPOCH.struct.pack(*entry) for entry in epochs)
    return MASTER_HANDSHAKE.struct.pack(state, len(body) if size is None else size, 2000, 2) + body


def transfer(offset: int, body: bytes, epoch: int = 2, start: int = 700, state: int = 2, size: int = -7) -> bytes:
    said = len(body) if size == -7 else size
    return AUTO_SWITCH_TRANSFER.struct.pack(state, said, offset, epoch, start, 0) + body


@contextmanager
def client_of(*sent: bytes, stays: bool = True) -> Iterator[tuple[AutoSwitchHAClient, list[bytes]]]:
    """A client of a master that sends these bytes, and what the master was sent."""
    got: list[bytes] = []

    def behave(connection: socket.socket) -> None:
        got.append(connection.recv(SLAVE_HANDSHAKE.size, socket.MSG_WAITALL))
        connection.sendall(b"".join(sent))
        if stays:
            got.append(connection.recv(AUTO_SWITCH_REPORT.size, socket.MSG_WAITALL))
            connection.recv(1)

    with HAPort(behave) as port, AutoSwitchHAClient("127.0.0.1", port.port, silence=2) as client:
        yield client, got


def test_the_frames_are_those_of_a_real_slave_and_a_real_master() -> None:
    # as seen between brokers of 5.3.3, the learner's flag and id aside
    sent = bytes.fromhex("000000010000000c0000000000028e5000000001") + bytes.fromhex("000000010000000000000000")
    with client_of(sent, transfer(0, b"abc", 1, 0)) as (client, got):
        client.begin(0)
        found: list[tuple[int, bytes]] = []
        end = time.monotonic() + 5
        while (not found or len(got) < 2) and time.monotonic() < end:
            found += [(part.offset, bytes(part.body)) for part in client.receive(0.05)]
        assert client.epochs == [EpochEntry(1, 0)]
    assert found == [(0, b"abc")]
    assert got[0] == bytes.fromhex("000000010000000100000000") + LEARNER_ID.to_bytes(4, "big")
    assert got[1] == bytes.fromhex("000000020000000000000000")


def test_a_new_epoch_comes_with_its_first_bytes() -> None:
    with client_of(handshake(), transfer(900, b"ab"), transfer(902, b"", 3, 902), transfer(902, b"c", 3, 902)) as (
        client,
        _,
    ):
        client.begin(900)
        while len(client.epochs) < 3:
            client.receive(1)
        assert client.epochs == [*EPOCHS, EpochEntry(3, 902)]


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (handshake(state=2), "state 2"),
        (handshake(size=13), "epochs of 13 bytes"),
        (handshake(size=-12), "epochs of -12 bytes"),
        (handshake(size=12 * 1001), "epochs of 12012 bytes"),
        (handshake([EpochEntry(2, 0), EpochEntry(1, 5)]), "follows"),
        (handshake() + transfer(901, b"a"), "begins at offset 901"),
        (handshake() + transfer(900, b"a", state=1), "state 1"),
        (handshake() + transfer(900, b"", size=-1), "size of -1"),
        (handshake() + transfer(900, b"", size=2**31 - 1), "size of 2147483647"),
        (handshake() + transfer(900, b"a", 3, 5), "epoch 3 begins at 5"),
    ],
)
def test_a_master_that_breaks_the_protocol_is_left(sent: bytes, text: str) -> None:
    with client_of(sent) as (client, _), pytest.raises(PeerError, match=text):
        pulled(client)


def pulled(client: AutoSwitchHAClient) -> None:
    client.begin(900)
    while True:
        client.receive(0.5)


def test_a_thousand_fuzzed_masters_leave_nothing_behind() -> None:
    rng = random.Random(18)

    def behave(connection: socket.socket) -> None:
        connection.recv(SLAVE_HANDSHAKE.size)
        stream = bytearray(handshake() + transfer(900, rng.randbytes(rng.randrange(99))) + transfer(900, b""))
        for _ in range(rng.randrange(4)):
            stream[rng.randrange(len(stream))] ^= 1 << rng.randrange(8)
        connection.sendall(bytes(stream[: rng.randrange(len(stream) + 1)]))

    with HAPort(behave) as port:
        assert memory_growth(lambda: fuzzed(port.port)) < 1_000_000


def fuzzed(port: int) -> None:
    with AutoSwitchHAClient("127.0.0.1", port, silence=5) as client, suppress(PeerError):
        pulled(client)


def test_the_epoch_file_is_a_real_brokers() -> None:
    content = b"2\n1415619913\n1-0\n2-55884\n"
    assert decode_epoch_file(content) == [EpochEntry(1, 0), EpochEntry(2, 55884)]
    assert encode_epochs([EpochEntry(1, 0), EpochEntry(2, 55884)]) == content
    assert decode_epoch_file(b"1\n0\n1-0\n") == [EpochEntry(1, 0)]


@pytest.mark.parametrize(
    "content", [b"", b"1\n", b"2\n0\n1-0\n", b"1\n7\n1-0\n", b"1\n0\n1\n", b"2\n0\n2-0\n1-5\n", b"x\n0\n", b"\xff\n0\n"]
)
def test_an_invalid_epoch_file_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- each has another text
        decode_epoch_file(content)
