"""Where a single flipped bit explains a wrong checksum, the finding names it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.forensics.finding import Finding
from rmqctl.forensics.verify import verify
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Golden, expected
from tests.support.file_edits import FIRST_FILE, LOG_FILE_SIZE, flip_bits, poke
from tests.support.log_maker import Record, write_log

BODY_CRC_AT, FLAG_AT, BORN_AT, BODY_AT = 8, 16, 40, 88
MIB = 1024 * 1024
TOP = 1 << 31
EXPLAINED = "one flipped bit explains it"


def only_finding(root: Path) -> Finding:
    store = ReadOnlyStore(root)
    (finding,) = verify(store, 1).findings
    store.close()
    return finding


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_every_bit_of_a_body_is_named(basic: Path, place: float, bit: int) -> None:
    message = next(
        row
        for row in expected("497-basic")["messages"]
        if row["physicalOffset"] > LOG_FILE_SIZE and row["bodyLength"] > 50
    )
    position = message["physicalOffset"] + BODY_AT + int((message["bodyLength"] - 1) * place)
    file, at = divmod(position, LOG_FILE_SIZE)
    flip_bits(basic / f"commitlog/{file * LOG_FILE_SIZE:020d}", at, 1 << bit)
    finding = only_finding(basic)
    assert (finding.code, finding.physical_offset, finding.msg_id) == (
        "bad-body-crc",
        message["physicalOffset"],
        message["msgId"],
    )
    assert finding.file_offset == message["physicalOffset"] - file * LOG_FILE_SIZE
    assert f"{EXPLAINED}: bit {bit} of the byte at {position} (byte {at} of the file)" in finding.detail


@pytest.mark.parametrize("bit", range(31))
def test_a_flipped_bit_in_the_checksum_itself(basic: Path, bit: int) -> None:
    flip_bits(basic / "commitlog" / FIRST_FILE, BODY_CRC_AT + 3 - bit // 8, 1 << bit % 8)
    finding = only_finding(basic)
    assert (finding.code, finding.file_offset, finding.size) == ("bad-body-crc", 0, 452)
    assert "the stored checksum differs in one bit" in finding.detail
    assert EXPLAINED not in finding.detail


@pytest.mark.parametrize("others", [(1,), (0, 1, 2), (40, 60)])
def test_more_than_one_flipped_bit_explains_nothing(basic: Path, others: tuple[int, ...]) -> None:
    for at in (5, *others):
        flip_bits(basic / "commitlog" / FIRST_FILE, BODY_AT + at, 8)
    finding = only_finding(basic)
    assert finding.code == "bad-body-crc"
    assert EXPLAINED not in finding.detail
    assert "in one bit" not in finding.detail


def test_a_zeroed_body_explains_nothing(basic: Path) -> None:
    poke(basic / "commitlog" / FIRST_FILE, BODY_AT, "100x")
    assert EXPLAINED not in only_finding(basic).detail


@pytest.mark.parametrize("at", [FLAG_AT, BORN_AT + 7])
@pytest.mark.parametrize("bit", [0, 3, 7])
def test_a_bit_outside_the_body_is_named_by_the_records_own_checksum(golden: Golden, at: int, bit: int) -> None:
    root = golden("533-propcrc")
    message = max(
        expected("533-propcrc")["messages"],
        key=lambda row: row["physicalOffset"] if row["physicalOffset"] < LOG_FILE_SIZE else -1,
    )
    position = message["physicalOffset"] + at
    flip_bits(root / "commitlog" / FIRST_FILE, position, 1 << bit)
    finding = only_finding(root)
    assert (finding.code, finding.physical_offset) == ("bad-property-crc", message["physicalOffset"])
    assert f"{EXPLAINED}: bit {bit} of the byte at {position} (byte {position} of the file)" in finding.detail


@pytest.mark.parametrize(("size", "is_explained"), [(50_000, True), (MIB + 1, False)])
def test_a_body_may_be_too_long_to_be_searched(tmp_path: Path, size: int, is_explained: bool) -> None:
    write_log(tmp_path, [Record(body=b"x" * size)], file_size=2 * MIB)
    flip_bits(tmp_path / "commitlog" / FIRST_FILE, BODY_AT + 7, 4)
    finding = only_finding(tmp_path)
    assert finding.code == "bad-body-crc"
    assert (f"{EXPLAINED}: bit 2 of the byte at {BODY_AT + 7} " in finding.detail) == is_explained


def test_two_bits_that_explain_one_checksum_are_both_named(tmp_path: Path) -> None:
    """The checksum has 31 bits: in a long body, two bits may differ only in the bit that it lacks."""
    size = 24 * 1024
    body = bytes(size)
    effects = {find: at for at, find in _effects(size)}
    first, second = next((at, effects[value ^ TOP]) for at, value in _effects(size) if value ^ TOP in effects)
    write_log(tmp_path, [Record(body=body)], file_size=MIB)
    flip_bits(tmp_path / "commitlog" / FIRST_FILE, BODY_AT + first[0], 1 << first[1])
    detail = only_finding(tmp_path).detail
    for byte, bit in (first, second):
        assert f"bit {bit} of the byte at {BODY_AT + byte} " in detail
    assert detail.count("bit ") == 3
    assert ", or bit " in detail


def _effects(size: int) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield (byte, bit) of a body, from its last, and the CRC-32 by which a flip changes that of the body."""
    start = zlib.crc32(b"\0")
    table = [zlib.crc32(bytes([i])) ^ start for i in range(256)]
    values = [table[1 << bit] for bit in range(8)]
    for byte in range(size - 1, -1, -1):
        yield from (((byte, bit), value) for bit, value in enumerate(values))
        values = [table[value & 255] ^ value >> 8 for value in values]


def test_a_flipped_bit_in_the_digits_of_the_records_own_checksum(golden: Golden) -> None:
    root = golden("533-propcrc")
    row = expected("533-propcrc")["messages"][0]
    position = row["physicalOffset"] + row["size"] - 3  # the second most significant of the ten digits
    flip_bits(root / "commitlog" / FIRST_FILE, position)
    finding = only_finding(root)
    assert finding.code == "bad-property-crc"
    assert "the stored checksum differs in one bit" in finding.detail


def test_the_finding_says_whose_message_it_is(basic: Path) -> None:
    flip_bits(basic / "commitlog" / FIRST_FILE, BODY_AT)
    finding = only_finding(basic)
    assert (finding.topic, finding.queue_id, finding.queue_offset) == ("OrderPaid", 0, 0)
    assert (
        "OrderPaid/0 at queue offset 0, UNIQ_KEY 0A010200000000000000000000000000, KEYS order-0 user-0 dup-key"
        in finding.detail
    )
