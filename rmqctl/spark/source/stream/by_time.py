"""Find the record with which a stream begins, by store time.

Brokers store messages in the order of their store times, unless the clock of the host goes back. The search looks at
the first message of some files, and then at some messages of one file.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from rmqctl.spark.source.stream.boundary import LOOK_BACK
from rmqctl.store.read.commit_log import message_of

NEVER = 2**63  # ms, later than all store times

if TYPE_CHECKING:
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.read.commit_log import CommitLog


def first_stored_since(log: CommitLog, since: int, end: int) -> int:
    """Return the physical offset of the first message stored at `since` or later.

    `since` is in ms since 1970. `end` is the physical offset where the written part of the log ends. The result is
    `end` if no message was stored at `since` or later. Raises OSError if a file cannot be read.
    """
    files = [file for file in log.files_in_use() if file.file_from_offset < end]
    number = bisect_left(files, since, key=lambda file: _store_time(log, file.file_from_offset, end))
    if number == 0:
        return log.min_offset
    low = _last_stored_before(log, files[number - 1], min(files[number - 1].end, end), since)
    found = (message_of(item) for item in log.scan(start=low, stop=end))
    return next((message.physical_offset for message in found if message and message.store_timestamp >= since), end)


def _last_stored_before(log: CommitLog, file: MappedFile, end: int, since: int) -> int:
    """Return the physical offset of a record that was stored before `since`.

    The record is in `file`. At most LOOK_BACK bytes after the record, a message was stored at `since` or later, or the
    log or the file ends (at the physical offset `end`).
    """
    low, high = file.file_from_offset, end
    while high - low > LOOK_BACK:
        middle = (low + high) // 2
        found = log.next_record(middle)
        if found is None or found >= high or _store_time(log, found, high) >= since:
            high = middle
        else:
            low = found
    return low


def _store_time(log: CommitLog, position: int, end: int) -> int:
    """Return the store time of the first message that begins in [position, end).

    `position` and `end` are physical offsets. The store time is in ms since 1970. If no message is found, the result is
    NEVER.
    """
    messages = (message_of(item) for item in log.scan(start=position, stop=end))
    return next((message.store_timestamp for message in messages if message is not None), NEVER)
