from __future__ import annotations

import struct

import pytest

from rmqctl.format.layout import Field, Layout

UNIT = Layout("unit", (Field("physicalOffset", "q", "of the record"), Field("size", "i"), Field("host", "8s", "raw")))


def test_the_size_is_the_sum_of_the_fields_without_padding() -> None:
    assert UNIT.size == 8 + 4 + 8


def test_an_offset_counts_the_fields_before() -> None:
    assert [UNIT.offset(field.name) for field in UNIT.fields] == [0, 8, 12]


def test_an_unknown_field_has_no_offset() -> None:
    with pytest.raises(KeyError):
        UNIT.offset("nothing")


def test_the_struct_is_big_endian() -> None:
    assert UNIT.struct.unpack(struct.pack(">qi8s", 1, -2, b"10.1.2.3")) == (1, -2, b"10.1.2.3")


def test_a_field_knows_its_bytes() -> None:
    assert [Field("f", code).size for code in ("b", "h", "i", "I", "q", "20s")] == [1, 2, 4, 4, 8, 20]


def test_the_table_has_a_row_a_field_with_offset_bytes_name_and_remark() -> None:
    assert [row.split() for row in UNIT.table().splitlines()] == [
        ["0", "8", "physicalOffset", "of", "the", "record"],
        ["8", "4", "size"],
        ["12", "8", "host", "raw"],
    ]


def test_the_table_has_no_trailing_blanks() -> None:
    assert all(row == row.rstrip() for row in UNIT.table().splitlines())
