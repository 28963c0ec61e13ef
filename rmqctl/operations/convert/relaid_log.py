"""The records of a log in files of another size, or without DLedger's headers.

A record keeps all its bytes but PHYSICALOFFSET, PREPAREDTRANSACTIONOFFSET if it leads to another record, and
`__CRC32#`, which covers both. As in a broker, a blank fills what is left of a file if no record and blank fit. With
the same size and without headers, every record stays where it is.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.errors import BadRequest, NeedsRecovery
from rmqctl.format import crc
from rmqctl.format.message import BLANK_SIZE, HEADS, MAGIC_BLANK, PHYSICALOFFSET_OFFSET, Damage
from rmqctl.format.sys_flag import BORNHOST_V6, STOREHOST_V6, TRANSACTION_MASK
from rmqctl.store.config.store_path import COMMITLOG, Layout
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.file_scan import RecordRun

if TYPE_CHECKING:
    from rmqctl.format.columns import Numbers, Rows
    from rmqctl.logfile.system.writable_storage import WritableStorage
    from rmqctl.store.read.read_only_store import ReadOnlyStore

RUN_BYTES = 8 * 1024 * 1024
BEHIND_END = "bytes-behind-end"
_PREPARED = {flags: head.offset("PREPAREDTRANSACTIONOFFSET") for flags, head in HEADS.items()}


class RelaidLog:
    """The log of `source` in files of `file_size` bytes below `root`. Raises OSError."""

    def __init__(self, source: ReadOnlyStore, storage: WritableStorage, file_size: int) -> None:
        log = source.commit_log
        self._source = source
        self._storage = storage
        self.file_size = file_size
        self.stays = source.path.layout is not Layout.DLEDGER and file_size == log.queue.file_size
        # rounded up, so that units of expired messages still lead before the log
        self.begin = log.min_offset if self.stays else -(-log.min_offset // file_size) * file_size
        self.end = self.begin
        self.messages = self.moved = 0
        self.last_ms = 0  # store time of the last record
        self._starts, self._shifts = array("q"), array("q")  # from a source offset on, how far records moved
        self._source_end = 0  # of the records that were put
        self._descriptor: int | None = None
        self._room_end = self.begin

    @property
    def files(self) -> int:
        """Return the number of log files."""
        return (self._room_end - self.begin) // self.file_size

    def write(self, threads: int) -> None:
        """Write all files. Raises NeedsRecovery if the log of the source is damaged."""
        builder = DispatchRequestBuilder(with_keys=False)
        for item in builder.scan(self._source.commit_log, threads=threads):
            if isinstance(item, RecordRun):
                self._put_all(item.result.messages)
            elif isinstance(item, Damage) and item.code != BEHIND_END:
                raise _damaged(item)
        self._close_file()

    def shifted(self, offsets: Numbers) -> Numbers:
        """Return where records of the source are now; what lies before its log stays."""
        starts, shifts = np.frombuffer(self._starts, np.int64), np.frombuffer(self._shifts, np.int64)
        if not len(starts):
            return offsets
        at = np.searchsorted(starts, offsets, "right") - 1
        return np.where((at >= 0) & (offsets < self._source_end), offsets + shifts[at], offsets)

    def _put_all(self, rows: Rows) -> None:
        offsets, sizes, done = rows["physical_offset"].astype(np.int64), rows["size"].astype(np.int64), 0
        follows = np.append(offsets[1:] == offsets[:-1] + sizes[:-1], False)  # the next one, without a gap
        while done < len(rows):
            room = self._room_end - self.end - BLANK_SIZE
            stop = done + int(np.argmin(follows[done:])) + 1
            fitting = np.searchsorted(np.cumsum(sizes[done:stop]), min(room, max(RUN_BYTES, sizes[done])), "right")
            if not fitting or (self.stays and offsets[done] != self.end):
                self._next_file(int(offsets[done]), int(sizes[done]))
                continue
            self._put(rows[done : done + int(fitting)], offsets[done : done + int(fitting)])
            done += int(fitting)

    def _put(self, rows: Rows, offsets: Numbers) -> None:
        begin, size = int(offsets[0]), int(rows["size"].sum())
        file = self._source.commit_log.queue.find(begin)
        if file is None or self._descriptor is None:
            raise ValueError(f"no file at {begin}")
        raw = bytearray(file.read_exact(begin - file.file_from_offset, size))
        shift = self.end - begin
        if not self._starts or self._shifts[-1] != shift:
            self._starts.append(begin)
            self._shifts.append(shift)
        self._source_end = begin + size
        if shift:
            self._move(raw, rows, offsets - begin, offsets + shift)
            self.moved += len(rows)
        self._storage.write(self._descriptor, self.end % self.file_size, raw)
        self.end += size
        self.messages += len(rows)
        self.last_ms = max(self.last_ms, int(rows["store_timestamp"].max()))

    def _move(self, raw: bytearray, rows: Rows, places: Numbers, offsets: Numbers) -> None:
        buffer = np.frombuffer(raw, np.uint8)
        fields = places[:, None] + np.arange(PHYSICALOFFSET_OFFSET, PHYSICALOFFSET_OFFSET + 8)
        buffer[fields] = offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
        tails = (places + rows["size"] - crc.PROPERTY_CRC_SIZE)[:, None] + np.arange(len(crc.PROPERTY_CRC_NAME))
        has_crc = (buffer[tails] == np.frombuffer(crc.PROPERTY_CRC_NAME, np.uint8)).all(axis=1)
        others = np.flatnonzero(has_crc | (rows["sys_flag"] & TRANSACTION_MASK != 0))
        columns = places[others], rows["size"][others], rows["sys_flag"][others]
        for place, size, flag in zip(*(column.tolist() for column in columns), strict=True):
            if flag & TRANSACTION_MASK:
                at = place + _PREPARED[flag & (BORNHOST_V6 | STOREHOST_V6)]
                prepared = np.array([int.from_bytes(raw[at : at + 8], signed=True)])
                raw[at : at + 8] = int(self.shifted(prepared)[0]).to_bytes(8, signed=True)
            covered = place + size - crc.PROPERTY_CRC_SIZE
            if raw.startswith(crc.PROPERTY_CRC_NAME, covered):
                raw[covered : place + size] = crc.property_crc(crc.masked_crc32(bytes(raw[place:covered])))

    def _next_file(self, offset: int, size: int) -> None:
        if size + BLANK_SIZE > self.file_size:
            what = f"a message of {size} bytes does not fit into a log file of {self.file_size}"
            raise BadRequest(what, path=self._source.commit_log.path_of(offset), offset=offset)
        if self._descriptor is not None:
            blank = (self._room_end - self.end).to_bytes(4) + MAGIC_BLANK.to_bytes(4)
            self._storage.write(self._descriptor, self.end % self.file_size, blank)
        self._close_file()
        self.end = self._room_end
        self._room_end += self.file_size
        path = self._storage.root / COMMITLOG / f"{self.end:020d}"
        self._descriptor = self._storage.create(path, self.file_size)

    def _close_file(self) -> None:
        if self._descriptor is not None:
            self._storage.set_modified(self._descriptor, self.last_ms)  # expiry goes by it
            self._storage.close(self._descriptor)
            self._descriptor = None


def _damaged(damage: Damage) -> NeedsRecovery:
    what = f"{damage.code}: {damage.detail}; a damaged log is not written anew"
    hint = "first `rmqctl recover` a copy of the store, or `heal` it"
    return NeedsRecovery(what, path=damage.path, offset=damage.physical_offset, hint=hint)
