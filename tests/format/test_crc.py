from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.format import crc
from tests.support.log_maker import Record, encode
from tests.support.property_settings import PROPERTY

RECORD = encode(Record(property_crc=True), 4096)
TAIL_AT = len(RECORD) - crc.PROPERTY_CRC_SIZE
PROPERTIES_AT = TAIL_AT - len(Record().properties)


def problem_of(record: bytes) -> str | None:
    return crc.property_crc_problem(record, record[PROPERTIES_AT:])


def with_byte(position: int, value: int) -> bytes:
    changed = bytearray(RECORD)
    changed[position] = value
    return bytes(changed)


def test_the_masked_crc_has_no_sign_bit() -> None:
    assert crc.masked_crc32(b"hello") == 0x3610A686
    assert crc.masked_crc32(b"123456789") == 0xCBF43926 & 0x7FFFFFFF


def test_no_bytes_have_the_crc_zero() -> None:
    assert crc.masked_crc32(b"") == 0


@PROPERTY
@given(st.binary(max_size=200))
def test_the_second_opinion_never_contradicts_a_right_checksum(data: bytes) -> None:
    stored = zlib.crc32(data) & 0x7FFFFFFF
    assert not crc.mismatch_confirmed([data], stored)
    assert crc.mismatch_confirmed([memoryview(data)], stored ^ 1)


@PROPERTY
@given(st.lists(st.binary(max_size=40)))
def test_data_in_blocks_have_the_checksum_of_the_whole(blocks: list[bytes]) -> None:
    whole = crc.masked_crc32(b"".join(blocks))
    assert crc.masked_crc32_of(blocks) == whole
    assert not crc.mismatch_confirmed(blocks, whole)


def test_the_digits_stand_least_significant_first() -> None:
    assert crc.property_crc_value(451390881) == b"1880931540"


def test_a_short_checksum_is_padded_with_zeros() -> None:
    assert crc.property_crc_value(7) == b"7000000000"


@PROPERTY
@given(st.integers(0, 2**31 - 1))
def test_the_stored_value_is_read_back(value: int) -> None:
    assert crc.stored_property_crc(b"a\x01b\x02__CRC32#\x01" + crc.property_crc_value(value) + b"\x02") == value


def test_digits_that_are_none_have_no_value() -> None:
    assert crc.stored_property_crc(b"__CRC32#\x0118809x1540\x02") is None


def test_a_right_property_crc_is_no_problem() -> None:
    assert problem_of(RECORD) is None


def test_a_record_without_the_property_has_no_problem() -> None:
    record = encode(Record(), 0)
    assert crc.property_crc_problem(record, Record().properties) is None


def test_short_properties_cannot_have_the_property() -> None:
    assert crc.property_crc_problem(RECORD, b"__CRC32#\x01123456789") is None


def test_a_flipped_byte_in_front_of_the_property_is_found() -> None:
    problem = problem_of(with_byte(20, RECORD[20] ^ 1))
    assert problem is not None
    assert "__CRC32# says" in problem


@pytest.mark.parametrize("position", range(TAIL_AT, len(RECORD)))
def test_a_flipped_bit_anywhere_in_the_property_is_a_problem(position: int) -> None:
    for bit in range(8):
        assert problem_of(with_byte(position, RECORD[position] ^ 1 << bit)) is not None


def test_a_damaged_name_says_what_the_name_is() -> None:
    assert "named b'X_CRC32#'" in (problem_of(with_byte(TAIL_AT, ord("X"))) or "")


def test_ten_digits_at_the_end_that_are_no_checksum_are_no_problem() -> None:
    tail = b"orderNum\x010123456789\x02"
    assert len(tail) == crc.PROPERTY_CRC_SIZE
    assert crc.property_crc_problem(RECORD[:TAIL_AT] + tail, tail) is None


@PROPERTY
@given(st.binary(max_size=60), st.binary(max_size=40))
def test_random_bytes_never_raise(record: bytes, properties: bytes) -> None:
    crc.property_crc_problem(record, properties)
    crc.stored_property_crc(properties)
