"""Compare the index in rocksdbstore/ with the log.

The rows are compared by physical offset and hash of the key, as the entries of index files: 12 bytes of memory a row.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.forensics.finding import Finding
from rmqctl.format.index_entry import key_hash, tag_key_hash
from rmqctl.kernels.dispatch_scan import HAS_UNIQUE
from rmqctl.store.config.store_path import SIGN_OF_5_4
from rmqctl.store.dispatch.dispatch_requests import NotPassed
from rmqctl.store.rocksdb.message_rows import TAG
from rmqctl.text import counted

if TYPE_CHECKING:
    from rmqctl.format.columns import Flags, Numbers
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns
    from rmqctl.store.read.index.index_database import IndexDatabase
    from rmqctl.store.read.read_only_store import ReadOnlyStore

DANGLING = "index-database-dangling"  # the code of a Finding
MISSING = "index-database-missing"  # the code of a Finding


class DatabaseIndexAudit:
    """Compares the rows with messages in log order.

    Without a database, there are no rows. Messages without a row count only if the broker asks this index, and behind
    the first message that has one: brokers index only what they store after the change of broker.conf. Raises OSError.
    """

    def __init__(self, store: ReadOnlyStore, database: IndexDatabase | None) -> None:
        self._database = database
        self._is_in_use = store.conf.index_enabled and not store.index.is_asked(store.conf)
        offsets, hashes = array("q"), array("q")
        for row in database.rows() if database is not None else ():
            offsets.append(row.physical_offset)
            hashes.append((tag_key_hash if row.kind == TAG else key_hash)(row.topic, row.text))
        self._order = np.argsort(np.frombuffer(offsets, np.int64), kind="stable")  # by offset, the number of the row
        self._offsets = np.frombuffer(offsets, np.int64)[self._order]
        self._hashes = np.frombuffer(hashes, np.int64)[self._order]
        self._at = int(self._offsets.searchsorted(store.commit_log.min_offset))
        self._not_passed = NotPassed()
        self._wrong: list[Numbers] = []  # numbers in `_offsets`
        self._findings: list[Finding] = []
        self._before = 0  # messages before the first with a row
        self._goes_on = False  # whether the last message with keys is missing

    def on_messages(self, described: DispatchColumns) -> None:
        """Process messages of the log, in log order."""
        described = self._not_passed.take(described)
        messages, counts = described.messages, described.messages["hashes_count"]
        if not len(messages):
            return
        begin, self._at = self._at, int(self._offsets.searchsorted(messages["physical_offset"][-1], "right"))
        offsets, hashes = self._offsets[begin : self._at], self._hashes[begin : self._at]
        rows = messages["physical_offset"].searchsorted(offsets)
        of_message = np.repeat(np.arange(len(messages)), counts)
        places = np.repeat(messages["hashes_start"] - (counts.cumsum() - counts), counts) + np.arange(len(of_message))
        wanted = (of_message << np.int64(32)) + described.hashes[places]
        found = (rows << np.int64(32)) + hashes
        is_right = (messages["physical_offset"][rows] == offsets) & np.isin(found, wanted)
        self._wrong.append(begin + np.flatnonzero(~is_right))
        if self._is_in_use:
            is_missing = np.zeros(len(messages), np.bool_)
            is_missing[of_message[~np.isin(wanted, found)]] = True
            self._add_missing(described, is_missing)

    def finish(self) -> list[Finding]:
        """Return the findings, after the last message."""
        wrong = np.concatenate([*self._wrong, np.arange(self._at, len(self._offsets))])
        runs = [run for run in np.split(wrong, np.flatnonzero(np.diff(wrong) > 1) + 1) if len(run)]
        first = {int(self._order[run[0]]) for run in runs}
        all_rows = self._database.rows() if self._database is not None and first else ()
        rows = {number: row for number, row in enumerate(all_rows) if number in first}
        for run in runs:
            row = rows[int(self._order[run[0]])]
            what = "TAGS" if row.kind == TAG else "key"
            detail = f"{counted(len(run), 'row')} without a message; the first is for {what} {row.text} of {row.topic}"
            self._findings.append(Finding(DANGLING, SIGN_OF_5_4, row.physical_offset, detail, count=len(run)))
        return self._findings

    def notes(self) -> list[str]:
        """Return a remark on messages before the first in the index."""
        if not self._before:
            return []
        return [
            f"the index in {SIGN_OF_5_4} begins after {counted(self._before, 'message')} with keys: --scan finds them"
        ]

    def _add_missing(self, described: DispatchColumns, is_missing: Flags) -> None:
        messages = described.messages
        with_rows = (messages["hashes_count"] > 0) & (messages["traits"] & HAS_UNIQUE != 0)
        is_before = messages["physical_offset"] < (self._offsets[0] if len(self._offsets) else 0)
        self._before += int(np.count_nonzero(with_rows & is_before))
        with_rows &= ~is_before
        offsets, flags = messages["physical_offset"][with_rows], is_missing[with_rows]
        goes_on = np.append(self._goes_on, flags)
        for number in np.flatnonzero(flags).tolist():
            if not goes_on[number]:
                detail = "the message is not in the index, or not with all its keys and TAGS"
                self._findings.append(Finding(MISSING, SIGN_OF_5_4, int(offsets[number]), detail, count=0))
            self._findings[-1].count += 1
        self._goes_on = bool(goes_on[-1])
