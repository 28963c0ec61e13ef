"""The scan of one commit log file, up to the file's blank or unused end.

Damage does not end the scan. A damage is an item whose size is the size of the damaged part. The scan continues at the
next record with right lengths and a PHYSICALOFFSET equal to the record's position. If a ColumnReader is given, good
messages are yielded in record runs. Without a ColumnReader, good messages are yielded one by one.
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
    """The rest of a file after its last item, if the rest has only zeros.

    `physical_offset` is the offset of the first byte of this rest.
    """

    physical_offset: int


class RecordRun(NamedTuple):
    """A record run, which is a series of good messages without gaps.

    `messages` is the number of messages. `result` is the value that the scan's callback returned for the columns of
    these messages. Without a callback, `result` is None.
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
    """The items of `file` from `position` on.

    `position` is a byte position in the file at which an item must begin. While items are read, `position` is always
    the position of the next item. `ended` is True when the file has no more items.
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

        If `stop` is `end_position` of the file, all items are yielded.
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
    """Return the position after the last position at which an item can begin.

    If a file ends without a blank, the missing blank is an item (Damage `no-blank`) that begins at the end of the file.
    The result is 0 for an empty file.
    """
    return file.size + 1 if file.size else 0


def cuts(file: MappedFile, segment_size: int) -> Iterator[tuple[int, int]]:
    """Yield the segments of a file as (start, stop), positions in the file."""
    end = end_position(file)
    for start in range(0, end, segment_size):
        behind = start + segment_size
        yield (start, end) if end - behind <= 1 else (start, behind)
        if end - behind <= 1:
            return


def next_readable(
    file: MappedFile, position: int, stop: int | None = None, *, reader: type[RecordReader] = RecordReader
) -> int | None:
    """Return the position of the next record or blank in [position, stop).

    Parts of the file that cannot be read are skipped. The first part that is skipped ends at the next sector (512
    bytes), and later parts are larger, up to 1 MiB. The result is None if no record or blank is found.
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
    """Return the item at `position`.

    If the item is a Damage without a size, the size is set to the size of the damaged part.
    """
    at = reader.file.file_from_offset + position
    item = reader.at(position)
    if item is None:
        return ZeroTail(at) if reader.first_nonzero(position) is None else _behind_end(reader, position)
    if isinstance(item, Damage) and item.size == 0 and reader.file.size - position >= BLANK_SIZE:
        return item._replace(size=_damage_end(reader, position, item) - position)
    return item


def _damage_end(reader: RecordReader, position: int, damage: Damage) -> int:
    """Return the position where a damage ends.

    A damage ends at the next record. If no record follows, a damaged blank ends at the end of the file. If no record
    follows any other damage, the damage ends at the later of two positions. The first position is the end that the
    damaged record's size gives. The second position is the position after the last byte that is not zero. If fewer than
    8 bytes of the file remain after the damage, these bytes also belong to the damage.
    """
    following = reader.next_record(position + 1)
    if following is not None:
        return following
    if damage.code == "bad-blank-size":
        return reader.file.size
    end = max(reader.file.data_end(position), position + reader.claimed_size(position), position + 1)
    return end if reader.file.size - end >= BLANK_SIZE else reader.file.size


def _behind_end(reader: RecordReader, position: int) -> Damage:
    """Return the damage at eight zero bytes if other data follows these bytes.

    The damage is a `hole` if a whole record follows in the file. Otherwise the damage is `bytes-behind-end`.
    """
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
