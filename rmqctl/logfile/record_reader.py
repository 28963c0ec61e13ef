"""Records of one commit log file, read through a window of a few MiB.

Memory use stays small, even if the TOTALSIZE of a damaged record is very large.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from rmqctl.format import crc, message
from rmqctl.format.message import (
    BAD_BODY_CRC,
    BAD_PHYSICAL_OFFSET,
    BLANK_SIZE,
    BODYCRC_OFFSET,
    HEAD_SIZE_MAX,
    MAGIC_OFFSET,
    PHYSICALOFFSET_OFFSET,
    Blank,
    Damage,
    Message,
)
from rmqctl.logfile.system.zeros import BLOCK_SIZE, is_zeros

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.logfile.mapped_file import MappedFile

WINDOW_SIZE = 4 * 1024 * 1024
POINT_WINDOW_SIZE = 4 * 1024  # to read a single record
CONFIRMED_SIZE_MAX = 64 * 1024 * 1024  # crcmod would need seconds for a longer body, and no broker accepts such a body
_MAGIC = re.compile(b"\xda\xa3\x20[\xa7\xab]|\xcb\xd4\x31\x94", re.DOTALL)
_BLANK_MAGIC = message.MAGIC_BLANK.to_bytes(4, "big")
_MAGIC_SIZE = 4
_PREFIX = struct.Struct(">iI")


class RecordReader:
    """Decodes records of `file`, and reads `window_size` bytes at a time.

    All methods raise OSError if the file cannot be read.
    """

    def __init__(self, file: MappedFile, window_size: int = WINDOW_SIZE) -> None:
        self.file = file
        self._window_size = window_size
        self._window = memoryview(b"")
        self._start = 0

    def at(self, position: int) -> Message | Blank | Damage | None:
        """Return the record, blank or damage at `position` (bytes in the file).

        `rmqctl.format.message.decode` describes the results.
        """
        room = self.file.size - position
        physical_offset = self.file.file_from_offset + position
        if room < BLANK_SIZE:
            return message.decode(b"", 0, physical_offset, room)
        at = self._load(position, min(room, HEAD_SIZE_MAX))
        size, magic = _PREFIX.unpack_from(self._window, at)
        if (
            magic in (message.MAGIC_V1, message.MAGIC_V2)
            and max(len(self._window) - at, message.MIN_SIZE - 1) < size <= room
        ):
            problem = self._beyond_window(position, size, magic)
            if problem is not None:
                return problem
            at = self._load(position, size)
        return message.decode(self._window, at, physical_offset, room)

    def next_record(self, position: int, stop: int | None = None) -> int | None:
        """Return the position of the first record or blank in [position, stop), or None.

        A record counts only if its lengths and its PHYSICALOFFSET are right.
        """
        stop = self.file.size if stop is None else stop
        while (at := self._next_magic(position, stop)) is not None:
            if self._claims_its_place(at) and is_framed(self.at(at)):
                return at
            position = at + 1
        return None

    def next_shifted(self, position: int, stop: int) -> Damage | None:
        """Return the first whole record of another offset in [position, stop), or None.

        Its lengths and checksums are right, but its PHYSICALOFFSET is not where it lies.
        """
        while (at := self._next_magic(position, stop)) is not None:
            record = self.at(at)
            if isinstance(record, Damage) and record.code == BAD_PHYSICAL_OFFSET and record.message is not None:
                return record
            # a record with a wrong checksum is passed over whole, or nested heads would be read again and again
            position = at + record.size if record is not None and is_framed(record) else at + 1
        return None

    def _next_magic(self, position: int, stop: int) -> int | None:
        while position < stop and position + BLANK_SIZE <= self.file.size:
            at = self._load(position, BLANK_SIZE)
            found = _MAGIC.search(self._window, at + MAGIC_OFFSET)
            if found is not None:
                position = self._start + found.start() - MAGIC_OFFSET
                return position if position < stop else None
            window_end = self._start + len(self._window)
            if window_end >= self.file.size:
                return None
            position = max(position + 1, window_end - _MAGIC_SIZE + 1 - MAGIC_OFFSET)
            position = max(position, self.file.next_data(position + MAGIC_OFFSET) - MAGIC_OFFSET)
        return None

    def first_nonzero(self, position: int) -> int | None:
        """Return the position of the first non-zero byte at or after `position`, or None."""
        if position >= self.file.size:
            return None
        at = self._load(position, 1)
        for start in range(at, len(self._window), BLOCK_SIZE):
            block = bytes(self._window[start : start + BLOCK_SIZE])
            if not is_zeros(block):
                return self._start + start + len(block) - len(block.lstrip(b"\0"))
        return self.file.first_nonzero(self._start + len(self._window))

    def claimed_size(self, position: int) -> int:
        """Return the TOTALSIZE of a damaged record, or 0 if TOTALSIZE is impossible."""
        if self.file.size - position < BLANK_SIZE:
            return 0
        at = self._load(position, BLANK_SIZE)
        size, magic = _PREFIX.unpack_from(self._window, at)
        possible = (
            magic in (message.MAGIC_V1, message.MAGIC_V2) and message.MIN_SIZE <= size <= self.file.size - position
        )
        return size if possible else 0

    def _load(self, position: int, need: int) -> int:
        """Return the index in the window that belongs to `position`."""
        at = position - self._start
        if at < 0 or at + need > len(self._window):
            size = min(max(self._window_size, need), self.file.size - position)
            self._window = memoryview(self._read_or_less(position, size, need))
            self._start = position
            at = 0
        return at

    def _read_or_less(self, position: int, size: int, need: int) -> bytes:
        """Return `size` bytes, or only the first `need` bytes if the read fails."""
        try:
            return self.file.read_exact(position, size)
        except OSError:
            if size == need:
                raise
            return self.file.read_exact(position, need)

    def _claims_its_place(self, position: int) -> bool:
        """Return whether a blank or a record may begin at `position`.

        A record must have the right PHYSICALOFFSET. This check is fast, and rejects most bytes that equal a magic code
        by chance.
        """
        at = self._load(position, min(self.file.size - position, message.MIN_SIZE))
        if self._window[at + MAGIC_OFFSET : at + MAGIC_OFFSET + _MAGIC_SIZE] == _BLANK_MAGIC:
            return True
        claimed = bytes(self._window[at + PHYSICALOFFSET_OFFSET : at + PHYSICALOFFSET_OFFSET + 8])
        return claimed == (self.file.file_from_offset + position).to_bytes(8, "big")

    def _beyond_window(self, position: int, size: int, magic: int) -> Damage | None:
        """Return the damage, if any, of a record that is longer than the window.

        It is not loaded into memory, because a wrong TOTALSIZE may be very large.
        """
        physical_offset = self.file.file_from_offset + position
        head = message.head_of(self.file.read_exact(position, message.MIN_SIZE))
        body_at = position + head.size
        body_length = self._integer(body_at - 4, 4) if head.size < size else -1
        if body_length < 0 or not self._ends_at(
            body_at + body_length, message.topic_length_size(magic), position + size
        ):
            return Damage("bad-length", physical_offset, 0, f"TOTALSIZE is {size}, the lengths do not add up to it")
        if size <= WINDOW_SIZE:
            return None
        stored = self._integer(position + BODYCRC_OFFSET, 4) & 0xFFFFFFFF
        if crc.masked_crc32_of(self._blocks(body_at, body_length)) == stored:
            return None
        if body_length <= CONFIRMED_SIZE_MAX and not crc.mismatch_confirmed(self._blocks(body_at, body_length), stored):
            return None
        detail = f"the CRC-32 of a body of {body_length} bytes is not BODYCRC, {stored}"
        return Damage(
            BAD_BODY_CRC, physical_offset, size, detail, self._bodiless(position, size, magic, body_at + body_length)
        )

    def _bodiless(self, position: int, size: int, magic: int, topic_length_at: int) -> Message:
        raw = self.file.read_exact(position, HEAD_SIZE_MAX)
        fields = message.head_of(raw).struct.unpack_from(raw)
        length_size = message.topic_length_size(magic)
        rest = self.file.read_exact(topic_length_at, position + size - topic_length_at)
        topic_end = length_size + int.from_bytes(rest[:length_size], "big")
        head = (self.file.file_from_offset + position, size, *fields[1:-1])
        return Message._make((*head, memoryview(b""), rest[length_size:topic_end], rest[topic_end + 2 :]))

    def _ends_at(self, topic_length_at: int, topic_length_size: int, end: int) -> bool:
        """Return whether a record's topic and properties end exactly at `end`.

        `topic_length_at` is the position of the topic's length field.
        """
        if topic_length_at + topic_length_size > end:
            return False
        topic_length = self._integer(topic_length_at, topic_length_size)
        at = topic_length_at + topic_length_size + topic_length
        if topic_length < 0 or at + 2 > end:
            return False
        properties_length = self._integer(at, 2)
        return properties_length >= 0 and at + 2 + properties_length == end

    def _integer(self, position: int, size: int) -> int:
        return int.from_bytes(self.file.read_exact(position, size), "big", signed=True)

    def _blocks(self, position: int, size: int) -> Iterator[bytes]:
        end = position + size
        while position < end:
            block = self.file.read_exact(position, min(BLOCK_SIZE, end - position))
            yield block
            position += len(block)


def is_framed(found: Message | Blank | Damage | None) -> bool:
    """Return whether the length fields of a record are right.

    All other fields may be damaged.
    """
    return found.message is not None if isinstance(found, Damage) else found is not None


def shifted_parts(file: MappedFile, damage: Damage) -> Iterator[Damage]:
    """Yield a damaged place in parts: whole records of other offsets, and the rest.

    After bytes were inserted into a file or removed from it, no later record lies where its PHYSICALOFFSET says, and a
    scan takes all of them for one damaged place, because bytes in a body may look like a record. So this is shown, but
    nothing is recovered by it. Raises OSError.
    """
    base, begin = file.file_from_offset, damage.physical_offset
    reader = RecordReader(file, min(WINDOW_SIZE, max(damage.size, POINT_WINDOW_SIZE)))
    end = min(damage.end, file.end)
    while (found := reader.next_shifted(begin - base, end - base)) is not None:
        if found.physical_offset > begin:
            yield damage._replace(physical_offset=begin, size=found.physical_offset - begin)
        yield found
        begin = found.end
    if begin < end or begin == damage.physical_offset:
        yield damage._replace(physical_offset=begin, size=damage.end - begin)
