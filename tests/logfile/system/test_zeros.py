from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.logfile.system.zeros import BLOCK_SIZE, is_zeros, used_length
from tests.support.property_settings import PROPERTY


@pytest.mark.parametrize("size", [0, 1, 64, 65, 8192, 327_680, BLOCK_SIZE])
@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 256, 4095, 4096, 8192, BLOCK_SIZE - 1, BLOCK_SIZE])
def test_only_zeros_at_the_end_are_left_out(length: int, size: int) -> None:
    data = (b"\0x" * length)[-length:] if length else b""
    block = data[-size:].ljust(size, b"\0") if size else b""
    assert used_length(block) == len(block.rstrip(b"\0"))
    assert is_zeros(block) == (not block.strip(b"\0"))


@PROPERTY
@given(st.lists(st.integers(0, 999), max_size=5), st.integers(0, 1000))
def test_any_bytes(places: list[int], size: int) -> None:
    block = bytes(at in places for at in range(size))
    assert used_length(block) == len(block.rstrip(b"\0"))
