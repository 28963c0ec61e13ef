"""What `clean` deleted: JSON Lines, appended to a file that is there, or a new one. `cleaned.py` reads them."""

from __future__ import annotations

import errno
import json
import time
from typing import TYPE_CHECKING, Any

from rmqctl.format.timestamp import rfc3339
from rmqctl.logfile.storage import Kind

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from rmqctl.logfile.writable_storage import WritableStorage

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Receipts:
    """The file at `path`; a context manager. Methods raise OSError.

    On a full disk a receipt waits until a deletion made room: the deletion is what the disk needs.
    """

    def __init__(self, storage: WritableStorage, path: Path) -> None:
        self.path = path
        self._storage = storage
        self._descriptor: int | None = None
        self._position = 0
        self._waiting = b""

    def __enter__(self) -> Receipts:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._descriptor is not None:
            self._storage.close(self._descriptor)
            self._descriptor = None

    def open(self) -> None:
        """Before the first deletion: whether there can be receipts; not for want of room."""
        try:
            self._descriptor = self._open()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise

    @property
    def unwritten(self) -> list[str]:
        """The lines that there was no room for."""
        return self._waiting.decode().split("\n")[:-1]

    def add(self, receipt: dict[str, Any]) -> None:
        """A line more, with the time, on the disk where there is room."""
        now = time.time_ns() // 1_000_000
        self._waiting += json.dumps({"time": rfc3339(now), "timestamp": now} | receipt, separators=(",", ":")).encode() + b"\n"
        try:
            self.flush()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise

    def flush(self) -> None:
        """Have all lines on the disk."""
        if not self._waiting:
            return
        if self._descriptor is None:
            self._descriptor = self._open()
        self._storage.write(self._descriptor, self._position, self._waiting)
        self._storage.sync(self._descriptor)
        self._position += len(self._waiting)
        self._waiting = b""

    def _open(self) -> int:
        """Behind a line that a crash cut, a new one begins."""
        storage = self._storage
        size = storage.entry(self.path).size
        is_new = storage.entry(self.path).kind is Kind.MISSING
        descriptor = storage.make_file(self.path) if is_new else storage.open_for_writing(self.path)
        try:
            if is_new:
                like = storage.stamp(self.path.parent)
                if like is not None:  # a run by root must not lock out the next one
                    storage.set_owner(self.path, like)
                storage.sync_folder(self.path.parent)
            elif size and storage.read(descriptor, size - 1, 1) != b"\n":
                self._waiting = b"\n" + self._waiting
        except OSError:
            storage.close(descriptor)
            raise
        self._position = size
        return descriptor
