"""Check whether zeros at the end of a log file are the end of the log.

If the log continues in a later file, the zeros are damage. The task that reads the zeros checks whether a later file
has records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.logfile.column_reader import ColumnReader
from rmqctl.store.read.commit_log import goes_on
from rmqctl.store.read.file_scan import FileScan, ZeroTail, end_position

if TYPE_CHECKING:
    from rmqctl.format.message import Damage
    from rmqctl.store.read.commit_log import CommitLog


def never_closed(log: CommitLog, zeros: ZeroTail, *, went_on: bool) -> Damage | None:
    """Return a `no-blank` damage for `zeros` if a later log file has records.

    The result is None if no later file has records, or if the damage is reported for an earlier file.

    `went_on` says whether the file has readable items before the zeros.
    """
    found = log.never_closed(zeros)
    if found is None or went_on or not _is_open_before(log, zeros):
        return found
    return None


def _is_open_before(log: CommitLog, zeros: ZeroTail) -> bool:
    """Return whether the file before `zeros.physical_offset` ends in zeros.

    If two successive files end in zeros, the damage is reported for the earlier file. A file that has neither readable
    items nor zeros is skipped.
    """
    columns = ColumnReader()
    for file in reversed([file for file in log.queue.files if file.end <= zeros.physical_offset]):
        columns.forget()
        last = None
        for item in FileScan(file, 0, columns).items(end_position(file)):
            last = item if goes_on(item) or isinstance(item, ZeroTail) else last
        file.close()
        if last is not None:
            return isinstance(last, ZeroTail)
    return False
