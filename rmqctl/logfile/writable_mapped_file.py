"""One file of a queue of files, for writing: RocketMQ's MappedFile.

The file has three positions and a count of holds. `wrote_position` is the position after the appended bytes.
`committed_position` is the position after the bytes that were written to the file. Without a buffer of the transient
store pool, `committed_position` equals `wrote_position`. `flushed_position` is the position after the bytes that are
flushed to disk.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.logfile.memory.mapped_memory import OS_PAGE_SIZE, MappedMemory

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.logfile.memory.transient_store_pool import TransientStorePool
    from rmqctl.logfile.system.writable_storage import WritableStorage

FORCED_STEP = 1000  # a file that is to go although someone holds it loses so many holds


class WritableMappedFile(MappedFile):
    """A file of `size` bytes.

    Positions are in bytes of the file. Methods that use the file raise OSError. Appending continues at
    `wrote_position`. With a `pool`, appended bytes are kept in a buffer until `commit`. With `mapped` and no pool,
    appended bytes are written to the file's pages in memory. For small appends, writing to memory is several times as
    fast as calls of `write`. Without `pool` and `mapped`, each append calls `write`. With `kept`, the storage closes
    the file if too many files are open. In this case, only one thread at a time may use the file.
    """

    def __init__(
        self,
        storage: WritableStorage,
        path: Path,
        file_from_offset: int,
        size: int,
        wrote_position: int = 0,
        pool: TransientStorePool | None = None,
        descriptor: int | None = None,
        *,
        mapped: bool = False,
        kept: bool = False,
    ) -> None:
        super().__init__(storage, path, file_from_offset, size, kept=kept)
        self._writable = storage
        self._descriptor = descriptor
        if kept and descriptor is not None:
            storage.keep_open(self)
        self._write_lock = threading.Lock()
        self._pool = pool
        self._buffer = pool.borrow() if pool is not None and wrote_position == 0 else None
        self._mapped = mapped
        self._memory: MappedMemory | None = None
        self._flush_lock = threading.Lock()
        self.wrote_position = wrote_position
        self.committed_position = wrote_position
        self.flushed_position = wrote_position
        self._torn = 0  # so many bytes after wrote_position may be what a failed append left
        self._is_mended = False  # and not flushed since
        self.store_timestamp = 0
        self._references = 1
        self._available = True
        self._first_shutdown: float | None = None
        self._reference_lock = threading.Lock()

    @property
    def is_full(self) -> bool:
        """Return whether the file has no room left."""
        return self.wrote_position == self.size

    @property
    def readable_position(self) -> int:
        """Return the position after the last byte that can be read from the file."""
        return self.wrote_position if self._buffer is None else self.committed_position

    @property
    def descriptor(self) -> int:
        """Return the open descriptor.

        Callers use the descriptor to write at positions that they choose.
        """
        return self._open()

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Append `data`, for which the file must have room.

        If the function raises OSError, nothing is appended, and bytes that were already written to the file are set to
        zero. If these bytes cannot be set to zero, the next append tries again.
        """
        position, end = self._place_for(data)
        if self._buffer is not None:
            self._buffer[position:end] = data
        elif (memory := self._memory or self._map()) is not None and (end <= memory.ready or memory.make_ready(end)):
            memory.mapping[position:end] = data
        else:
            self._mapped, self._memory = False, None
            self._write(position, data)
        self.wrote_position = end

    def append_head_last(self, data: memoryview, head: int) -> None:
        """Append many bytes, and write the first `head` bytes last.

        Until the first `head` bytes are written, a reader finds zeros at the old end of the file, and no incomplete
        record. The file must not have a buffer of a pool. `write` is used, because large appends to memory cost three
        times as much of the system's time. See `append`.
        """
        position, end = self._place_for(data)
        self._write(position + head, data[head:])
        self._write(position, data[:head])
        self.wrote_position = end

    def _place_for(self, data: bytes | bytearray | memoryview) -> tuple[int, int]:
        """Return the positions where appended data begins and ends."""
        position = self.wrote_position
        end = position + len(data)
        if end > self.size:
            raise ValueError(f"{len(data)} bytes do not fit behind position {position} of {self.size}")
        return position, end

    def _map(self) -> MappedMemory | None:
        """Return the file's pages as memory.

        The result is None if the file must not be written through memory, or if this file system cannot allocate
        blocks.
        """
        if self._mapped:
            self._memory = MappedMemory(self._writable, self._open(), self.size, self.wrote_position)
        return self._memory

    def close(self) -> None:
        """Close the descriptor and the mapping."""
        super().close()
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def set_modified(self, time_ms: int) -> None:
        """Set the file's time of modification to `time_ms`, in ms since 1970."""
        self._writable.set_modified(self._open(), time_ms)

    def _write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        if self._torn:
            self.mend()
        try:
            self._writable.write(self._open(), position, data)
        except OSError:
            self._torn = position + len(data) - self.wrote_position
            self.mend()
            raise

    def mend(self) -> None:
        """Overwrite with zeros the bytes that a failed append wrote.

        Otherwise, a complete record in these bytes could become valid when a shorter record is appended before the
        complete record. Zeros are written only over non-zero bytes. On a full disk, the non-zero bytes already have
        disk blocks, but other bytes may have no disk blocks.
        """
        if not self._torn:
            return
        left = self.read(self.wrote_position, self._torn).rstrip(b"\0")
        self._writable.write(self._open(), self.wrote_position, bytes(len(left)))
        self._torn, self._is_mended = 0, True

    def skip_to_end(self) -> None:
        """Treat the rest of the file as written.

        The caller has appended a blank before this call. If the file has a buffer of the pool, the rest of the buffer
        becomes zeros.
        """
        if self._buffer is not None:
            self._buffer[self.wrote_position : self.size] = bytes(self.size - self.wrote_position)
        self.wrote_position = self.size

    def commit(self, least_pages: int = 0) -> int:
        """Write appended bytes to the file, and return the committed position.

        If fewer than `least_pages` pages are waiting and the file is not full, nothing is written.
        """
        with self._write_lock:
            wrote = self.wrote_position
            if self._buffer is None:
                self.committed_position = wrote
            elif _is_enough(self.committed_position, wrote, least_pages, full=wrote == self.size):
                self._writable.write(
                    self._open(), self.committed_position, memoryview(self._buffer)[self.committed_position : wrote]
                )
                self.committed_position = wrote
            if self._pool is not None and self._buffer is not None and self.committed_position == self.size:
                self._pool.give_back(self._buffer)
                self._buffer = None
            return self.committed_position

    def flush(self, least_pages: int = 0) -> int:
        """Flush the readable part to disk, and return the flushed position.

        If fewer than `least_pages` pages are waiting and the file is not full, nothing is flushed.
        """
        with self._flush_lock:
            readable = self.readable_position
            enough = self._is_mended or _is_enough(
                self.flushed_position, readable, least_pages, full=readable == self.size
            )
            if enough and self.hold():
                try:
                    self._is_mended = False
                    self._writable.sync(self._open())
                    self.flushed_position = readable
                finally:
                    self.release()
                if readable == self.size:  # nothing more comes
                    self.close()
            return self.flushed_position

    def warm_up(self) -> None:
        """Allocate the file's blocks, page by page.

        So a full disk causes an error in this call, and not later while messages arrive.
        """
        page = bytes(OS_PAGE_SIZE)
        for position in range(0, self.size, OS_PAGE_SIZE):
            self._writable.write(self._open(), position, page[: self.size - position])
        self._writable.sync(self._open())

    def hold(self) -> bool:
        """Prevent the file from being closed and deleted until `release`.

        The result is False if the file is already being closed.
        """
        with self._reference_lock:
            if not self._available or self._references <= 0:
                return False
            self._references += 1
            return True

    def release(self) -> None:
        """Release a hold. The last release closes the file."""
        with self._reference_lock:
            self._references -= 1
            gone = self._references <= 0
        if gone:
            self.close()

    def shutdown(self, forced_after_ms: int = 0) -> bool:
        """Refuse new holds, release the first hold, and return whether no hold is left.

        If `shutdown` is called again at least `forced_after_ms` later, it no longer waits for the remaining holds.
        """
        now = time.monotonic()
        with self._reference_lock:
            first = self._available
            self._available = False
            self._first_shutdown = now if first or self._first_shutdown is None else self._first_shutdown
            if not first and self._references > 0 and (now - self._first_shutdown) * 1000 >= forced_after_ms:
                self._references = -FORCED_STEP - self._references
                first = True
        if first:
            self.release()
        return self._references <= 0

    def destroy(self, forced_after_ms: int = 0) -> bool:
        """Close and delete the file.

        The result is False if the file still has a hold. The caller then tries again later.
        """
        if not self.shutdown(forced_after_ms):
            return False
        if self._pool is not None and self._buffer is not None:
            self._pool.give_back(self._buffer)
            self._buffer = None
        self._writable.unlink(self.path)
        return True

    def _open_file(self) -> int:
        return self._writable.open_for_writing(self.path)


def _is_enough(done: int, wanted: int, least_pages: int, *, full: bool) -> bool:
    if full or least_pages <= 0:
        return wanted > done
    return wanted // OS_PAGE_SIZE - done // OS_PAGE_SIZE >= least_pages
