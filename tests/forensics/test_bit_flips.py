"""The flipped bits that explain a wrong checksum: the true ones are always among them."""

from __future__ import annotations

import random

import pytest

from rmqctl.forensics.bit_flips import find_bit_flips, find_two_bit_flips
from rmqctl.format.crc import masked_crc32


@pytest.mark.parametrize("size", [1, 2, 7, 64, 371])
def test_the_flipped_bits_are_found(size: int) -> None:
    chance = random.Random(size)
    for _ in range(20):
        data = bytearray(chance.randbytes(size))
        stored = masked_crc32(bytes(data))
        one, two = chance.sample(range(8 * size), 2)
        data[one // 8] ^= 1 << one % 8
        assert (one // 8, one % 8) in find_bit_flips(bytes(data), stored)
        data[two // 8] ^= 1 << two % 8
        pairs = [{*pair} for pair in find_two_bit_flips(bytes(data), stored)]
        assert {(one // 8, one % 8), (two // 8, two % 8)} in pairs


def test_garbage_has_no_explanation() -> None:
    chance = random.Random(7)
    for _ in range(50):
        data, stored = chance.randbytes(300), chance.randrange(2**31)
        assert find_bit_flips(data, stored) == []
