"""Cut a master's log into whole, checked records while the log arrives.

A transfer may end at any byte: an incomplete record is kept in memory until its rest arrives. Size, magic code,
PHYSICALOFFSET, lengths and checksums of each record are checked, by the rules in `rmqctl.format.message`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.format.message import (
    BLANK_SIZE,
    MAGIC_BLANK,
    MAGIC_OFFSET,
    MAGIC_V1,
    MAGIC_V2,
    MIN_SIZE,
    PHYSICALOFFSET_OFFSET,
    Blank,
    Damage,
    Message,
    decode,
)
from rmqctl.kernels import scan
from rmqctl.logfile.column_reader import Columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.columns import Bytes

CAPACITY = 8 * 1024 * 1024
RECORD_SIZE_MAX = 64 * 1024 * 1024  # bytes; a broker stores at most maxMessageSize, 4 MiB unless it is set
ROWS_MAX = 65_536
_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK))


class ReceivedPart(NamedTuple):
    """A complete part of the received log, within one log file."""

    offset: int
    data: memoryview  # overwritten when more bytes are added to the log
    item: Columns | Message | Blank | Damage  # Columns have good messages

    @property
    def messages(self) -> int:
        """Return the number of good messages."""
        return len(self.item.rows) if isinstance(self.item, Columns) else int(isinstance(self.item, Message))


class ReceivedLog:
    """The log that a master sends, from the physical offset `offset` on.

    A record must begin there; after `parts` has returned a part, `offset` is the end of the part. Log files have
    `file_size` bytes. Findings show `name` as their path. After damage, `parts` ends, or if `lenient` continues at the
    next record.
    """

    def __init__(self, offset: int, file_size: int, name: str = "", *, lenient: bool = False) -> None:
        self.offset = offset
        self._file_size = file_size
        self._name = name
        self._lenient = lenient
        self._buffer = np.empty(2 * CAPACITY, np.uint8)
        self._rows = np.empty(ROWS_MAX, scan.RECORD_COLUMNS)
        self._start = self._end = 0

    @property
    def waiting(self) -> int:
        """Return how many bytes have arrived after `offset`."""
        return self._end - self._start

    def add(self, body: memoryview) -> None:
        """Add the next bytes of the log."""
        if self._end + len(body) > len(self._buffer):
            self._move_to(np.empty(2 * (self.waiting + len(body)), np.uint8))
        self._buffer.data[self._end : self._end + len(body)] = body
        self._end += len(body)

    def parts(self) -> Iterator[ReceivedPart]:
        """Yield the parts that have arrived completely, in order."""
        while (part := self._next()) is not None:
            self._start += len(part.data)
            self.offset += len(part.data)
            yield part
            if isinstance(part.item, Damage) and not self._lenient:
                return
        is_large = len(self._buffer) > 2 * CAPACITY and self.waiting < CAPACITY
        if is_large or self._start:
            self._move_to(np.empty(2 * CAPACITY, np.uint8) if is_large else self._buffer)

    def _move_to(self, target: Bytes) -> None:
        target[: self.waiting] = self._buffer[self._start : self._end].copy()
        self._start, self._end, self._buffer = 0, self.waiting, target

    def rest(self) -> Damage | None:
        """Return the incomplete record at the log's end as damage; None if there is none."""
        if not self.waiting:
            return None
        return Damage("bad-size", self.offset, self.waiting, "the log ends inside this record", path=self._name)

    @property
    def _room(self) -> int:
        return self._file_size - self.offset % self._file_size

    def _next(self) -> ReceivedPart | None:
        available, room = min(self.waiting, self._room), self._room
        here = self._buffer[self._start : self._start + available]
        rows = self._rows[: scan.walk(here, self.offset, room, self._rows, check_bodies=True)]
        if len(rows):
            size = int(rows[-1]["position"]) + int(rows[-1]["size"])
            return ReceivedPart(self.offset, here[:size].data, Columns(self.offset, size, rows, here, self._name))
        return self._item(here, room)

    def _item(self, here: Bytes, room: int) -> ReceivedPart | None:
        """Return the first item in `here`; None if the item is incomplete."""
        if len(here) < min(BLANK_SIZE, room) or not len(here):
            return None
        data = here.data
        size, magic = int.from_bytes(data[:4], "big", signed=True), int.from_bytes(data[4:8], "big")
        is_record = magic in (MAGIC_V1, MAGIC_V2) and MIN_SIZE <= size <= min(room, RECORD_SIZE_MAX)
        is_blank = magic == MAGIC_BLANK and size == room
        if len(here) < (size if is_record or is_blank else 0):
            return None
        if magic in (MAGIC_V1, MAGIC_V2) and not is_record:
            what = f"the record has a size of {size}; {MIN_SIZE} to {min(room, RECORD_SIZE_MAX)} bytes are possible"
            return self._damaged(Damage("bad-size", self.offset, 0, what))
        item = decode(data, 0, self.offset, room) or Damage("hole", self.offset, 0, "zeros in place of a record")
        if isinstance(item, Damage):
            return self._damaged(item)
        return ReceivedPart(self.offset, data[: item.size], item)

    def _damaged(self, damage: Damage) -> ReceivedPart | None:
        """Return None if more bytes are needed."""
        here = self._buffer[self._start : self._start + min(self.waiting, self._room)].data
        size = damage.size or (self._size_of_damage(bytes(here)) if self._lenient else len(here))
        if not size:
            return None
        return ReceivedPart(self.offset, here[:size], damage._replace(size=size, path=self._name))

    def _size_of_damage(self, here: bytes) -> int:
        """Return the size of the damage in bytes; 0 if more bytes are needed."""
        found = [begin for magic in _MAGICS if (begin := self._next_start(here, magic)) is not None]
        if found:
            return min(found)
        if len(here) == self._room:
            return len(here)
        return len(here) - MIN_SIZE if len(here) > CAPACITY else 0

    def _next_start(self, here: bytes, magic: bytes) -> int | None:
        at = here.find(magic, MAGIC_OFFSET + 1)
        while at >= 0:
            begin = at - MAGIC_OFFSET
            size = int.from_bytes(here[begin:at], "big", signed=True)
            place = int.from_bytes(here[begin + PHYSICALOFFSET_OFFSET :][:8], "big")
            is_blank = magic == _MAGICS[-1] and size == self._room - begin
            if is_blank or (size >= MIN_SIZE and place == self.offset + begin):
                return begin
            at = here.find(magic, at + 1)
        return None
