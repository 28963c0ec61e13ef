from __future__ import annotations

import pytest

from rmqctl.format import cq_unit
from rmqctl.format.cq_unit import BATCH_CQ_UNIT, CQ_EXT_UNIT, CQ_UNIT, CqUnit


def test_a_unit_is_offset_size_and_tags_code() -> None:
    raw = bytes.fromhex("0000000000009541 000001AA FFFFFFFFD4C2B1A0")
    assert CQ_UNIT.struct.unpack(raw) == (0x9541, 0x1AA, 0xD4C2B1A0 - 2**32)


def test_an_extension_unit_is_size_tags_code_store_time_and_bitmap_length() -> None:
    raw = bytes.fromhex("0014 000000000027A807 000001A1FDB9E970 0000")
    assert CQ_EXT_UNIT.struct.unpack(raw) == (20, 2598919, 0x1A1FDB9E970, 0)


def test_a_batch_unit_is_46_bytes_with_its_base_offset_at_28() -> None:
    assert (BATCH_CQ_UNIT.size, BATCH_CQ_UNIT.offset("baseOffset"), BATCH_CQ_UNIT.offset("count")) == (46, 28, 36)


def test_a_filler_in_front_of_a_queue_is_pre_blank() -> None:
    assert CqUnit(3, 0, 0x7FFFFFFF, 0).is_pre_blank


@pytest.mark.parametrize("unit", [CqUnit(0, 0, 507, 0), CqUnit(0, 1, 0x7FFFFFFF, 0)])
def test_a_message_is_not_pre_blank(unit: CqUnit) -> None:
    assert not unit.is_pre_blank


def test_a_unit_ends_behind_its_record() -> None:
    assert CqUnit(0, 1000, 91, 0).end == 1091


def test_a_unit_stands_for_one_message_unless_it_says_more() -> None:
    assert CqUnit(0, 0, 91, 0).batch_size == 1


@pytest.mark.parametrize(
    ("tags_code", "is_address"), [(-(2**63), True), (-(2**31) - 1, True), (-(2**31), False), (-1, False), (0, False)]
)
def test_only_what_no_hash_code_can_be_is_an_address(tags_code: int, is_address: bool) -> None:
    assert cq_unit.is_ext_address(tags_code) is is_address


def test_the_smallest_long_is_the_address_of_the_first_byte() -> None:
    assert cq_unit.ext_offset(-(2**63)) == 0
    assert cq_unit.ext_offset(-(2**63) + 60) == 60
