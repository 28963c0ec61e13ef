"""Add many keys to an index file at once (IndexFile.putKey).

The kernels build index entries, and the hash slots that point to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.format.columns import Numbers, Rows

from typing import Any

import numpy as np

from rmqctl.format.columns import row_type
from rmqctl.format.index_entry import INDEX_ENTRY, SLOT_SIZE
from rmqctl.kernels.compile import i32, prefetch, put_i32, put_i64
from rmqctl.kernels.dispatch_scan import DISPATCH_COLUMNS
from rmqctl.kernels.index_match import time_diff
from rmqctl.kernels.kernel import kernel_or_plain

_ENTRY = INDEX_ENTRY.size
_PHY_OFFSET, _TIME_DIFF, _PREV_INDEX = (INDEX_ENTRY.offset(name) for name in ("phyOffset", "timeDiff", "prevIndex"))
_AHEAD = 24  # entries; the table of slots is larger than most caches
_SLOT = SLOT_SIZE
# the state of the file: the fields of its header, in host byte order; `row` and `key` are the next message and its next
# key; `pending` and `changed` are the numbers of new entries and changed slots that are not written yet
BUILD_STATE = row_type(
    "i8 row key pending changed index_count hash_slot_count begin_timestamp end_timestamp begin_phy_offset "
    "end_phy_offset"
)


@kernel_or_plain
def slots_of(hashes: Numbers, count: int, slots: Numbers) -> None:
    """Store in `slots` the slot of each key hash, for a table of `count` slots.

    Both are int32, and no hash is negative. A multiplication by the inverse of `count` is several times as fast as a
    division; its quotient may be wrong by 1, so the remainder is corrected.
    """
    inverse = 1.0 / count
    for i in range(len(hashes)):
        value = np.int64(hashes[i])
        rest = value - np.int64(value * inverse) * count
        slots[i] = rest + count if rest < 0 else rest - count if rest >= count else rest


@kernel_or_plain
def build(
    messages: Rows,
    hashes: Numbers,
    slots: Numbers,
    heads: Any,
    capacity: int,
    entries: Rows,
    changed: Any,
    states: Rows,
) -> None:
    """Add keys of messages to an index file; continue from the state.

    It is the only row of `states` (BUILD_STATE). The kernel ends when all messages are done, or when the file or
    `entries` is full; the file is full if the number of the next entry would be `capacity`.

    `heads` (the hash slots) and `entries` are uint8, in the format of the index file. `slots` has the slot number of
    each hash. `changed` (int32) gets the slot numbers of the new entries, until it is full. A message before
    `end_phy_offset` of the state is skipped, because the index already has its keys.
    """
    state = states[0]
    row, key, used = state.row, state.key, state.pending
    while row < len(messages):
        message = messages[row]
        if key == 0 and message.physical_offset < state.end_phy_offset:
            row += 1
            continue
        while key < message.hashes_count:
            at = used * _ENTRY
            if state.index_count >= capacity or at == len(entries):
                state.row, state.key, state.pending = row, key, used
                return
            place = message.hashes_start + key
            slot = slots[place]
            prefetch(heads, slots[min(place + _AHEAD, len(slots) - 1)] * _SLOT)
            before = i32(heads, slot * _SLOT)
            if before <= 0 or before > state.index_count:
                before = 0
                state.hash_slot_count += 1
            seconds = time_diff(state.begin_timestamp, message.store_timestamp)
            put_i32(entries, at, hashes[place])
            put_i64(entries, at + _PHY_OFFSET, message.physical_offset)
            put_i32(entries, at + _TIME_DIFF, seconds)
            put_i32(entries, at + _PREV_INDEX, before)
            put_i32(heads, slot * _SLOT, state.index_count)
            if state.changed < len(changed):
                changed[state.changed] = slot
            state.changed += 1
            if state.index_count <= 1:
                state.begin_phy_offset = message.physical_offset
                state.begin_timestamp = message.store_timestamp
            state.index_count += 1
            state.end_phy_offset = message.physical_offset
            state.end_timestamp = message.store_timestamp
            used += 1
            key += 1
        key = 0
        row += 1
    state.row, state.key, state.pending = row, key, used


def warm_up() -> None:
    """Compile or load each kernel of this module, by a call with empty input."""
    messages, hashes, none = np.zeros(0, DISPATCH_COLUMNS), np.zeros(0, np.int32), np.zeros(0, np.uint8)
    slots_of(hashes, 1, hashes)
    build(messages, hashes, hashes, none, 1, none, hashes, np.zeros(1, BUILD_STATE))
