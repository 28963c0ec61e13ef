"""A log that arrives in parts: every golden log in random parts, and damage wherever it is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqctl.format.message import Blank, Damage, Message
from rmqctl.logfile.column_reader import Columns
from rmqctl.store.ha.received_log import ReceivedLog, ReceivedPart
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import unpack

STORES = ("497-basic", "497-tx", "497-lmq", "471-ipv6", "533-longtopic", "533-propcrc", "533-batch", "broker-533")


def log_of(name: str, tmp_path: Path) -> tuple[bytes, int, ReadOnlyStore]:
    """The bytes of a golden log from 0 to its end, and the size of its files."""
    store = ReadOnlyStore(unpack(name, tmp_path))
    log = store.commit_log
    data = b"".join(file.read(0, file.size) for file in log.queue.files)
    return data[: log.end()[0]], log.queue.file_size, store


def in_parts(received: ReceivedLog, data: bytes, seed: int) -> list[tuple[ReceivedPart, bytes]]:
    """The parts, with copies of their bytes, of data that arrives in random pieces."""
    rng, at = random.Random(seed), 0
    found = []
    while at < len(data):
        size = rng.choice((1, 7, 50, 1000, 32768, 300_000))
        received.add(memoryview(data)[at : at + size])
        at += size
        found += [(part, bytes(part.data)) for part in received.parts()]
    return found


@pytest.mark.parametrize("name", STORES)
def test_a_log_in_parts_is_the_log(name: str, tmp_path: Path) -> None:
    data, file_size, store = log_of(name, tmp_path)
    expected = [item for item in store.commit_log.scan() if isinstance(item, Message)]
    for seed in range(3):
        received = ReceivedLog(0, file_size)
        found = in_parts(received, data, seed)
        assert b"".join(copy for _, copy in found) == data
        assert (received.offset, received.waiting, received.rest()) == (len(data), 0, None)
        assert sum(part.messages for part, _ in found) == len(expected)
        at = 0
        for part, copy in found:
            assert part.offset == at
            at += len(copy)
            assert isinstance(part.item, Columns | Message | Blank)


def test_the_rows_of_a_run_are_the_messages(tmp_path: Path) -> None:
    data, file_size, store = log_of("497-basic", tmp_path)
    received = ReceivedLog(0, file_size)
    received.add(memoryview(data))
    runs = [
        [part.item.message(row) for row in range(len(part.item.rows))]
        for part in received.parts()
        if isinstance(part.item, Columns)
    ]
    messages = [message for run in runs for message in run]
    assert messages == [item for item in store.commit_log.scan() if isinstance(item, Message)]


def damage_of(received: ReceivedLog, data: bytes) -> list[Damage]:
    found = [part.item for part, _ in in_parts(received, data, 1)]
    return [item for item in found if isinstance(item, Damage)]


def test_a_flipped_byte_is_found_and_nothing_after_it_is_taken(tmp_path: Path) -> None:
    data, file_size, store = log_of("497-basic", tmp_path)
    starts = [message.physical_offset for message in store.commit_log.scan() if isinstance(message, Message)]
    rng = random.Random(5)
    for _ in range(60):
        start = rng.choice(starts)
        at = start + rng.choice((1, 4, 5, 28, 35, 84))  # size, magic, PHYSICALOFFSET, body length
        broken = bytearray(data)
        broken[at] ^= 0x40
        strict = ReceivedLog(0, file_size)
        strict.add(memoryview(broken))
        parts = [(part.offset, part.item) for part in strict.parts()]
        rest = strict.rest()
        offset = parts[-1][0] if isinstance(parts[-1][1], Damage) else rest.physical_offset if rest else -1
        assert offset == start
        lenient = ReceivedLog(0, file_size, lenient=True)
        lenient.add(memoryview(broken))
        again = [part for part in lenient.parts() if isinstance(part.item, Damage)]
        assert [part.offset for part in again] == [start] or lenient.rest() is not None


def test_garbage_of_any_length_needs_little_memory() -> None:
    rng = random.Random(2)
    received = ReceivedLog(0, 1 << 30, lenient=True)
    for _ in range(80):
        received.add(memoryview(rng.randbytes(1_000_000)))
        for part in received.parts():
            assert isinstance(part.item, Damage)
    assert received.waiting < 20_000_000


def test_a_record_that_is_said_to_be_huge_is_damage() -> None:
    received = ReceivedLog(0, 1 << 30)
    received.add(memoryview(b"\x3f\xff\xff\xff\xda\xa3\x20\xa7" + bytes(100)))
    (part,) = received.parts()
    assert isinstance(part.item, Damage)
    assert part.item.code == "bad-size"


def test_zeros_are_damage() -> None:
    received = ReceivedLog(4096, 65536)
    received.add(memoryview(bytes(100)))
    assert [part.item.code for part in received.parts() if isinstance(part.item, Damage)] == ["hole"]
