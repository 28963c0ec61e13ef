"""The messages of a batch, on its way or stored as one record.

Brokers of 5.0 and later store it as one record, with SYSFLAG 0x80. It has one message after the other: TOTALSIZE,
MAGIC, BODYCRC, FLAG and the body's length (4 bytes each), the body, the length of the properties (2 bytes), the
properties. As brokers do, only the last two lengths are relied on.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD, _LENGTH = struct.Struct(">iiiii"), struct.Struct(">h")


class InnerMessage(NamedTuple):
    """A message of a batch."""

    flag: int
    body: bytes
    properties: bytes
    magic: int = 0
    body_crc: int = 0

    def encoded(self) -> bytes:
        """Return the message as it is in a batch."""
        flag, body, pairs, magic, body_crc = self
        size = _HEAD.size + len(body) + _LENGTH.size + len(pairs)
        return b"".join((_HEAD.pack(size, magic, body_crc, flag, len(body)), body, _LENGTH.pack(len(pairs)), pairs))


def inner_messages(data: bytes) -> Iterator[InnerMessage]:
    """Yield the messages of a batch. Raises ValueError if one ends outside of it."""
    at = 0
    while at < len(data):
        try:
            _, magic, body_crc, flag, size = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            (length,) = _LENGTH.unpack_from(data, at + size) if size >= 0 else (-1,)
        except struct.error:
            size = length = -1
        begin = at + size + _LENGTH.size
        if length < 0 or begin + length > len(data):
            raise ValueError("a message of the batch ends outside of it")
        yield InnerMessage(flag, data[at : at + size], data[begin : begin + length], magic, body_crc)
        at = begin + length
