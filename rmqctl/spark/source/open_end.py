"""Whether a log's file that ends in zeros is an end: not where a later file goes on.

Asked by the task that met the zeros.
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
    """Return the damage `no-blank` at `zeros`, where the log goes on in a later file.

    None: it does not, or a file before is told of.

    `went_on` says whether the file has anything before its zeros.
    """
    found = log.never_closed(zeros)
    if found is None or went_on or not _is_open_before(log, zeros):
        return found
    return None


def _is_open_before(log: CommitLog, zeros: ZeroTail) -> bool:
    """Return whether the file before ends in zeros, too: the log was open there."""
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
