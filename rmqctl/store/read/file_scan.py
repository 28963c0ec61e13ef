"""One commit log file, item by item, up to its blank or its unused end.

Damage does not end the scan: its item says how far it reaches, and the next record whose frame is whole and in its own
place follows. Runs of good messages come in columns where a ColumnReader is given, otherwise one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.format.message import BLANK_SIZE, Blank, Damage, Message
from rmqctl.logfile.mapped_file import BLOCK_SIZE
from rmqctl.logfile.record_reader import POINT_WINDOW_SIZE, RecordReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqctl.logfile.column_reader import ColumnReader, Columns
    from rmqctl.logfile.mapped_file import MappedFile

    OnRun = Callable[[Columns], Any]

SECTOR_SIZE = 512


class ZeroTail(NamedTuple):
    """The rest of a file, which has only zeros."""

    physical_offset: int


class RecordRun(NamedTuple):
    """A run of good messages, `messages` of them.

    `result` is what the scan's callback made of their columns.
    """

    physical_offset: int
    size: int
    messages: int
    result: Any

    @property
    def end(self) -> int:
        """Return the physical offset of the byte after the last message."""
        return self.physical_offset + self.size


ScanItem = Message | Blank | Damage


class FileScan:
    """The items of `file` from `position` on, where an item must begin.

    `ended` once the file has no more.
    """

    def __init__(
        self,
        file: MappedFile,
        position: int,
        columns: ColumnReader | None = None,
        take: OnRun | None = None,
        *,
        reader: type[RecordReader] = RecordReader,
    ) -> None:
        self.position = position
        self.ended = False
        self._file = file
        self._reader = reader(file)
        self._columns = columns
        self._take = take

    def items(self, stop: int) -> Iterator[ScanItem | RecordRun | ZeroTail]:
        """Yield the items that begin before `stop`, a position in the file.

        Pass `end_position` to get all items.
        """
        while not self.ended and self.position < min(stop, end_position(self._file)):
            item = self._record_run(stop) or self._item()
            if isinstance(item, ZeroTail):
                self.ended = True
            else:
                self.position = item.end - self._file.file_from_offset
                cut_off = isinstance(item, Damage) and self._file.size - self.position < BLANK_SIZE
                self.ended = isinstance(item, Blank) or cut_off
            yield item
        self.ended = self.ended or self.position >= end_position(self._file)

    def _item(self) -> ScanItem | ZeroTail:
        try:
            return _next_item(self._reader, self.position)
        except OSError as error:
            return _unreadable_here(self._reader, self.position, error)

    def _record_run(self, stop: int) -> RecordRun | None:
        found = self._columns.at(self._file, self.position, stop) if self._columns else None
        if found is None:
            return None
        return RecordRun(found.physical_offset, found.size, len(found.rows), self._take(found) if self._take else None)


def end_position(file: MappedFile) -> int:
    """Return the position after the last place where an item can begin.

    At the file's very end an item can begin, since a blank must come before it.
    """
    return file.size + 1 if file.size else 0


def next_readable(
    file: MappedFile, position: int, stop: int | None = None, *, reader: type[RecordReader] = RecordReader
) -> int | None:
    """Return the next record in [position, stop).

    Skips what cannot be read, first by sectors, then in growing steps.
    """
    step = SECTOR_SIZE
    limit = file.size if stop is None else min(stop, file.size)
    while position < limit:
        try:
            return reader(file, POINT_WINDOW_SIZE).next_record(position, limit)
        except OSError:
            position = (position // step + 1) * step
            step = min(step * 2, BLOCK_SIZE)
    return None


def _next_item(reader: RecordReader, position: int) -> ScanItem | ZeroTail:
    """Return the item at `position`, a damage with its extent."""
    at = reader.file.file_from_offset + position
    item = reader.at(position)
    if item is None:
        return ZeroTail(at) if reader.first_nonzero(position) is None else _behind_end(reader, position)
    if isinstance(item, Damage) and item.size == 0 and reader.file.size - position >= BLANK_SIZE:
        return item._replace(size=_damage_end(reader, position, item) - position)
    return item


def _damage_end(reader: RecordReader, position: int, damage: Damage) -> int:
    """Return where a damage ends: at the next record.

    Without a next record, it ends after the size that the record claims, or after the last byte written.
    """
    following = reader.next_record(position + 1)
    if following is not None:
        return following
    if damage.code == "bad-blank-size":
        return reader.file.size
    end = max(reader.file.data_end(position), position + reader.claimed_size(position), position + 1)
    return end if reader.file.size - end >= BLANK_SIZE else reader.file.size


def _behind_end(reader: RecordReader, position: int) -> Damage:
    """Return the damage at a place with eight zero bytes and data after them."""
    at = reader.file.file_from_offset + position
    following = reader.next_record(position)
    if following is not None:
        detail = f"{following - position} bytes hold no record, but whole records follow; a broker ends the log here"
        return Damage("hole", at, following - position, detail)
    size = reader.file.data_end(position) - position
    return Damage("bytes-behind-end", at, size, "the log ends here, but the bytes after are not all zero")


def _unreadable_here(reader: RecordReader, position: int, error: OSError) -> Damage:
    file = reader.file
    behind = next_readable(file, position + 1, reader=type(reader))
    end = file.size if behind is None else behind
    at = file.file_from_offset + position
    return Damage("unreadable", at, end - position, f"cannot be read: {error.strerror}", path=file.name)
