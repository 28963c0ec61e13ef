from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.format import index_entry
from rmqctl.format.properties import hash_code
from tests.support.property_settings import PROPERTY


def test_the_header_is_times_offsets_and_counts() -> None:
    raw = bytes.fromhex("000001A1FDB9E970 000001A1FDB9E971 0000000000000000 0000000000009541 00000012 00000041")
    header = index_entry.decode_header(raw)
    assert header == (0x1A1FDB9E970, 0x1A1FDB9E971, 0, 0x9541, 18, 65)
    assert (header.end_phy_offset, header.hash_slot_count, header.index_count) == (0x9541, 18, 65)


def test_an_entry_is_hash_offset_seconds_and_predecessor() -> None:
    entry = index_entry.decode_entry(bytes.fromhex("0027A807 0000000000009541 00000003 FFFFFFFF"))
    assert entry == (2598919, 0x9541, 3, -1)


@pytest.mark.parametrize("slots", [1, 100, 1000, 5_000_000])
def test_the_slots_are_told_by_the_size_of_the_file(slots: int) -> None:
    assert index_entry.slots_of_file(40 + slots * 4 + slots * 4 * 20) == slots


def test_the_key_hash_covers_topic_and_key() -> None:
    assert index_entry.key_hash("OrderPaid", "k1") == abs(hash_code("OrderPaid#k1"))


def test_the_hash_without_a_positive_counterpart_is_0() -> None:
    key = "DWHcafb"
    assert hash_code(f"T#{key}") == -(2**31)
    assert index_entry.key_hash("T", key) == 0


@PROPERTY
@given(st.sets(st.text(max_size=20)), st.text(max_size=20))
def test_the_hashes_of_many_topics_are_those_of_each(topics: set[str], key: str) -> None:
    assert index_entry.key_hashes(topics, key) == {topic: index_entry.key_hash(topic, key) for topic in topics}
    assert index_entry.key_hashes(["T"], "DWHcafb") == {"T": 0}


@PROPERTY
@given(st.text(max_size=20), st.text(max_size=20))
def test_a_key_hash_is_never_negative(topic: str, key: str) -> None:
    assert 0 <= index_entry.key_hash(topic, key) <= 2**31 - 1
