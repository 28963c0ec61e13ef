"""One file of a queue of files, for writing: RocketMQ's MappedFile.

It has three positions and a reference count. `wrote_position` is the end of the appended bytes, `committed_position` of
those written to the file (the same without a buffer of the transient store pool), and `flushed_position` of those
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

LARGE_APPEND = 64 * 1024  # bytes
FORCED_STEP = 1000  # holds that a forced shutdown removes from a file


class WritableMappedFile(MappedFile):
    """A file of `size` bytes to which data is appended, at `wrote_position`.

    With a `pool`, appended bytes are kept in a buffer until `commit`. With `mapped` and no pool, a small append writes
    to the file's pages in memory, several times as fast as a call of `write`; a large one calls `write`, because there
    memory needs three times as much system time. With `kept`, the storage closes the file if too many files are open,
    and only one thread at a time may use it. Positions are bytes of the file. Methods that use the file raise OSError.
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
        self._torn = 0  # bytes after wrote_position that a failed append may have written
        self._is_mended = False  # `mend` wrote zeros that are not flushed yet
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
        """Return the end of the bytes that can be read from the file."""
        return self.wrote_position if self._buffer is None else self.committed_position

    @property
    def descriptor(self) -> int:
        """Return the file's descriptor, for writes at any position; open it if needed."""
        return self._open()

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Append `data`, for which the file must have room.

        After an OSError, nothing is appended: the next append first overwrites the failed one with zeros.
        """
        memory = self._memory
        if memory is not None and not self._torn and len(data) < LARGE_APPEND:  # most appends
            position = self.wrote_position
            end = position + len(data)
            if end <= memory.ready:
                memory.mapping[position:end] = data
                self.wrote_position = end
                return
        position, end = self._place_for(data)
        if self._torn:
            self.mend()
        if self._buffer is not None:
            self._buffer[position:end] = data
        elif len(data) >= LARGE_APPEND:
            self._write(position, data)
            if self._memory is not None:
                self._memory.pass_over(end)
        elif (memory := self._memory or self._map()) is not None and (end <= memory.ready or memory.make_ready(end)):
            memory.mapping[position:end] = data
        else:
            self._write(position, data)
            self._mapped, self._memory = False, None
        self.wrote_position = end

    def append_head_last(self, data: memoryview, head: int) -> None:
        """Append many bytes, and write the first `head` bytes last.

        Until then, a reader finds zeros instead of an incomplete record. The file must not have a buffer of the
        transient store pool. It calls `write`, because large appends to mapped memory need three times as much system
        time. After an OSError, nothing is appended.
        """
        position, end = self._place_for(data)
        self._write(position + head, data[head:])
        self._write(position, data[:head])
        self.wrote_position = end

    def _place_for(self, data: bytes | bytearray | memoryview) -> tuple[int, int]:
        position = self.wrote_position
        end = position + len(data)
        if end > self.size:
            raise ValueError(f"{len(data)} bytes do not fit behind position {position} of {self.size}")
        return position, end

    def _map(self) -> MappedMemory | None:
        """Return None without `mapped`, or after a failed allocation of disk blocks."""
        if self._mapped:
            self._memory = MappedMemory(self._writable, self._open(), self.size, self.wrote_position)
        return self._memory

    def close(self) -> None:
        """Close the file's descriptor and its mapping."""
        super().close()
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def set_modified(self, time_ms: int) -> None:
        """Set the file's time of modification to `time_ms`, in ms since 1970."""
        self._writable.set_modified(self._open(), time_ms)

    def _write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        if self._memory is not None:
            self._memory.settle()
        if self._torn:
            self.mend()
        try:
            self._writable.write(self._open(), position, data)
        except OSError:
            self._torn = position + len(data) - self.wrote_position
            self.mend()
            raise

    def mend(self) -> None:
        """Overwrite the bytes of a failed append with zeros.

        It can leave a complete record after `wrote_position`, which a later append could make valid. Nothing is written
        after the last non-zero byte: that could need new disk blocks, which a full disk does not have.
        """
        if not self._torn:
            return
        left = self.read(self.wrote_position, self._torn).rstrip(b"\0")
        self._writable.write(self._open(), self.wrote_position, bytes(len(left)))
        self._torn, self._is_mended = 0, True

    def skip_to_end(self) -> None:
        """Treat the rest of the file as written; append a blank first.

        The rest of a buffer of the pool becomes zeros.
        """
        if self._buffer is not None:
            self._buffer[self.wrote_position : self.size] = bytes(self.size - self.wrote_position)
        self.wrote_position = self.size

    def commit(self, least_pages: int = 0) -> int:
        """Write appended bytes to the file, and return the committed position.

        Unless the file is full, at least `least_pages` pages must be unwritten.
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

        Unless the file is full, at least `least_pages` pages must be unflushed, or `mend` called before.
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
                if readable == self.size:  # no more bytes will be appended
                    self.close()
            return self.flushed_position

    def warm_up(self) -> None:
        """Allocate the file's disk blocks, page by page.

        That detects a full disk before the first append.
        """
        page = bytes(OS_PAGE_SIZE)
        for position in range(0, self.size, OS_PAGE_SIZE):
            self._writable.write(self._open(), position, page[: self.size - position])
        self._writable.sync(self._open())

    def hold(self) -> bool:
        """Keep the file open, and protect it from deletion, until `release` is called.

        Return False if the file is already being closed.
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
        """Refuse new holds, and return whether no hold is left.

        The first call releases the file's initial hold. After `forced_after_ms` ms, the next call closes the file
        despite remaining holds.
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

        Return False if it still has holds: call `destroy` again later.
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
