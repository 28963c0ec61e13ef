"""Write index files in a thread, while queues are rebuilt from the same messages.

This saves time, because the kernel that fills the index runs without Python's lock (GIL).
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Self

import msgspec
import numpy as np

from rmqctl.store.dispatch.dispatch_requests import NotPassed

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from rmqctl.format.columns import Rows
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns
    from rmqctl.store.write.index_writer import IndexWriter

KEYS_PER_BATCH = 32 * 1024  # handing over a batch to the thread takes about 50 us
BATCHES_AHEAD = 4


class IndexCounts(msgspec.Struct):
    """The number of index entries, and two end timestamps of index files (ms)."""

    entries: int = 0
    full_until: int = 0  # of the last full index file, or 0
    end_timestamp: int = 0  # of the last index file

    def add(self, messages: Rows, in_a_file: int) -> None:
        """Count the entries of messages; a full file has `in_a_file` entries."""
        counts, before = messages["hashes_count"], self.entries
        self.entries += int(counts.sum())
        if self.entries == before:
            return
        full = (self.entries - 1) // in_a_file * in_a_file
        if 0 < full == before:
            self.full_until = self.end_timestamp
        elif full > before:
            self.full_until = int(messages["store_timestamp"][np.searchsorted(before + np.cumsum(counts), full)])
        last = len(messages) - 1 if counts[-1] else np.flatnonzero(counts)[-1]
        self.end_timestamp = int(messages["store_timestamp"][last])


class IndexBuilder:
    """Counts the index entries of messages, and lets `writer` write them in a thread.

    Without a `writer`, entries are only counted. A full index file has `in_a_file` entries. Add messages inside a
    `with` block. Methods raise OSError; that of `put` may belong to an earlier `put`.
    """

    def __init__(self, writer: IndexWriter | None, counts: IndexCounts, in_a_file: int) -> None:
        self.counts = counts
        self.writer = writer
        self._in_a_file = in_a_file
        self._not_passed = NotPassed()
        self._waiting: list[DispatchColumns] = []
        self._keys_waiting = 0
        self._pending: deque[Future[None]] = deque()
        self._executor = ThreadPoolExecutor(1, "index")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)

    def put(self, described: DispatchColumns) -> None:
        """Add index entries for the keys of messages, in log order."""
        described = self._not_passed.take(described)
        if len(described.messages):
            self.counts.add(described.messages, self._in_a_file)
        if self.writer is not None and len(described.hashes):
            self._waiting.append(described)
            self._keys_waiting += len(described.hashes)
            if self._keys_waiting >= KEYS_PER_BATCH:
                self._hand_over()

    def flush_soon(self) -> None:
        """Begin to flush all index entries to disk, without waiting for the end."""
        self._hand_over()
        if self.writer is not None:
            self._submit(self.writer.flush)

    def wait(self) -> None:
        """Wait for what `flush_soon` began."""
        while self._pending:
            self._pending.popleft().result()

    def close(self) -> None:
        """Close the index file that is being filled."""
        if self.writer is not None:
            self.writer.close()

    def _hand_over(self) -> None:
        if self._waiting and self.writer is not None:
            self._submit(partial(_put_all, self.writer, self._waiting))
        self._waiting, self._keys_waiting = [], 0

    def _submit(self, what: Callable[[], None]) -> None:
        while len(self._pending) >= BATCHES_AHEAD:
            self._pending.popleft().result()
        self._pending.append(self._executor.submit(what))


def _put_all(writer: IndexWriter, batch: list[DispatchColumns]) -> None:
    for described in batch:
        writer.put(described)
