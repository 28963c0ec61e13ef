"""Hashes of what copies of one message have in common."""

from __future__ import annotations

from itertools import product

import numpy as np

from rmqctl.kernels.send_hash import send_hash, send_hashes, topic_seed

MASK, SPREAD = 2**64 - 1, 0x9E3779B97F4A7C15


def plain(topic: str, key: bytes, body_crc: int, body_length: int) -> int:
    found = (topic_seed(topic) ^ body_crc << 32 ^ body_length) * SPREAD & MASK
    for byte in key:
        found = (found ^ byte) * SPREAD & MASK
        found ^= found >> 32
    return found


def test_hashes_are_those_of_the_plain_code() -> None:
    keys = ["", "K1", "K2", "0A0102000000000000000000000000", "k\u00fcrzer"]
    cases = list(product("ab", keys, (0, 2**32 - 1), (0, 9)))
    data = [key.encode() for _, key, _, _ in cases]
    lengths = np.array([len(key) for key in data])
    seeds = np.array([topic_seed(topic) for topic, *_ in cases], np.uint64)
    crcs, body_lengths = (np.array([case[at] for case in cases], np.int64) for at in (2, 3))
    buffer = np.frombuffer(b"".join(data), np.uint8)
    hashes, is_ascii = send_hashes(buffer, np.cumsum(lengths) - lengths, lengths, seeds, crcs, body_lengths)
    wanted = [plain(topic, key.encode(), crc, length) for topic, key, crc, length in cases]
    assert [found & MASK for found in hashes.tolist()] == wanted
    assert hashes.tolist() == [send_hash(*case) for case in cases]
    assert is_ascii.tolist() == [key.isascii() for _, key, _, _ in cases]
    assert len(set(wanted)) == len(cases)
