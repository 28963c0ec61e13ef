"""Many keys at once into an index file: the entries, and the slots that lead to them (IndexFile.putKey)."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmqctl.format.columns import ENTRIES
from rmqctl.format.dispatch_scan import DISPATCH_COLUMNS
from rmqctl.format.index_match import time_diff
from rmqctl.format.kernel import kernel

NATIVE_ENTRIES = ENTRIES.newbyteorder("=")
# of the file that is filled: what its header has, in host order; `row` and `key` say how far the messages are done
BUILD_STATE = np.dtype(
    [
        ("row", np.int64),
        ("key", np.int64),
        ("used", np.int64),
        ("index_count", np.int64),
        ("hash_slot_count", np.int64),
        ("begin_timestamp", np.int64),
        ("end_timestamp", np.int64),
        ("begin_phy_offset", np.int64),
        ("end_phy_offset", np.int64),
    ]
)


@kernel
def build(messages: Any, hashes: Any, heads: Any, capacity: int, entries: Any, dirty: Any, state: Any) -> None:
    """Go on with `state` (one row of BUILD_STATE): fill `entries` (of NATIVE_ENTRIES) until the messages are done or the file is full.

    `heads` (int32) are the slots. `dirty` (int32) gets the slot of each entry. `capacity` is the number behind the last entry
    that the file has room for; `entries` and `dirty` must have room for every key. A message that begins before the index's end
    is left out: it is in it.
    """
    row, key, used = state.row, state.key, 0
    while row < len(messages):
        message = messages[row]
        if key == 0 and message.physical_offset < state.end_phy_offset:
            row += 1
            continue
        while key < message.hashes_count:
            if state.index_count >= capacity:
                state.row, state.key, state.used = row, key, used
                return
            key_hash = hashes[message.hashes_start + key]
            slot = key_hash % len(heads)
            before = heads[slot]
            if before <= 0 or before > state.index_count:
                before = 0
                state.hash_slot_count += 1
            begin = state.begin_timestamp
            seconds = 0 if begin <= 0 else time_diff(begin, message.store_timestamp)
            entry = entries[used]
            entry.keyHash = key_hash
            entry.phyOffset = message.physical_offset
            entry.timeDiff = seconds
            entry.prevIndex = before
            heads[slot] = state.index_count
            dirty[used] = slot
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
    state.row, state.key, state.used = row, key, used


def warm_up() -> None:
    """Call each kernel with nothing to do."""
    messages, hashes, heads = np.zeros(0, DISPATCH_COLUMNS), np.zeros(0, np.int32), np.zeros(1, np.int32)
    build(messages, hashes, heads, 1, np.zeros(0, NATIVE_ENTRIES), np.zeros(0, np.int32), np.zeros(1, BUILD_STATE)[0])
