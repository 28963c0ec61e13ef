from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.format import properties
from tests.support.property_settings import PROPERTY

NAMES = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=8)


@pytest.mark.parametrize("raw", [b"TAGS\x01TagA\x02KEYS\x01k1\x02", b"TAGS\x01TagA\x02KEYS\x01k1"])
def test_the_last_separator_may_be_there_or_not(raw: bytes) -> None:
    assert properties.decode(raw) == {"TAGS": "TagA", "KEYS": "k1"}


def test_no_bytes_are_no_properties() -> None:
    assert properties.decode(b"") == {}


@pytest.mark.parametrize("raw", [b"TAGS", b"TAGS\x01", b"\x01TagA", b"\x01", b"\x02", b"\x02\x02", b"TAGS\x02TagA\x02"])
def test_a_pair_without_a_name_or_a_value_is_none(raw: bytes) -> None:
    assert properties.decode(raw) == {}


def test_a_name_given_twice_keeps_its_last_value() -> None:
    assert properties.decode(b"a\x011\x02b\x012\x02a\x013\x02") == {"a": "3", "b": "2"}


def test_a_second_separator_belongs_to_the_value() -> None:
    assert properties.decode(b"a\x01b\x01c\x02") == {"a": "b\x01c"}


def test_bytes_that_are_no_utf8_become_replacement_characters() -> None:
    assert properties.decode(b"a\x01\xff!\x02") == {"a": "\ufffd!"}


@PROPERTY
@given(st.dictionaries(NAMES, NAMES, max_size=8), st.booleans())
def test_properties_are_read_back(pairs: dict[str, str], trailing: bool) -> None:
    raw = "\x02".join(f"{name}\x01{value}" for name, value in pairs.items()) + ("\x02" if trailing else "")
    assert properties.decode(raw.encode()) == pairs


@PROPERTY
@given(st.binary(max_size=80))
def test_random_bytes_never_raise(raw: bytes) -> None:
    assert all(name and value for name, value in properties.decode(raw).items())


@pytest.mark.parametrize(
    ("text", "words"), [("k1 k2", ["k1", "k2"]), (" k1  k2 ", ["k1", "k2"]), ("one", ["one"]), ("a\tb", ["a\tb"])]
)
def test_keys_are_the_words_between_blanks(text: str, words: list[str]) -> None:
    assert properties.keys({"KEYS": text}) == words


def test_without_keys_there_are_no_words() -> None:
    assert properties.keys({"TAGS": "TagA"}) == []
