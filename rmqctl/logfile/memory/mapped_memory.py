"""Access to the pages of a file in memory.

For small appends, it is several times as fast as calls of `write`.

If the disk is full, a write to a hole of a mapped file ends the process by the signal SIGBUS, so the disk blocks of a
page are allocated before. The first write to a page causes a page fault, which takes longer than the write itself: the
system prepares many pages in one call, and a thread the next ones while the caller appends.
"""

from __future__ import annotations

import errno
import mmap
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from rmqctl.errors import Unreadable
from rmqctl.scratch import TEMPORARY_HINT, temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from concurrent.futures import Future

    from rmqctl.logfile.system.writable_storage import WritableStorage

Key = TypeVar("Key")

OS_PAGE_SIZE = 4096
READY_AT_ONCE = 1024 * 1024  # bytes
READY_AHEAD = 16 * READY_AT_ONCE  # for the thread, which runs only every few ms if another thread is busy
CANNOT_ALLOCATE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class MappedMemory:
    """A mapping of the first `size` bytes of an open file into memory.

    Bytes before `ready` can be written without a page fault. Only one thread at a time may use it. Raises OSError.
    """

    def __init__(self, storage: WritableStorage, descriptor: int, size: int, position: int) -> None:
        self.mapping = storage.map(descriptor, size)
        self.ready = position // OS_PAGE_SIZE * OS_PAGE_SIZE
        self._storage = storage
        self._descriptor = descriptor
        self._size = size
        self._began_at = self.ready
        self._executor: ThreadPoolExecutor | None = None
        self._ahead: Future[int] | None = None

    def make_ready(self, end: int) -> bool:
        """Prepare the memory for writes up to `end`, and if possible 1 MiB further.

        Return False if the file system cannot allocate disk blocks.
        """
        self.settle()
        if end > self.ready and not self._make_ready_now(end):
            return False
        if (
            self.ready - self._began_at > 2 * READY_AT_ONCE and self.ready < self._size
        ):  # a thread is worth its cost only for many messages
            self._executor = self._executor or ThreadPoolExecutor(1, "populate")
            wanted = min(self.ready + READY_AHEAD, self._size)
            self._ahead = self._executor.submit(self._make_ready_soon, self.ready, wanted)
        return True

    def settle(self) -> None:
        """Wait until no thread prepares memory; call this before another kind of write.

        On a file system that cannot allocate disk blocks, the C library reads bytes and writes them again, and would
        undo a write in between.
        """
        if self._ahead is not None:
            self.ready = max(self.ready, self._ahead.result())
            self._ahead = None

    def pass_over(self, end: int) -> None:
        """Note that calls of `write` have filled the file up to `end`.

        The disk blocks of these bytes are allocated.
        """
        self.ready = max(self.ready, end // OS_PAGE_SIZE * OS_PAGE_SIZE)

    def close(self) -> None:
        """Unmap the memory."""
        if self._executor is not None:
            self._executor.shutdown(wait=True)
        self.mapping.close()

    def _make_ready_now(self, end: int) -> bool:
        for ahead in (READY_AT_ONCE, 0):
            wanted = min(-(-(end + ahead) // OS_PAGE_SIZE) * OS_PAGE_SIZE, self._size)
            try:
                self._prepare(self.ready, wanted)
            except OSError as error:
                if error.errno in CANNOT_ALLOCATE:
                    return False
                if not ahead or error.errno != errno.ENOSPC:
                    raise
                continue
            break
        self.ready = wanted
        return True

    def _make_ready_soon(self, start: int, wanted: int) -> int:
        """Prepare the pages of [start, wanted) in another thread; return the end.

        After an OSError, the pages are prepared only when they are needed.
        """
        try:
            self._prepare(start, wanted)
        except OSError:
            return start
        return wanted

    def _prepare(self, start: int, wanted: int) -> None:
        self._storage.allocate(self._descriptor, start, wanted - start)
        self._storage.populate(self._descriptor, self.mapping, start, wanted - start)


class Spool:
    """Collects bytes in a temporary file; `view` returns all bytes.

    Methods raise Unreadable, for example if the disk of temporary files is full.
    """

    def __init__(self) -> None:
        from tempfile import TemporaryFile  # noqa: TID251 -- in a folder that is given

        self._folder = temporary_folder()
        with self._naming_the_folder():
            self._file = TemporaryFile(dir=self._folder)  # noqa: SIM115 -- `view` and `close` close it
        self._size = 0

    def put(self, data: bytes | memoryview) -> slice:
        """Append bytes, and return the slice of the view that has these bytes."""
        begin = self._size
        with self._naming_the_folder():
            self._size += self._file.write(data)
        return slice(begin, self._size)

    def view(self) -> memoryview:
        """Return a view of all bytes, valid as long as it exists.

        Then no bytes can be appended.
        """
        with self._naming_the_folder():
            self._file.flush()
            found = mmap.mmap(self._file.fileno(), self._size, access=mmap.ACCESS_READ) if self._size else b""
            self.close()
        return memoryview(found)

    def gathered(self, portions: Mapping[Key, list[slice]]) -> dict[Key, memoryview]:
        """Return the bytes of each key, whose portions are slices of the view.

        Then no bytes can be appended.
        """
        view, whole = self.view(), Spool()
        parts = {key: [whole.put(view[part]) for part in of_key] for key, of_key in portions.items() if of_key}
        view = whole.view()
        return {key: view[of_key[0].start : of_key[-1].stop] for key, of_key in parts.items()}

    @contextmanager
    def _naming_the_folder(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = f"a temporary file cannot be written: {error.strerror}"
            raise Unreadable(what, path=self._folder, hint=TEMPORARY_HINT) from error

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):  # its last bytes find no room, and nobody needs them
            self._file.close()
