"""The scan of one commit log file, up to its blank or the zeros at its end.

A damage does not end the scan: it is yielded with the size of the damaged part, and the scan continues at the next
record with right lengths and the right PHYSICALOFFSET. With a ColumnReader, good messages come as `RecordRun`,
otherwise one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.format.message import BLANK_SIZE, Blank, Damage, Message
from rmqctl.logfile.record_reader import POINT_WINDOW_SIZE, RecordReader
from rmqctl.logfile.system.zeros import BLOCK_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqctl.logfile.column_reader import ColumnReader, Columns
    from rmqctl.logfile.mapped_file import MappedFile

    OnRun = Callable[[Columns], Any]

SECTOR_SIZE = 512


class ZeroTail(NamedTuple):
    """The zeros from the last item of a log file to the end of the file."""

    physical_offset: int  # of the first zero


class RecordRun(NamedTuple):
    """Good messages that follow each other without gaps."""

    physical_offset: int
    size: int  # bytes
    messages: int  # their number
    result: Any  # what the callback returned for their columns; None without a callback

    @property
    def end(self) -> int:
        """Return the physical offset of the byte after the last message."""
        return self.physical_offset + self.size


ScanItem = Message | Blank | Damage


class FileScan:
    """The scan of the items (messages, blanks, damages) of `file`.

    An item must begin at the byte position `position` of the file; during the scan, this attribute is the position of
    the next item. `ended` is True when the file has no more items.
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
        """Yield the items that begin before the position `stop`.

        Up to the `end_position` of the file, these are all.
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
    """Return the first position at which no item can begin; 0 for an empty file.

    The Damage `no-blank` can begin at the end of a file that ends without a blank.
    """
    return file.size + 1 if file.size else 0


def cuts(file: MappedFile, segment_size: int, begin: int = 0, stop: int | None = None) -> Iterator[tuple[int, int]]:
    """Cut the part [begin, stop) of a file into segments (start, stop).

    Without `stop`, the last segment ends at the `end_position` of the file.
    """
    end = end_position(file) if stop is None else min(stop, end_position(file))
    for start in range(begin, end, segment_size):
        behind = start + segment_size
        yield (start, end) if end - behind <= 1 else (start, behind)
        if end - behind <= 1:
            return


def next_readable(
    file: MappedFile, position: int, stop: int | None = None, *, reader: type[RecordReader] = RecordReader
) -> int | None:
    """Return the position of the next record or blank in [position, stop), or None.

    Where the file cannot be read, the search continues at the next sector (512 bytes). Each further read error makes it
    skip more of the file, up to 1 MiB.
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
    """Give a Damage without a size that of the damaged part."""
    at = reader.file.file_from_offset + position
    item = reader.at(position)
    if item is None:
        return ZeroTail(at) if reader.first_nonzero(position) is None else _behind_end(reader, position)
    if isinstance(item, Damage) and item.size == 0 and reader.file.size - position >= BLANK_SIZE:
        return item._replace(size=_damage_end(reader, position, item) - position)
    return item


def _damage_end(reader: RecordReader, position: int, damage: Damage) -> int:
    """Return the position in the file at which a damage ends.

    It ends at the next record. Without one, a damaged blank ends at the end of the file, other damage after the last
    non-zero byte, or where a possible TOTALSIZE ends if that is later. It ends at the end of the file if fewer than 8
    bytes would remain.
    """
    following = reader.next_record(position + 1)
    if following is not None:
        return following
    if damage.code == "bad-blank-size":
        return reader.file.size
    end = max(reader.file.data_end(position), position + reader.claimed_size(position), position + 1)
    return end if reader.file.size - end >= BLANK_SIZE else reader.file.size


def _behind_end(reader: RecordReader, position: int) -> Damage:
    """Return the damage for zeros that are followed by other data.

    It is a `hole` if a whole record follows, and `bytes-behind-end` otherwise.
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
