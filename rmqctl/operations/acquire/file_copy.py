"""Copy one file and hash it, in one read.

Two threads hash what was read, one for the file and one for the range of 1 MiB, while the next ranges are read.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from errno import EFBIG
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from rmqctl.operations.acquire.bag import CHUNK, ZEROS
from rmqctl.store.config.store_path import INDEX, LOCK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rmqctl.logfile.system.storage import Storage
    from rmqctl.logfile.system.writable_storage import WritableStorage

BUFFERS, PROGRESS_CHUNKS = 4, 16
SIZE_MAX = 2**42  # bytes; a hole of 2^60 bytes costs its maker nothing
INDEX_PUT_S = 0.05  # a writer counts an entry of the index after it has led a slot to it: then a second look shows it
SECTOR = 4096  # bytes that are left out where a disk cannot read
_NOTHING = memoryview(bytes(CHUNK))
Ranges = list[list[int]]  # [begin, end) in bytes


class FileCopier:
    """Copies files from `source` to `target`, one after the other.

    `rate` limits the bytes that are read in a second; 0 means no limit. `advance` is called with numbers of bytes. A
    broker writes through mappings, which can leave the modification time as it is: beside one, the last data of a file
    is read twice.
    """

    def __init__(self, source: Storage, target: WritableStorage, rate: int, advance: Callable[[int], None]) -> None:
        self.source, self.target = source, target
        self._rate, self._advance = rate, advance
        self._is_live = any(source.lock_holder(folder / LOCK) is not None for folder in source.named)
        self._pools = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self._buffers = [memoryview(bytearray(CHUNK)) for _ in range(BUFFERS)]
        self._in, self._out = -1, -1
        self._holes: Ranges = []
        self._unreadable: Ranges = []

    def open(self, path: Path) -> dict[str, Any]:
        """Open the file that `copy` then copies, and return its details.

        Raises OSError if it cannot be read.
        """
        self._in = self.source.open(path)
        details = self.source.details(self._in)
        if details["size"] > SIZE_MAX:
            self.source.close(self._in)
            raise OSError(EFBIG, "larger than any file of a broker, and not copied", str(path))
        return details

    def copy(self, to: Path, before: dict[str, Any]) -> dict[str, Any]:
        """Copy the open file; holes stay holes. Return the keys of its line in the list.

        `before` is what `open` returned. Raises OSError if `to` cannot be written.
        """
        self._holes, self._unreadable = [], []
        try:
            self._out = self.target.make_file(to)
            try:
                self.target.resize(self._out, before["size"])
                digest, chunks = self._copy_chunks(before["size"])
            finally:
                self.target.close(self._out)
            if self._is_live and to.parent.name == INDEX:
                time.sleep(INDEX_PUT_S)
            after = self.source.details(self._in)
            has_changed = any(before[key] != after[key] for key in ("size", "mtime")) or (
                self._is_live and not self._unreadable and self._has_grown(chunks)
            )
        finally:
            self.source.close(self._in)
        found = {"holes": self._holes, "unreadable": self._unreadable, "sha256": digest, "chunks": chunks}
        return before | {"after": after, "changed": has_changed} | found

    def _copy_chunks(self, size: int) -> tuple[str, list[str]]:
        whole, chunks = sha256(), list[str]()
        digests: deque[Future[str]] = deque()
        for number, position in enumerate(range(0, size, CHUNK)):
            if len(digests) == len(self._buffers):
                chunks.append(digests.popleft().result())
            if not number % PROGRESS_CHUNKS:
                self._advance(min(size - position, PROGRESS_CHUNKS * CHUNK))
            chunk = self._buffers[number % len(self._buffers)][: size - position]
            has_data = self._read_chunk(position, chunk)
            if size <= CHUNK:  # threads would take longer
                whole.update(chunk)
                return whole.hexdigest(), [whole.hexdigest()]
            of_file = self._pools[0].submit(whole.update, chunk)
            digests.append(self._pools[1].submit(_digest, chunk, of_file, has_data=has_data))
        chunks += [digest.result() for digest in digests]
        return whole.hexdigest(), chunks

    def _read_chunk(self, position: int, chunk: memoryview) -> bool:
        """Fill a chunk, and copy its data. Return whether it has data."""
        began, at, end, has_data = time.monotonic(), position, position + len(chunk), False
        while at < end:
            data, hole = self._extent(at, end)
            self._zero(at, data, chunk, position, self._holes)
            has_data = has_data or data < end
            self._read_data(data, hole, chunk, position)
            at = hole
        if self._rate and has_data:
            time.sleep(max(began + len(chunk) / self._rate - time.monotonic(), 0))
        return has_data

    def _extent(self, at: int, end: int) -> tuple[int, int]:
        """Return where the next data in [at, end) begins, and where a hole follows."""
        try:
            data = self.source.next_data(self._in, at)
            hole = end if data is None or data >= end else min(self.source.next_hole(self._in, data), end)
        except OSError:
            return at, end  # the read says what is wrong
        if data is None or hole <= data:  # the last: the file was cut meanwhile
            return end, end
        return data, hole

    def _read_data(self, at: int, end: int, chunk: memoryview, position: int) -> None:
        while at < end:
            part = chunk[at - position : end - position]
            try:
                count = self.source.read_into(self._in, at, part)
            except OSError:
                bad = min(at - at % SECTOR + SECTOR, end)
                self._zero(at, bad, chunk, position, self._unreadable)
                at = bad
                continue
            if not count:
                self._zero(at, end, chunk, position, self._holes)
                return
            self.target.write(self._out, at, part[:count])
            at += count

    @staticmethod
    def _zero(begin: int, end: int, chunk: memoryview, position: int, ranges: Ranges) -> None:
        if begin == end:
            return
        chunk[begin - position : end - position] = _NOTHING[: end - begin]
        if ranges and ranges[-1][1] == begin:
            ranges[-1][1] = end
        else:
            ranges.append([begin, end])

    def _has_grown(self, chunks: list[str]) -> bool:
        """Read the head and the last data of a file again, and what follows it."""
        last = max((number for number, digest in enumerate(chunks) if digest != ZEROS), default=0)
        numbers = {0, last, last + 1} & set(range(len(chunks)))
        try:
            again = {number: self.source.read(self._in, number * CHUNK, CHUNK) for number in numbers}
        except OSError:
            return True
        return any(sha256(data).hexdigest() != chunks[number] for number, data in again.items())


def _digest(chunk: memoryview, of_file: Future[None], *, has_data: bool) -> str:
    """Return the SHA-256 of a chunk, when that of the file has it, too.

    Then its buffer is free.
    """
    digest = ZEROS if not has_data and len(chunk) == CHUNK else sha256(chunk).hexdigest()
    of_file.result()
    return digest
