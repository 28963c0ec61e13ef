"""The parts that look at eight bytes at once: wherever a text ends, and wherever the buffer does."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.format import properties
from rmqctl.kernels.compile import find_byte, find_either, java_hash, word
from rmqctl.kernels.kernel import kernel
from tests.support.property_settings import PROPERTY

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
RAW = st.binary(max_size=40)


@kernel
def _word(buffer: Any, start: int, end: int) -> Any:
    return word(buffer, start, end)


@kernel
def _found(buffer: Any, start: int, end: int, wanted: int, other: int) -> tuple[int, int]:
    return find_byte(buffer, start, end, np.uint8(wanted)), find_either(
        buffer, start, end, np.uint8(wanted), np.uint8(other)
    )


@kernel
def _hash(buffer: Any, start: int, end: int) -> Any:
    return java_hash(buffer, start, end, np.uint32(0))


def buffer_of(before: bytes, raw: bytes, behind: bytes) -> tuple[Any, int, int]:
    return np.frombuffer(bytearray(before + raw + behind), np.uint8), len(before), len(before) + len(raw)


@PROPERTY
@given(RAW, RAW, RAW)
def test_a_word_ends_where_the_text_ends(before: bytes, raw: bytes, behind: bytes) -> None:
    assert int(_word(*buffer_of(before, raw, behind))) == int.from_bytes(raw[:8], "little")


@PROPERTY
@given(RAW, st.binary(max_size=40).map(lambda raw: bytes(byte % 4 for byte in raw)), RAW)
def test_the_first_byte_of_its_kind(before: bytes, raw: bytes, behind: bytes) -> None:
    buffer, start, end = buffer_of(before, raw, behind)
    one, either = _found(buffer, start, end, 1, 2)
    firsts = [start + at if (at := raw.find(byte)) >= 0 else end for byte in (b"\x01", b"\x02")]
    assert (one, either) == (firsts[0], min(firsts))


@PROPERTY
@given(RAW, TEXTS, RAW)
def test_the_hash_of_text_is_javas(before: bytes, text: str, behind: bytes) -> None:
    is_text, found = _hash(*buffer_of(before, text.encode(), behind))
    assert is_text
    assert int(found) == properties.hash_code(text) & 0xFFFFFFFF


@PROPERTY
@given(RAW, RAW, RAW)
def test_what_is_no_text_has_no_hash(before: bytes, raw: bytes, behind: bytes) -> None:
    is_text, _ = _hash(*buffer_of(before, raw, behind))
    try:
        raw.decode()
    except UnicodeDecodeError:
        assert not is_text
    else:
        assert is_text
