"""The next files of a queue, which a thread creates in advance.

So an append does not wait for the file system, as with RocketMQ's AllocateMappedFileService. Each request gives the
paths of the requested file and of the next one. When the service stops, it deletes the files that nobody requested;
after a crash they remain, and contain only zeros.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from rmqctl.logfile.memory.transient_store_pool import TransientStorePool
from rmqctl.logfile.writable_mapped_file import WritableMappedFile

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.logfile.system.writable_storage import WritableStorage

WAIT_SECONDS = 5.0


class AllocateMappedFileService:
    """Creates the files of a queue in a separate thread.

    With `warm`, it also allocates the disk blocks of each file.
    """

    def __init__(self, storage: WritableStorage, *, pool: TransientStorePool | None = None, warm: bool = False) -> None:
        self._storage = storage
        self._pool = pool
        self._warm = warm
        self._made: dict[Path, Future[WritableMappedFile]] = {}
        self._lock = threading.Lock()
        self._executor = ThreadPoolExecutor(1, "AllocateMappedFileService")

    def take(self, path: Path, following: Path | None, file_from_offset: int, size: int) -> WritableMappedFile:
        """Return the file at `path`, and start to create the file at `following`.

        Raises OSError, for example if the file is not ready after 5 s.
        """
        with self._lock:
            future = self._made.pop(path, None)
            if future is None or _has_failed(future):  # the disk may have room now
                future = self._begin(path, file_from_offset, size)
        try:
            file = future.result(WAIT_SECONDS)
        except TimeoutError as error:
            with self._lock:
                self._made[path] = future
            raise OSError(0, f"no new file within {WAIT_SECONDS:.0f} s", str(path)) from error
        with self._lock:  # only now, so that a crash leaves no later file without this file
            if following is not None and following not in self._made:
                self._made[following] = self._begin(following, file_from_offset + size, size)
        return file

    def shutdown(self) -> None:
        """Stop the service, and delete the files that nobody requested."""
        self._executor.shutdown(wait=True)
        for future in self._made.values():
            if future.exception() is None:
                future.result().destroy()
        self._made.clear()

    def _begin(self, path: Path, file_from_offset: int, size: int) -> Future[WritableMappedFile]:
        return self._executor.submit(self._make, path, file_from_offset, size)

    def _make(self, path: Path, file_from_offset: int, size: int) -> WritableMappedFile:
        descriptor = self._storage.create(path, size)
        file = WritableMappedFile(
            self._storage, path, file_from_offset, size, pool=self._pool, descriptor=descriptor, mapped=True
        )
        if self._warm:
            file.warm_up()
        return file


def _has_failed(future: Future[WritableMappedFile]) -> bool:
    return future.done() and future.exception() is not None
