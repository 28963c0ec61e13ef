"""The body of a message in RMQ_SYS_TRANS_OP_HALF_TOPIC.

It has the queue offset of a half message that was committed or rolled back; in 5.x, there may be several, with commas
between them. The half messages are in RMQ_SYS_TRANS_HALF_TOPIC, in the queue with the queueId of the op message.
"""

from __future__ import annotations

from typing import NamedTuple

_SEPARATOR = b","
_DIGITS_MAX = 19  # of a queue offset of 64 bits; int() raises ValueError for thousands of digits


class OpBody(NamedTuple):
    """The queue offsets in the body of an op message."""

    half_offsets: list[int]
    is_whole: bool  # there are only queue offsets and commas


def decode(body: bytes) -> OpBody:
    """Return the queue offsets in the body of an op message."""
    words = [word for word in body.split(_SEPARATOR) if word]  # a comma at the end leaves an empty word
    offsets = [int(word) for word in words if word.isdigit() and len(word) <= _DIGITS_MAX]
    return OpBody(offsets, len(offsets) == len(words))
