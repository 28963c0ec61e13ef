"""Write index files in a thread, while queues are rebuilt from the same messages.

The thread saves time, because the kernel that fills the index runs without Python's lock (GIL).
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from rmqctl.store.write.index_writer import IndexWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path

    from rmqctl.logfile.system.writable_storage import WritableStorage
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns
    from rmqctl.store.read.index.index_service import IndexFile

KEYS_PER_BATCH = 32 * 1024  # handing over a batch to the thread takes about 50 us
BATCHES_AHEAD = 4


class IndexBuilder:
    """Writes the index entries of messages in a thread.

    Messages must be added inside a `with` block of the IndexBuilder. Methods raise OSError. `put` may raise an error
    that belongs to an earlier call of `put`.
    """

    def __init__(self, storage: WritableStorage, folder: Path, slots: int, entries: int) -> None:
        self._writer = IndexWriter(storage, folder, slots, entries, made_at=made_at)
        self._waiting: list[DispatchColumns] = []
        self._keys_waiting = 0
        self._pending: deque[Future[None]] = deque()
        self._executor: ThreadPoolExecutor | None = None

    def __enter__(self) -> IndexBuilder:
        self._executor = ThreadPoolExecutor(1, "index")
        return self

    def __exit__(self, *_: object) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
            self._executor = None
        self._pending.clear()
        self._waiting, self._keys_waiting = [], 0

    def go_on_with(self, file: IndexFile) -> None:
        """Continue to fill an existing index file."""
        self._writer.go_on_with(file)

    def put(self, described: DispatchColumns) -> None:
        """Add index entries for the keys of messages. Messages must be in log order."""
        self._waiting.append(described)
        self._keys_waiting += len(described.hashes)
        if self._keys_waiting >= KEYS_PER_BATCH:
            self._hand_over()

    def flush_soon(self) -> None:
        """Begin to flush the index entries to disk, without waiting for the end."""
        self._hand_over()
        self._submit(self._writer.flush)

    def flush(self) -> None:
        """Write all index entries. Raises OSError."""
        self._hand_over()
        while self._pending:
            self._pending.popleft().result()
        self._writer.flush()

    def close(self) -> None:
        """Close the index file that is being filled."""
        self._writer.close()

    def _hand_over(self) -> None:
        if self._waiting:
            self._submit(partial(self._put, self._waiting))
            self._waiting, self._keys_waiting = [], 0

    def _submit(self, what: Callable[[], None]) -> None:
        if self._executor is None:
            raise ValueError("used outside its context")
        while len(self._pending) >= BATCHES_AHEAD:
            self._pending.popleft().result()
        self._pending.append(self._executor.submit(what))

    def _put(self, batch: list[DispatchColumns]) -> None:
        for described in batch:
            self._writer.put(described)


def made_at(store_timestamp: int) -> int:
    """Return a message's store time or the present time, whichever is earlier."""
    return min(max(store_timestamp, 0), time.time_ns() // 1_000_000)
