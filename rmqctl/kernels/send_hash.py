"""A kernel that hashes what copies of one message have in common.

This is the topic, UNIQ_KEY, body checksum and body length. Different messages can have equal hashes, too, so a caller
must compare them.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.kernels.compile import SPREAD
from rmqctl.kernels.kernel import kernel

if TYPE_CHECKING:
    from rmqctl.format.columns import Bytes, Flags, Numbers

_HALF = np.uint64(32)
_ASCII_END = np.uint8(128)


@kernel
def _hash(buffer: Bytes, starts: Numbers, lengths: Numbers, seeds: Numbers, out: Numbers, is_ascii: Flags) -> None:
    for i in range(len(starts)):
        h = seeds[i]
        highest = np.uint8(0)
        for at in range(starts[i], starts[i] + lengths[i]):
            highest |= buffer[at]
            h = (h ^ np.uint64(buffer[at])) * SPREAD
            h ^= h >> _HALF
        out[i] = h
        is_ascii[i] = highest < _ASCII_END


def topic_seed(topic: str) -> int:
    """Return a number in [0, 2^64) for a topic, as the beginning of a hash."""
    return int.from_bytes(blake2b(topic.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def send_hashes(
    buffer: Bytes, starts: Numbers, lengths: Numbers, topics: Numbers, body_crcs: Numbers, body_lengths: Numbers
) -> tuple[Numbers, Flags]:
    """Return a hash (int64) for each message, and whether its UNIQ_KEY is ASCII.

    That of message i has the bytes [starts[i], starts[i] + lengths[i]) of `buffer`. `topics` are the topics' seeds
    (uint64). `body_crcs` and `body_lengths` are as stored.
    """
    bodies = np.bitwise_xor(body_crcs.astype(np.uint64) << _HALF, body_lengths.astype(np.uint64))
    out, is_ascii = np.empty(len(starts), np.uint64), np.empty(len(starts), np.bool_)
    seeds = np.bitwise_xor(topics, bodies) * SPREAD
    _hash(buffer, np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(lengths, np.int64), seeds, out, is_ascii)
    return out.view(np.int64), is_ascii


def send_hash(topic: str, unique_key: str, body_crc: int, body_length: int) -> int:
    """Return the hash of one message, as `send_hashes` does."""
    key = np.frombuffer(unique_key.encode("utf-8", "surrogatepass"), np.uint8)
    start, length, crc, body = (np.array([number], np.int64) for number in (0, len(key), body_crc, body_length))
    found, _ = send_hashes(key, start, length, np.array([topic_seed(topic)], np.uint64), crc, body)
    return int(found[0])


def warm_up() -> None:
    """Compile or load the kernel of this module, by a call with empty input."""
    none = np.zeros(0, np.int64)
    send_hashes(np.zeros(0, np.uint8), none, none, np.zeros(0, np.uint64), none, none)
