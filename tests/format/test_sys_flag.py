from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.format.sys_flag import COMPRESSED, TransactionType, compression, transaction_type
from tests.support.property_settings import PROPERTY


@pytest.mark.parametrize(
    ("sys_flag", "kind"),
    [
        (0, TransactionType.NONE),
        (4, TransactionType.PREPARED),
        (8, TransactionType.COMMIT),
        (12, TransactionType.ROLLBACK),
        (0x33, TransactionType.NONE),
        (0x1 | 8 | 0x30, TransactionType.COMMIT),
        (-1, TransactionType.ROLLBACK),
    ],
)
def test_the_transaction_type_is_in_bits_2_and_3(sys_flag: int, kind: TransactionType) -> None:
    assert transaction_type(sys_flag) is kind


@pytest.mark.parametrize(
    ("sys_flag", "name"),
    [
        (1, "zlib"),
        (1 | 1 << 8, "lz4"),
        (1 | 2 << 8, "zstd"),
        (1 | 3 << 8, "zlib"),
        (1 | 5 << 8, "unknown"),
        (3, "zlib"),
        (1 | 1 << 11, "zlib"),
    ],
)
def test_the_compression_is_in_bits_8_to_10(sys_flag: int, name: str) -> None:
    assert compression(sys_flag) == name


@pytest.mark.parametrize("sys_flag", [0, 2, 1 << 8, 3 << 8, 0x30])
def test_without_the_compressed_bit_there_is_no_compression(sys_flag: int) -> None:
    assert compression(sys_flag) is None


@PROPERTY
@given(st.integers(-(2**31), 2**31 - 1))
def test_every_sys_flag_has_a_kind_and_a_compression_or_none(sys_flag: int) -> None:
    assert transaction_type(sys_flag) in TransactionType
    assert (compression(sys_flag) is None) == (not sys_flag & COMPRESSED)
