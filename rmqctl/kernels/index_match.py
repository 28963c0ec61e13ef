"""Check the slots, the order and the messages of many index entries at once.

Entries and messages are in log order, so one pass compares each entry with its message. Errors are rows of
INDEX_EVENTS; those of one kind in successive entries share one row, with a count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.format.columns import Bytes, Numbers, Row, Rows

from typing import Any

import numpy as np

from rmqctl.format.columns import row_type
from rmqctl.format.index_entry import INDEX_ENTRY, TIME_DIFF_MAX
from rmqctl.format.sys_flag import TRANSACTION_MASK, TransactionType
from rmqctl.kernels.compile import i32, i64
from rmqctl.kernels.dispatch_scan import DISPATCH_COLUMNS, HAS_TAG, HAS_UNIQUE
from rmqctl.kernels.kernel import inline_kernel, kernel_or_plain

# errors of one kind: the number of the first entry in its file, the count of successive entries, the first and the last
# row of the messages; `value` is the expected value, or another detail of the error
INDEX_EVENTS = row_type("i4 kind entry count row last_row", "i8 value")
CHAIN, NEGATIVE, ORDER, NO_MESSAGE, NO_SUCH_KEY, TIME, BEGIN, END, NOT_INDEXED, TAGS_NOT_INDEXED = np.arange(
    10
)  # numpy integers, because numba compiles a kernel again for each literal int
# the state of `merge` between two calls. `tags_indexed` is set after a message with an entry for TAGS. `tags_open`
# counts the messages since then that have TAGS and no entry for them; `tags_open_from` is the physical offset of their
# first.
MERGE_STATE = row_type("i8 row entry events missing_goes_on tags_indexed tags_open tags_open_from")

_ENTRY = INDEX_ENTRY.size
_NO_ROW = np.int64(0)
_PHY_OFFSET, _TIME_DIFF, _PREV_INDEX = (INDEX_ENTRY.offset(name) for name in ("phyOffset", "timeDiff", "prevIndex"))
_HAS_UNIQUE, _HAS_TAG = HAS_UNIQUE, HAS_TAG
_COMMIT, _MASK = int(TransactionType.COMMIT), TRANSACTION_MASK


@inline_kernel
def time_diff(begin: int, stored: int) -> int:
    """Return the seconds from `begin` to `stored` (both ms), clamped to [0, 2^31-1].

    If the difference overflows 64 bits, it is 2^31-1. If `begin` is not positive, it is 0: so a broker writes all
    entries of a file whose first message was stored at 0 (IndexFile.putKey).
    """
    if begin <= 0 or stored <= begin:
        return 0
    difference = stored - begin
    return TIME_DIFF_MAX if difference < 0 else min(difference // 1000, TIME_DIFF_MAX)


@inline_kernel
def _tell(events: Rows, used: int, kind: int, entry: int, row: int, value: int) -> int:
    if used and events[used - 1].kind == kind and events[used - 1].entry + events[used - 1].count == entry:
        events[used - 1].count += 1
        events[used - 1].last_row = row
        return used
    event = events[used]
    event.kind = kind
    event.entry = entry
    event.count = 1
    event.row = row
    event.last_row = row
    event.value = value
    return used + 1


@kernel_or_plain
def check_entries(
    entries: Rows, first: int, heads: Numbers, last_offset: int, following: int, skipped: Bytes, events: Rows
) -> Any:
    """Check a block of index entries; return the new last_offset and event count.

    `entries` (uint8) is the block, `first` the number of its first entry. `heads` (int32) has, for each slot, the
    number of its last checked entry. `last_offset` is the physical offset of the last in-order entry before the block,
    `following` that in the first entry after it (-1: no entry follows).

    An entry is out of order if its physical offset is lower than `last_offset`, or higher than that of the next entry,
    unless the next one is lower than `last_offset`. `skipped` (uint8) is then set to 1, and otherwise to 0. `events`
    must have room for two rows for each entry.
    """
    count = len(entries) // _ENTRY
    used = np.int64(0)
    for i in range(count):
        key_hash = i32(entries, i * _ENTRY)
        if key_hash < 0 or len(heads) == 0:
            used = _tell(events, used, NEGATIVE, first + i, _NO_ROW, key_hash)
            continue
        slot = np.uint32(key_hash) % np.uint32(len(heads))
        wanted = heads[slot]
        heads[slot] = first + i
        if i32(entries, i * _ENTRY + _PREV_INDEX) != wanted:
            used = _tell(events, used, CHAIN, first + i, _NO_ROW, np.int64(wanted))
    for i in range(count):
        offset = i64(entries, i * _ENTRY + _PHY_OFFSET)
        after = following if i + 1 == count else i64(entries, (i + 1) * _ENTRY + _PHY_OFFSET)
        there_is_one = i + 1 < count or following != -1
        if offset < last_offset or (there_is_one and last_offset <= after < offset):
            skipped[i] = 1
            used = _tell(events, used, ORDER, first + i, _NO_ROW, last_offset)
        else:
            skipped[i] = 0
            last_offset = offset
    return last_offset, used


@inline_kernel
def _check_time(
    entry_at: int,
    entries: Rows,
    number: int,
    message: Row,
    row: int,
    header: Numbers,
    events: Rows,
    used: int,
) -> int:
    """Compare the time in an index entry with the store time of its message.

    `header` (int64) has beginTimestamp, endTimestamp and indexCount of the index file. Returns the number of events.
    """
    begin, stored = int(header[0]), message.store_timestamp
    if number == 1 and begin != stored:
        used = _tell(events, used, BEGIN, number, row, stored)
    if number == header[2] - 1 and header[1] != stored:
        used = _tell(events, used, END, number, row, stored)
    if number > 1:
        found = i32(entries, entry_at + _TIME_DIFF)
        if found < 0 or not 0 <= stored - begin - found * 1000 < 1000:  # needs no division
            wanted = time_diff(begin, stored)
            if found != wanted:
                used = _tell(events, used, TIME, number, row, wanted)
    return used


@inline_kernel
def _end_tags(message: Row, is_found: bool, row: int, state: Row, events: Rows, used: int) -> int:
    """Count a message without an index entry for its TAGS, or report those before it.

    Brokers of 5.4.0 and later index TAGS. The first messages of the log have no such entry after an upgrade to 5.4.0,
    and the last ones after a downgrade, so a missing one is an error only between two messages that have it. Whether
    the first message with an entry has one before it, in another part of the log, is not known here: it always gets an
    event, even one that counts no message.
    """
    if not is_found:
        if state.tags_open == 0:
            state.tags_open_from = message.physical_offset
        state.tags_open += 1
        return used
    if state.tags_open or not state.tags_indexed:
        used = _tell(events, used, TAGS_NOT_INDEXED, -2 - row, row, state.tags_open_from)
        events[used - 1].count = state.tags_open
    state.tags_open = 0
    state.tags_indexed = 1
    return used


@inline_kernel
def _end_message(
    message: Row,
    hashes: Numbers,
    row: int,
    found: Bytes,
    like_3x: bool,
    report_missing: bool,
    state: Row,
    events: Rows,
    used: int,
) -> int:
    """Add an event if the index does not have all of a message's keys.

    `found` is cleared for the next message.
    """
    required_from = 0
    required_to = message.hashes_count
    has_tag = message.traits & _HAS_TAG != 0
    if has_tag:
        required_to -= 1
    tag_is_found = has_tag and found[required_to] != 0
    for i in range(required_to):  # an entry for a key `T#TAGS` looks like an entry for TAGS, and proves nothing
        has_tag = has_tag and hashes[message.hashes_start + i] != hashes[message.hashes_start + required_to]
    if like_3x:
        required_from = 1 if message.traits & _HAS_UNIQUE else 0
        required_to = 0 if message.sys_flag & _MASK == _COMMIT else required_to
    missing = np.int64(0)
    for i in range(required_from, required_to):
        if not found[i]:
            again = False
            for j in range(required_from, i):
                again = again or hashes[message.hashes_start + j] == hashes[message.hashes_start + i]
            missing += 0 if again else 1
    for i in range(message.hashes_count):
        found[i] = 0
    if missing and report_missing:
        if state.missing_goes_on and used and events[used - 1].kind == NOT_INDEXED:
            events[used - 1].count += 1
            events[used - 1].last_row = row
        else:
            used = _tell(events, used, NOT_INDEXED, -2 - row, row, missing)
            events[used - 1].entry = state.missing_goes_on
        state.missing_goes_on = 1
    elif has_tag and report_missing and not like_3x:
        state.missing_goes_on = 0 if required_to > required_from else state.missing_goes_on
        used = _end_tags(message, tag_is_found, row, state, events, used)
    elif required_to > required_from:
        state.missing_goes_on = 0
    return used


@kernel_or_plain
def merge(
    messages: Rows,
    hashes: Numbers,
    entries: Rows,
    first: int,
    skipped: Bytes,
    more: bool,
    header: Numbers,
    log_start: int,
    like_3x: bool,
    report_missing: bool,
    found: Bytes,
    states: Rows,
    events: Rows,
) -> None:
    """Compare messages with a block of index entries; continue from a state.

    It is the only row of `states` (MERGE_STATE). Messages (DISPATCH_COLUMNS) and entries are both in log order. The
    kernel ends when all messages are done, or when `events` is nearly full; with `more`, at the end of the block,
    because other blocks may follow. An entry that points to an offset before `log_start` belongs to an expired message.

    `hashes` (int32) has the hashes of the messages' keys. `skipped` (uint8) marks the entries that are not compared.
    `header` (int64) has beginTimestamp, endTimestamp and indexCount of the index file. `found` (uint8) must have an
    element for each key of a message, each 0 at the call.
    """
    state = states[0]
    used = state.events
    count = len(entries) // _ENTRY
    row = state.row
    at = state.entry
    while row < len(messages) and used + 4 < len(events):
        message = messages[row]
        while at < count and used + 4 < len(events):
            entry_at = at * _ENTRY
            offset = i64(entries, entry_at + _PHY_OFFSET)
            if not skipped[at]:
                if offset > message.physical_offset:
                    break
                if offset < message.physical_offset:
                    if offset >= log_start:
                        used = _tell(events, used, NO_MESSAGE, first + at, row, offset)
                else:
                    key_hash = i32(entries, entry_at)
                    known = False
                    for i in range(message.hashes_count):
                        if hashes[message.hashes_start + i] == key_hash:
                            found[i] = 1
                            known = True
                    if not known:
                        used = _tell(events, used, NO_SUCH_KEY, first + at, row, np.int64(key_hash))
                    else:
                        used = _check_time(entry_at, entries, first + at, message, row, header, events, used)
            at += 1
        if used + 4 >= len(events) or (at == count and more):
            break
        used = _end_message(message, hashes, row, found, like_3x, report_missing, state, events, used)
        row += 1
    state.row = row
    state.entry = at
    state.events = used


def warm_up() -> None:
    """Compile or load each kernel of this module, by a call with empty input."""
    entries, flags, events = np.frombuffer(b"", np.uint8), np.zeros(0, np.uint8), np.zeros(8, INDEX_EVENTS)
    check_entries(entries, 1, np.zeros(1, np.int32), 0, -1, flags, events)
    messages, hashes, header = np.zeros(0, DISPATCH_COLUMNS), np.zeros(0, np.int32), np.zeros(3, np.int64)
    states = np.zeros(1, MERGE_STATE)
    merge(messages, hashes, entries, 1, flags, False, header, 0, False, True, flags, states, events)
