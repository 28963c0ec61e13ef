"""The receipts of `clean` for deleted files, as JSON Lines in receipt files.

Receipt files are created if they do not exist. `cleaned.py` reads the receipts in the store.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from rmqctl.format.timestamp import rfc3339
from rmqctl.logfile.system.storage import Kind
from rmqctl.logfile.system.writable_storage import NO_ROOM

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path
    from types import TracebackType

    from rmqctl.logfile.system.writable_storage import WritableStorage


class Receipts:
    """The receipt files at `paths`. Each receipt is written to every receipt file.

    A Receipts object is a context manager. If the disk is full, a receipt is kept in memory until `clean` has made
    room. `clean` continues with unwritten receipts, because each deletion makes room on the disk. Methods raise
    OSError.
    """

    def __init__(self, storage: WritableStorage, *paths: Path) -> None:
        self._files = [_ReceiptFile(storage, path) for path in paths]

    def __enter__(self) -> Receipts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()

    def open(self, paths: Collection[Path] | None = None) -> None:
        """Open the receipt files before the first deletion.

        With `paths`, only the receipt files at `paths` are opened. Raises OSError if a receipt file cannot be opened.
        If the disk is full, the function raises no error.
        """
        for file in self._files:
            if paths is None or file.path in paths:
                file.open()

    @property
    def zero_tail(self) -> list[str]:
        """Return the lines that were not written because the disk had no room.

        The result belongs to the receipt file that lacks the most lines.
        """
        return max((file.zero_tail for file in self._files), key=len)

    def add(self, receipt: dict[str, Any]) -> None:
        """Append a receipt with the present time, and flush it to disk.

        If a disk is full, the receipt is written later.
        """
        now = time.time_ns() // 1_000_000
        line = json.dumps({"time": rfc3339(now), "timestamp": now} | receipt, separators=(",", ":")).encode() + b"\n"
        for file in self._files:
            file.add(line)

    def flush(self) -> None:
        """Flush all lines to disk."""
        for file in self._files:
            file.flush()


class _ReceiptFile:
    """One receipt file."""

    def __init__(self, storage: WritableStorage, path: Path) -> None:
        self.path = path
        self._storage = storage
        self._descriptor: int | None = None
        self._position = 0
        self._waiting = b""

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        if self._descriptor is not None:
            self._storage.close(self._descriptor)
            self._descriptor = None

    def open(self) -> None:
        """Open the receipt file before the first deletion.

        If the disk is full, the function raises no error. A second call does nothing.
        """
        if self._descriptor is not None:
            return
        try:
            self._descriptor = self._open()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise

    @property
    def zero_tail(self) -> list[str]:
        """Return the lines that were not written because the disk had no room."""
        return self._waiting.decode().split("\n")[:-1]

    def add(self, line: bytes) -> None:
        """Append a line. If the disk is full, keep the line and write it later."""
        self._waiting += line
        try:
            self.flush()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise

    def flush(self) -> None:
        """Flush all lines to disk."""
        if not self._waiting:
            return
        if self._descriptor is None:
            self._descriptor = self._open()
        self._storage.write(self._descriptor, self._position, self._waiting)
        self._storage.sync(self._descriptor)
        self._position += len(self._waiting)
        self._waiting = b""

    def _open(self) -> int:
        """Open or create the receipt file; return the file descriptor.

        If a crash cut the last receipt, the next receipt begins on a new line.
        """
        storage = self._storage
        size = storage.entry(self.path).size
        is_new = storage.entry(self.path).kind is Kind.MISSING
        descriptor = storage.make_file(self.path) if is_new else storage.open_for_writing(self.path)
        try:
            if is_new:
                storage.sync_folder(self.path.parent)
            elif size and storage.read(descriptor, size - 1, 1) != b"\n":
                self._waiting = b"\n" + self._waiting
        except OSError:
            storage.close(descriptor)
            raise
        self._position = size
        return descriptor
