"""StoreCheckpoint: the times up to which log, queues and index are flushed.

They are store times of messages.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rmqctl.format.checkpoint import CHECKPOINT, CHECKPOINT_FILE_SIZE, Checkpoint, decode
from rmqctl.logfile.system.storage import Kind

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.logfile.system.writable_storage import WritableStorage


class StoreCheckpoint:
    """The checkpoint file of a store that is open for writing.

    Times are in ms since 1970. Methods raise OSError.
    """

    def __init__(self, storage: WritableStorage, path: Path) -> None:
        self._storage = storage
        self._path = path
        self._lock = threading.Lock()  # one thread flushes, another thread dispatches
        found = None
        if storage.entry(path).kind is Kind.FILE:
            found = decode(storage.read_start(path, CHECKPOINT_FILE_SIZE))
        self.values = found or Checkpoint(0, 0, 0, 0, 0)

    def set_physic(self, timestamp: int) -> None:
        """Set the time up to which the log is flushed to disk."""
        with self._lock:
            self.values = self.values._replace(physic_msg_timestamp=max(timestamp, self.values.physic_msg_timestamp))

    def set_logics(self, timestamp: int) -> None:
        """Set the time up to which the queues are flushed to disk."""
        with self._lock:
            self.values = self.values._replace(logics_msg_timestamp=max(timestamp, self.values.logics_msg_timestamp))

    def set_index(self, timestamp: int) -> None:
        """Set the store time of the last message in the newest full index file.

        The caller must have flushed this file to disk.
        """
        with self._lock:
            self.values = self.values._replace(index_msg_timestamp=max(timestamp, self.values.index_msg_timestamp))

    def flush(self) -> None:
        """Write the checkpoint, and flush it to disk.

        The bytes after its fields are not changed.
        """
        path = self._path
        if self._storage.entry(path).kind is not Kind.FILE or self._storage.entry(path).size < CHECKPOINT_FILE_SIZE:
            self._storage.unlink(path)
            descriptor = self._storage.create(path, CHECKPOINT_FILE_SIZE)
        else:
            descriptor = self._storage.open_for_writing(path)
        try:
            self._storage.write(descriptor, 0, CHECKPOINT.struct.pack(*self.values))
            self._storage.sync(descriptor)
        finally:
            self._storage.close(descriptor)
