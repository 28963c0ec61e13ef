"""Layouts of record tails. With layouts, most tails are not parsed.

The tail of a record is the part after its body: the topic, the length of the properties, and the properties. A producer
usually sends many messages with the same topic and property names, whose tails differ only in the values of the
properties. So most tails are not parsed, but compared with a layout, 64 bytes at once.

A layout keeps one tail as an example. `fixed` marks the bytes that belong to no value, and `ends` those that end a
value. A tail fits if it has the lengths of the example, equal bytes where `fixed` marks a byte, and ends of values
exactly where `ends` does. It then has the same topic, and its values at the same positions. A tail longer than
LENGTH_MAX has no layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.format.columns import Bytes, Numbers

from typing import Any, NamedTuple

import numpy as np

from rmqctl.kernels.compile import BLOCK, SPREAD, equal_bytes, same_bytes, word
from rmqctl.kernels.kernel import inline_kernel

LENGTH_MAX = 256  # bytes
QUEUE_IDS = 16
_COUNT_BITS = 8
_BLOCKS = LENGTH_MAX // BLOCK
_SHIFT = np.uint64(64 - _COUNT_BITS)
NAME_END, PROPERTY_END = np.uint8(1), np.uint8(2)
_ONE = np.uint64(1)
_MISSES_PER_LESSON = 8  # if there are too many different tails, most of them should not be learned


class TailLayouts(NamedTuple):
    """A table of tail layouts, with one layout in each row."""

    lengths: Numbers  # of the tail and of its topic, in bytes; 0: the row has no layout
    texts: Any  # the example of a tail
    fixed: Any  # bits
    ends: Any  # bits
    spans: Numbers  # of the values, from the start of the tail
    slots: Numbers  # of the topic's queues in a QueueTable (-1: not known), by the lowest bits of the queueId
    misses: Any


def no_layouts(values: int) -> TailLayouts:
    """Return an empty table, with room for `values` values in each layout."""
    count = 1 << _COUNT_BITS
    bits = (count, _BLOCKS)
    return TailLayouts(
        np.zeros((count, 2), np.int32), np.zeros(count * LENGTH_MAX, np.uint8), np.zeros(bits, np.uint64),
        np.zeros(bits, np.uint64), np.zeros((count, values, 2), np.int32), np.full((count, QUEUE_IDS), -1, np.int32),
        np.zeros(1, np.int64),
    )  # fmt: skip


@inline_kernel
def layout_of(layouts: Any, buffer: Bytes, start: int, end: int, topic_length: int) -> Any:
    """Return the table row for the layout of a tail [start, end), and if it fits."""
    length = end - start
    mixed = (word(buffer, start, start + topic_length) ^ np.uint64(length << 16 | topic_length)) * SPREAD
    row = np.int64(mixed >> _SHIFT)
    known = (
        layouts.lengths[row, 0] == length
        and layouts.lengths[row, 1] == topic_length
        and start + LENGTH_MAX <= len(buffer)
    )
    at = start
    block = 0
    while known and at < end:
        fixed = layouts.fixed[row, block]
        same = same_bytes(buffer, at, layouts.texts, row * LENGTH_MAX + block * BLOCK)
        known = same & fixed == fixed and equal_bytes(buffer, at, end, PROPERTY_END) == layouts.ends[row, block]
        at += BLOCK
        block += 1
    return row, known


@inline_kernel
def learn(layouts: Any, row: int, buffer: Bytes, start: int, end: int, topic_length: int, spans: Numbers) -> None:
    """Store the layout of a tail in row `row` of the table.

    `spans` has the positions of the property values in the buffer, (0, 0) for a missing property.
    """
    layouts.misses[0] += 1
    if end - start > LENGTH_MAX or (layouts.lengths[row, 0] and layouts.misses[0] % _MISSES_PER_LESSON):
        return
    layouts.lengths[row, 0] = end - start
    layouts.lengths[row, 1] = topic_length
    layouts.fixed[row] = 0
    layouts.ends[row] = 0
    layouts.slots[row] = -1
    in_value = False
    for i in range(end - start):
        byte = buffer[start + i]
        bit = _ONE << np.uint64(i % BLOCK)
        layouts.texts[row * LENGTH_MAX + i] = byte
        in_properties = i >= topic_length + 2
        if byte == PROPERTY_END:
            layouts.ends[row, i // BLOCK] |= bit
            in_value = in_value and not in_properties
        if not in_value:
            layouts.fixed[row, i // BLOCK] |= bit
            in_value = in_properties and byte == NAME_END
    for value in range(len(spans)):
        away = start if spans[value, 1] else 0
        layouts.spans[row, value, 0] = spans[value, 0] - away
        layouts.spans[row, value, 1] = spans[value, 1] - away
