"""The log of an offline store, as a master sends it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rmqctl.errors import BadRequest, NeedsRecovery
from rmqctl.format.message import Blank
from rmqctl.store.config.store_path import LOCK
from rmqctl.store.ha.log_source import LogFiles
from rmqctl.store.journal.journals import in_use
from rmqctl.store.read.commit_log import message_of
from rmqctl.text import quoted

if TYPE_CHECKING:
    from rmqctl.store.read.read_only_store import ReadOnlyStore

GAPS = frozenset({"file-gap", "file-length", "file-overlap", "unreadable"})


class ServedLog:
    """The bytes of a store's log from its first file to the end of its last record.

    If the store has a lock file, no broker and no other rmqctl can change the store until `close`. `source` has the
    bytes that HAService sends. Raises StoreInUse if a broker has the store open, BadRequest if the log is empty,
    NeedsRecovery if a log file is missing or has a wrong size, and OSError.
    """

    def __init__(self, store: ReadOnlyStore) -> None:
        root = store.path.root
        if store.lock_holder() is not None:
            raise in_use(root)
        log = store.commit_log
        files = log.files_in_use()
        if not files or log.queue.file_size is None:
            raise BadRequest("the log is empty: there is nothing to serve", path=str(root))
        for damage in log.queue.anomalies:
            if damage.code in GAPS and damage.physical_offset < files[-1].end:
                hint = f"`rmqctl recover {quoted(root)} --dry-run` shows what a repair does"
                raise NeedsRecovery(f"the log is not whole: {damage.detail}", path=damage.path, hint=hint)
        self.end, _ = log.end()
        self.begin = log.min_offset
        self.file_size = log.queue.file_size
        self.source = LogFiles(store.storage, lambda: files, lambda: self.end, self.file_size)
        self._log = log
        self._lock = threading.Lock()
        self._storage = store.storage
        try:
            self._lock_file = store.storage.share_lock(store.path.part(LOCK))
        except BlockingIOError:
            raise in_use(root) from None

    def close(self) -> None:
        """Close the files of the log, and release the lock of the store."""
        self.source.close()
        if self._lock_file is not None:
            self._storage.close(self._lock_file)
            self._lock_file = None

    def is_record_boundary(self, offset: int) -> bool:
        """Return whether a record begins, or the log ends, at a physical offset.

        The content of the record may be damaged. Raises OSError.
        """
        if offset == self.end:
            return True
        with self._lock:
            item = self._log.at(offset)
        return isinstance(item, Blank) or message_of(item) is not None
