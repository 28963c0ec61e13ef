"""Read the records in one file of DLedger's log, each after a header of 48 bytes.

The reader normally begins at a header, checks it, and returns the record. It can also begin at the record, because
queue units and message ids point there. Of a damaged header before a whole record, it returns two items: the damaged
header, and then the message.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from rmqctl.format.message import BLANK_SIZE, MAGIC_V1, MAGIC_V2, Blank, Damage, Message
from rmqctl.logfile.record_reader import WINDOW_SIZE, RecordReader, is_framed
from rmqctl.store.dledger.dledger_entry import ENTRY_HEADER, MAGIC_ENTRY_BLANK, EntryHeader, decode_entry_header

if TYPE_CHECKING:
    from rmqctl.logfile.mapped_file import MappedFile

_PREFIX = struct.Struct(">ii")
_MAGIC = struct.Struct(">4xI")


class EntryReader(RecordReader):
    """Decodes the records that follow the headers of DLedger's entries.

    All methods raise OSError if the file cannot be read.
    """

    def __init__(self, file: MappedFile, window_size: int = WINDOW_SIZE) -> None:
        super().__init__(file, window_size)
        self._following: tuple[int, frozenset[int], int] | None = (
            None  # position of the next entry, the index it may have, its least term
        )

    def at(self, position: int) -> Message | Blank | Damage | None:
        """Return the record of the entry at `position`, where the entry or record begins.

        If the header of the entry is wrong, this is Damage `bad-entry`.
        """
        room = self.file.size - position
        if room < BLANK_SIZE:
            return super().at(position)
        at = self._load(position, BLANK_SIZE)
        first, second = _PREFIX.unpack_from(self._window, at)
        if _MAGIC.unpack_from(self._window, at)[0] in (MAGIC_V1, MAGIC_V2):
            return super().at(position)
        if first == MAGIC_ENTRY_BLANK:
            return self._blank(position, second)
        if (first, second) == (0, 0) and not self._has_record(position + ENTRY_HEADER.size):
            return None
        return self._entry(position)

    def next_record(self, position: int, stop: int | None = None) -> int | None:
        """Return the next position in [position, stop) where an item begins, or None.

        An item is a whole entry, a whole record without its header, or the blank.
        """
        stop = self.file.size if stop is None else stop
        found = super().next_record(position, min(stop + ENTRY_HEADER.size, self.file.size))
        if found is None:
            found = self._blank_behind(position)
        elif found - ENTRY_HEADER.size >= position and not self._problem(found - ENTRY_HEADER.size):
            found -= ENTRY_HEADER.size
        return found if found is not None and found < stop else None

    def _entry(self, position: int) -> Message | Blank | Damage:
        physical_offset = self.file.file_from_offset + position
        record_at = position + ENTRY_HEADER.size
        problem = self._problem(position)
        if not problem:
            header = self._header(position)
            problem = self._sequence_problem(position, header)
        if not problem:
            item = super().at(record_at)
            if not is_framed(item):
                return _sized(item, physical_offset + ENTRY_HEADER.size, header.body_size)
            if isinstance(item, Message | Damage) and item.size == header.body_size:
                return item
            problem = f"bodySize is {header.body_size}, the record after it has another size"
        size = ENTRY_HEADER.size if self._has_record(record_at) else 0
        return Damage("bad-entry", physical_offset, size, f"the header of DLedger's entry is damaged: {problem}")

    def _header(self, position: int) -> EntryHeader:
        return decode_entry_header(self._window, self._load(position, ENTRY_HEADER.size))

    def _problem(self, position: int) -> str:
        """Return the fault of the header alone, without the previous entry, or ""."""
        room = self.file.size - position
        if room < ENTRY_HEADER.size:
            return f"{room} bytes are left in the file, a header has {ENTRY_HEADER.size}"
        return self._header(position).problem(self.file.file_from_offset + position, room)

    def _sequence_problem(self, position: int, header: EntryHeader) -> str:
        """Return the fault of an entry's index or term; empty if both are right.

        If the previous entry is unknown, only a negative index or term is a fault. After a wrong index, two indexes are
        accepted: the wrong index plus 1, and the expected index plus 1.
        """
        following, indexes, term = self._following or (-1, frozenset[int](), 0)
        is_next = following == position
        expected = indexes if is_next else frozenset([header.entry_index])
        self._following = (
            position + header.size,
            frozenset(index + 1 for index in {*expected, header.entry_index}),
            header.term,
        )
        if is_next and header.entry_index not in expected:
            return f"index is {header.entry_index}, the one before says {min(expected)}"
        if is_next and header.term < term:
            return f"term is {header.term}, the one before has {term}"
        if header.entry_index < 0 or header.term < 0:
            return f"index is {header.entry_index}, term {header.term}"
        return ""

    def _has_record(self, position: int) -> bool:
        if self.file.size - position < BLANK_SIZE:
            return False
        magic = _MAGIC.unpack_from(self._window, self._load(position, BLANK_SIZE))[0]
        return magic in (MAGIC_V1, MAGIC_V2) and is_framed(super().at(position))

    def _blank(self, position: int, size: int) -> Blank | Damage:
        physical_offset, room = self.file.file_from_offset + position, self.file.size - position
        if size == room:
            return Blank(physical_offset, room)
        return Damage("bad-blank-size", physical_offset, 0, f"the blank says {size} bytes, {room} are left in the file")

    def _blank_behind(self, position: int) -> int | None:
        """Return where the blank that ends the file is, from `position` on, or None.

        After it, all bytes must be zeros.
        """
        end = self.file.data_end(position)
        for start in range(max(position, end - BLANK_SIZE), end):
            room = self.file.size - start
            if room >= BLANK_SIZE and self.file.read(start, BLANK_SIZE) == _PREFIX.pack(MAGIC_ENTRY_BLANK, room):
                return start
        return None


def _sized(item: Message | Blank | Damage | None, record_at: int, size: int) -> Damage:
    if isinstance(item, Damage):
        return item._replace(size=size)
    return Damage("bad-magic", record_at, size, "the entry has a header, but no record")
