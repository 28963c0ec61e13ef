"""Records come back exactly, or not at all: from shuffled blocks, from two logs at once, from inside others."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest

from rmqctl.forensics.salvage.checksum import moved, plain_crc
from rmqctl.forensics.salvage.coverage import warm_up
from rmqctl.forensics.salvage.sources import sources_of
from rmqctl.forensics.salvage.survey import Survey, survey
from rmqctl.format import crc
from rmqctl.format.message import HEADS, MAGIC_V1, Message
from rmqctl.operations.salvage.new_log import file_size_of
from rmqctl.store.dledger.dledger_entry import ENTRY_HEADER
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import unpack

Log = dict[int, bytes]
BEGAN = 1_795_252_529_516  # ms
MONTH = 1_793_491_200_000
HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])


def record(at: int, body: bytes, time: int, *, client: int = 1, host: bytes = HOST) -> bytes:
    key = f"7F000001{client:04X}18B4AAC2{time - 1 - MONTH:08X}0001"
    tail = f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02TAGS\x01a".encode()
    size = HEADS[0].size + len(body) + 7 + 2 + len(tail)
    values = (size, MAGIC_V1, crc.masked_crc32(body), 0, 0, 0, at, 0, time - 1, HOST, time, host, 0, 0, len(body))
    return HEADS[0].struct.pack(*values) + body + b"\x06orders" + struct.pack(">h", len(tail)) + tail


def log_of(bodies: Iterable[bytes], began: int = BEGAN, **how: int | bytes) -> Log:
    log: Log = {}
    at = 0
    for number, body in enumerate(bodies):
        log[at] = record(at, body, began + number, **how)  # type: ignore[arg-type]
        at += len(log[at])
    return log


def blocks_of(raw: bytes, size: int = 4096) -> list[bytes]:
    return [raw[at : at + size].ljust(size, b"\0") for at in range(0, len(raw), size)]


def golden_log(name: str, tmp_path: Path) -> tuple[Log, bytes]:
    root = unpack(name, tmp_path)
    raw = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    found = ReadOnlyStore(root, log_only=True).commit_log.scan()
    return {one.physical_offset: raw[one.physical_offset : one.end] for one in found if isinstance(one, Message)}, raw


def salvaged(tmp_path: Path, raw: bytes, generation: int = 0) -> tuple[Survey, Log]:
    (tmp_path / "pool").write_bytes(raw)
    warm_up(len(raw))
    found = survey(sources_of([tmp_path / "pool"]), generation)
    log: Log = {}
    for run in found.runs:
        for begin, rows, data in found.columns(run):
            for position, size in zip(rows["position"].tolist(), rows["size"].tolist(), strict=True):
                log[begin + position] = data[position : position + size].tobytes()
    return found, log


def shuffled(blocks: list[bytes], seed: int = 1) -> bytes:
    random.Random(seed).shuffle(blocks)
    return b"".join(blocks)


@pytest.mark.parametrize(("name", "size", "least"), [("533-propcrc", 4096, 1), ("533-propcrc", 1024, 0.96)])
def test_shuffled_blocks(name: str, size: int, least: float, tmp_path: Path) -> None:
    log, raw = golden_log(name, tmp_path)
    _, found = salvaged(tmp_path, shuffled(blocks_of(raw, size)))
    assert found.items() <= log.items()
    assert len(found) >= least * len(log)


def test_missing_blocks_inside_bodies(tmp_path: Path) -> None:
    draw = random.Random(2)
    log = log_of(draw.randbytes(draw.randint(8300, 12000)) for _ in range(60))
    _, found = salvaged(tmp_path, shuffled(blocks_of(b"".join(log.values()))))
    assert found.items() <= log.items()
    assert len(found) >= 0.9 * len(log)


def test_zeros_are_in_no_pool(tmp_path: Path) -> None:
    log = log_of(bytes([number]) * 100 + bytes(9000) + bytes([number]) * 100 for number in range(1, 30))
    pool = [block for block in blocks_of(b"".join(log.values())) if any(block)]
    _, found = salvaged(tmp_path, shuffled(pool))
    assert found.items() <= log.items()
    assert len(found) >= 0.9 * len(log)


@pytest.mark.parametrize("is_repeated", [False, True])
def test_two_logs_are_never_mixed(is_repeated: bool, tmp_path: Path) -> None:
    draw = random.Random(3)
    bodies = [draw.randbytes(500) for _ in range(400)]
    logs = [
        log_of([bodies[0]] * 400 if is_repeated else draw.sample(bodies, 400), began, client=client)
        for client, began in ((1, BEGAN), (2, BEGAN + 3000))
    ]
    pool = [block for log in logs for block in blocks_of(b"".join(log.values()))]
    raw = shuffled(draw.sample(pool, len(pool) * 2 // 3))
    for generation in range(2):
        _, found = salvaged(tmp_path, raw, generation)
        assert len(found) > 150
        assert any(found.items() <= log.items() for log in logs)


def test_two_logs_without_a_whole_record_are_never_mixed(tmp_path: Path) -> None:
    draw = random.Random(8)
    logs = [
        log_of((draw.randbytes(draw.randint(4200, 7900)) for _ in range(60)), began, client=client)
        for client, began in ((1, BEGAN), (2, BEGAN + 3000))
    ]
    raw = shuffled([block for log in logs for block in blocks_of(b"".join(log.values()))])
    for generation in range(2):
        _, found = salvaged(tmp_path, raw, generation)
        assert len(found) > 50
        assert any(found.items() <= log.items() for log in logs)


def test_the_end_of_a_record_may_be_another_logs(tmp_path: Path) -> None:
    draw = random.Random(6)
    logs = [
        log_of((draw.randbytes(500) for _ in range(90)), began, client=client)
        for client, began in ((1, BEGAN), (2, BEGAN + 3000))
    ]
    first, second = (b"".join(log.values()) for log in logs)
    size = len(logs[0][0])
    cut = next(at for at in range(size * 40, len(first)) if at % 1024 == 0 and size - 60 < at % size < size - 30)
    for generation in range(2):
        _, found = salvaged(tmp_path, first[:cut] + second[cut % size :], generation)
        assert len(found) > 40
        assert any(found.items() <= log.items() for log in logs)


def test_blocks_that_fit_by_chance_prove_nothing(tmp_path: Path) -> None:
    draw = random.Random(7)
    log = log_of(draw.randbytes(draw.randint(8300, 12000)) for _ in range(60))
    blocks = blocks_of(b"".join(log.values()))
    block = next(at // 4096 + 1 for at in log if (at + len(log[at]) - 1) // 4096 - at // 4096 == 3)
    other, another = draw.randbytes(4096), draw.randbytes(4092)
    short_of = plain_crc(b"".join(blocks[block : block + 2])) ^ plain_crc(other + another + bytes(4))
    fitting = [other, another + moved(short_of, -4).to_bytes(4, "little")]
    kept = {number for number in range(len(blocks)) if draw.random() < 0.5 or number in {block - 1, block + 2}}
    pool = [blocks[number] for number in kept - {block, block + 1}]
    others = [draw.randbytes(4096) for _ in range(500)]
    _, found = salvaged(tmp_path, shuffled([*pool, *fitting, *others]))
    assert found
    assert found.items() <= log.items()


def test_the_files_of_a_dledger_log(tmp_path: Path) -> None:
    raw, size = b"", 16384
    for number in range(90):
        left = size - len(raw) % size
        if left < 1000:
            raw += struct.pack(">ii", -1, left) + bytes(left - 8)
        one = record(len(raw) + ENTRY_HEADER.size, b"x" * 500, BEGAN - number % 3)
        header = 1, ENTRY_HEADER.size + len(one), number, 1, len(raw), 0, 0, 0, len(one)
        raw += ENTRY_HEADER.struct.pack(*header) + one
    found, log = salvaged(tmp_path, raw)
    assert (len(log), found.holes, len(found.generations)) == (90, [], 1)
    assert found.size == sum(map(len, log.values()))
    assert file_size_of(found, None, compact=True) == size
    last = next(at for at in log if 0 < (cut := (at + len(log[at]) - 3) // 1024 * 1024) - at > len(log[at]) - 60)
    found, kept = salvaged(tmp_path, raw[:cut] + b"other" * 1000)
    assert kept == {at: one for at, one in log.items() if at < last}
    assert found.size == sum(map(len, kept.values()))


def test_records_inside_bodies_are_no_records(tmp_path: Path) -> None:
    draw = random.Random(4)
    inner = b"".join(log_of(draw.randbytes(200) for _ in range(50)).values())
    log = log_of((inner if number % 3 else b"x" * 300 for number in range(60)), BEGAN + 10**6)
    raw = bytearray(b"".join(log.values()))
    for number, at in enumerate(log):
        if number % 10 == 1:
            raw[at : at + 64] = bytes(64)  # the head
        elif number % 10 == 2:
            raw[at + 99] ^= 1
    found, whole = salvaged(tmp_path, bytes(raw))
    assert whole.items() <= log.items()
    assert (len(whole), len(found.holes)) == (48, 6)
    assert found.nested or len(found.generations) > 1


def test_another_brokers_log_stays_apart(tmp_path: Path) -> None:
    draw = random.Random(5)
    logs = [
        log_of([draw.randbytes(300) for _ in range(count)], BEGAN, host=HOST[:4] + bytes([0, 0, 1, port]))
        for count, port in ((90, 1), (60, 2))
    ]
    _, found = salvaged(tmp_path, b"".join(b"".join(log.values()) + bytes(5000) for log in reversed(logs)))
    assert found == logs[0]


def test_hostile_bytes_cost_no_time(tmp_path: Path) -> None:
    lies = [record(at * 1000, b"x" * 5000, BEGAN)[:100] for at in range(500)]
    found, whole = salvaged(tmp_path, b"\0\0\1\0" + MAGIC_V1.to_bytes(4, "big") * 20_000 + b"".join(lies))
    assert whole == {}
    assert found.grades["whole"] == 0


def test_checksums_move_both_ways() -> None:
    value = plain_crc(b"some bytes")
    assert moved(value, 77) == plain_crc(b"some bytes" + bytes(77))
    assert moved(moved(value, 77), -77) == value
