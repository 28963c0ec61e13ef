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
    """The receipt files at `paths`; each receipt is written to every one.

    It is a context manager. On a full disk, receipts are kept in memory until `clean` has made room: it continues
    without them, because each deletion makes room. Methods raise OSError.
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
        """Open the receipt files, or only those at `paths`, before the first deletion.

        A full disk is no error here. Raises OSError if a receipt file cannot be opened.
        """
        for file in self._files:
            if paths is None or file.path in paths:
                file.open()

    @property
    def zero_tail(self) -> list[str]:
        """The lines that were not written because the disk had no room.

        They are those of the receipt file that lacks the most.
        """
        return max((file.zero_tail for file in self._files), key=len)

    def add(self, receipt: dict[str, Any]) -> None:
        """Append a receipt with the present time, and flush it to disk.

        On a full disk, it is written later.
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
    def __init__(self, storage: WritableStorage, path: Path) -> None:
        self.path = path
        self._storage = storage
        self._descriptor: int | None = None
        self._position = 0
        self._waiting = b""

    def close(self) -> None:
        if self._descriptor is not None:
            self._storage.close(self._descriptor)
            self._descriptor = None

    def open(self) -> None:
        # a full disk is no error here, and a second call does nothing
        if self._descriptor is not None:
            return
        try:
            self._descriptor = self._open()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise

    @property
    def zero_tail(self) -> list[str]:
        return self._waiting.decode().split("\n")[:-1]

    def add(self, line: bytes) -> None:
        # on a full disk, the line is kept and written later
        self._waiting += line
        try:
            self.flush()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise

    def flush(self) -> None:
        if not self._waiting:
            return
        if self._descriptor is None:
            self._descriptor = self._open()
        self._storage.write(self._descriptor, self._position, self._waiting)
        self._storage.sync(self._descriptor)
        self._position += len(self._waiting)
        self._waiting = b""

    def _open(self) -> int:
        # if a crash cut the last receipt, the next one begins on a new line
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
