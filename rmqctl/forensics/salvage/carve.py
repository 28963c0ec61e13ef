"""Find the records in a source by their magic codes.

A record says where it belongs: PHYSICALOFFSET less its position in the source is the *base*, which is the same for all
records of one stretch of a log. From the first record of a stretch, the scan kernel reads on at full speed. A whole
record is passed over with all that its body holds, and so is a record with right lengths but a wrong checksum: a record
inside a body is part of the body.

A stretch ends where the next bytes are not the record that should follow. Such a record is a *head*: its beginning is
there, and `joins.py` looks for the rest. Where most stretches end at a block, the source is shuffled; it is then read
again block by block, as even two blocks that fit may be neighbours by chance.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.errors import BadRequest
from rmqctl.forensics.salvage.coverage import QueueCounter, joined
from rmqctl.forensics.witness.usual import KNOWN_SYS_FLAGS
from rmqctl.format import message
from rmqctl.format.message import HEADS, MAGIC_V1, MAGIC_V2, MIN_SIZE, PHYSICALOFFSET_OFFSET, Message
from rmqctl.format.sys_flag import BORNHOST_V6, STOREHOST_V6
from rmqctl.kernels import scan
from rmqctl.store.dledger.dledger_entry import ENTRY_HEADER, MAGIC_ENTRY_BLANK, decode_entry_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rmqctl.forensics.salvage.coverage import Queues
    from rmqctl.forensics.salvage.sources import Source

BUFFER_SIZE = 2 * 1024 * 1024
RECORD_SIZE_MAX = 32 * 1024 * 1024  # maxMessageSize is 4 MiB by default
PIECES_MAX = 2_000_000
OFFSET_MAX = 2**62
TIME_MAX = 2**43  # ms since 1970
NESTED_WITHIN = 4 * 1024 * 1024  # bytes
SECTOR_SIZE = 512
SKIP_MAX = 1 << 20
BLOCK_SIZES = (4096, 1024)
# a source is shuffled if less than so many blocks follow their predecessor for each one that does not
WHOLE_SHARE = 8
COUNTED_LEAST = 64  # messages of a piece whose queues are kept; in smaller ones, they are counted again
_MAGICS = (MAGIC_V1, MAGIC_V2)
COMMON_MAGIC = MAGIC_V1.to_bytes(4, "big")[:3]
_KNOWN = PHYSICALOFFSET_OFFSET + 8  # bytes of a head that say where the record belongs, and how long it is
UNKNOWN_TIME = -1
HEAD_ROOM = message.HEAD_SIZE_MAX + 3
PART_SIZE = 64 * 1024 * 1024  # bytes for one thread
_EXTRA = message.MAGIC_OFFSET + 4  # bytes behind a part that show whether a record begins at its last byte
V6 = BORNHOST_V6 | STOREHOST_V6
_STORE_HOSTS = {flags: (head.offset("STOREHOST"), head.offset("RECONSUMETIMES")) for flags, head in HEADS.items()}


class Piece(NamedTuple):
    """Whole records that follow one another, or the head of one.

    The rest of a head's record is elsewhere, or damaged.
    """

    source: int  # its number
    position: int  # byte of the source; of a head that begins in another block, where it would begin
    begin: int  # physical offset
    size: int  # bytes; of a head, its TOTALSIZE, or 0 if that is in another block
    messages: int  # 0: a head
    first_time: int  # ms, STORETIMESTAMP; UNKNOWN_TIME if the head is cut before it
    last_time: int
    first_host: bytes
    last_host: bytes
    framed: bool = False  # a head whose lengths add up: its content is damaged
    before: int = 0  # bytes of a head that are in the block before
    queues: Queues | None = None  # None: they were not counted
    last_size: int = 0  # bytes of the last record
    entries: int = 0  # headers of DLedger's entries, one before each record

    @property
    def end(self) -> int:
        """The physical offset after the last record."""
        return self.begin + self.size

    @property
    def base(self) -> int:
        """The physical offset of the source's first byte."""
        return self.begin - self.position


class Head(NamedTuple):
    """What the first bytes of a record say."""

    size: int
    physical_offset: int
    store_timestamp: int  # UNKNOWN_TIME if cut off
    store_host: bytes


def head_at(raw: bytes | memoryview, announced: int | None = None) -> Head | None:
    """Return the head at the start of `raw`, or None.

    None if no record begins so. `raw` may be cut; the record before it may have announced its physical offset, for a
    cut before that.
    """
    size, magic = int.from_bytes(raw[:4], "big"), int.from_bytes(raw[4:8], "big")
    at = int.from_bytes(raw[PHYSICALOFFSET_OFFSET:_KNOWN], "big") if len(raw) >= _KNOWN else announced
    if at is None or magic not in _MAGICS or not MIN_SIZE <= size <= RECORD_SIZE_MAX or at > OFFSET_MAX:
        return None
    if len(raw) < MIN_SIZE - 3:
        is_likely = len(raw) < _KNOWN or max(raw[12], raw[20]) <= 0x7F  # QUEUEID, QUEUEOFFSET
        return Head(size, at, UNKNOWN_TIME, b"") if is_likely else None
    return _likely_head(bytes(raw).ljust(HEAD_ROOM, b"\0"), size, at, 0)


def _likely_head(raw: bytes, size: int, at: int, earliest: int) -> Head | None:
    """Return the head of a record of `size` bytes, if all its fields may be so."""
    if max(raw[12], raw[20]) > 0x7F:
        return None
    layout = message.head_of(raw)
    fields = dict(zip((field.name for field in layout.fields), layout.struct.unpack_from(raw), strict=True))
    born, stored = fields["BORNTIMESTAMP"], fields["STORETIMESTAMP"]
    if not (earliest <= born < TIME_MAX and max(earliest, 1) <= stored < TIME_MAX):
        return None
    is_likely = not fields["SYSFLAG"] & ~KNOWN_SYS_FLAGS and 0 <= fields["BODYLENGTH"] <= size - layout.size
    return Head(size, at, stored, bytes(fields["STOREHOST"])) if is_likely else None


def is_entry(raw: bytes | memoryview, at: int) -> bool:
    """Return whether a header of DLedger, or its blank, is at the start of `raw`.

    `at` is its physical offset.
    """
    entry = decode_entry_header(raw) if len(raw) >= ENTRY_HEADER.size else None
    return entry is not None and (entry.magic == MAGIC_ENTRY_BLANK or not entry.problem(at, RECORD_SIZE_MAX))


class Carved(NamedTuple):
    """The pieces and blanks of all sources."""

    pieces: list[Piece]
    blanks: dict[int, int]  # where blanks begin and end, which is where a log file ends
    nested: int  # messages inside the bodies of others


def carve(sources: Sequence[Source], on_progress: Callable[[int], None] = lambda _: None, threads: int = 1) -> Carved:
    """Return the pieces of all sources, and set their block sizes.

    `on_progress` gets the number of bytes read since the last call. Raises OSError, and BadRequest if there are too
    many pieces.
    """
    pieces: list[Piece] = []
    blanks: dict[int, int] = {}
    nested = 0
    for number, source in enumerate(sources):
        found = _Pieces(PIECES_MAX - len(pieces))
        reached = 0
        with ThreadPoolExecutor(threads) as executor:
            parts = [
                (begin, min(begin + PART_SIZE, extent[1]), extent[1])
                for extent in source.extents()
                for begin in range(*extent, PART_SIZE)
            ]
            strips = executor.map(partial(_Strip, source, number), parts)
            for part, strip in zip(parts, strips, strict=True):
                is_inside = strip.pieces and strip.pieces[0].position < reached  # it began inside a record
                carved = _Strip(source, number, (max(reached, part[0]), *part[1:])) if is_inside else strip
                reached = max(reached, carved.reached)
                blanks |= carved.blanks
                found.add_all(carved.pieces)
                on_progress(part[1] - part[0])
        source.block_size = found.shuffled()
        if source.block_size:
            found, source.unreadable = _Pieces(PIECES_MAX - len(pieces)), 0
            for begin, end in source.extents():
                found.add_all(_Strip(source, number, (begin, end, end)).pieces)
        else:
            nested += found.drop_nested()
        pieces += found.pieces
        source.close()
    return Carved(pieces, blanks, nested)


class _Strip:
    """The pieces that begin in [begin, end) of a source.

    `limit` is where the extent ends. Of a shuffled source, each block is read for itself.
    """

    def __init__(self, source: Source, number: int, part: tuple[int, int, int]) -> None:
        begin, end, limit = part
        block = source.block_size
        self.reached = begin // block * block if block else begin
        self.blanks: dict[int, int] = {}
        self._source = source
        self._number = number
        self._found = _Pieces(PIECES_MAX)
        self._buffer = bytearray(block or min(BUFFER_SIZE, limit - begin + _EXTRA))
        self._bytes = np.frombuffer(self._buffer, np.uint8)
        self._rows = np.empty(len(self._buffer) // MIN_SIZE + 1, scan.RECORD_COLUMNS)
        self._counter = QueueCounter()
        self._carve(end, limit)
        del self._buffer, self._bytes, self._rows, self._counter

    @property
    def pieces(self) -> list[Piece]:
        return self._found.pieces

    def _carve(self, end: int, limit: int) -> None:
        block = self._source.block_size
        step, need = block or SECTOR_SIZE, 0
        while self.reached < end:
            size = min(len(self._buffer), limit - self.reached, max(end - self.reached + _EXTRA, need))
            with memoryview(self._buffer) as buffer:
                filled = self._source.fill(self.reached, buffer[:size])
            if not filled:
                skipped = min((self.reached // step + 1) * step, end)
                self._source.unreadable += skipped - self.reached
                self.reached, step = skipped, min(2 * step, SKIP_MAX)
                continue
            if block:
                self._add_straddling(bytes(self._buffer[: min(filled, HEAD_ROOM)]))
            is_last = bool(block) or filled < size or self.reached + filled == limit
            done, need = self._carve_filled(filled, end - self.reached, is_last=is_last)
            self.reached += done

    def _carve_filled(self, filled: int, stop: int, *, is_last: bool) -> tuple[int, int]:
        """Take the pieces in the buffer that begin before `stop`.

        Returns how many bytes are done, and how many are needed behind them.
        """
        at, block = 0, self._source.block_size
        while (hit := self._buffer.find(COMMON_MAGIC, at + 4, filled)) >= 0 and hit - 4 < stop:
            begin, position = hit - 4, self.reached + hit - 4
            if filled - begin < HEAD_ROOM and not is_last:
                return begin, HEAD_ROOM
            head = self._head(begin, filled)
            if head is None:
                at = begin + 1
                continue
            is_cut = filled < begin + head.size
            count = 0 if is_cut else self._walk(begin, filled, head.physical_offset)
            if count:
                at = begin + self._take_rows(position, begin, head.physical_offset, count)
                self._note_blank(at, filled, head.physical_offset - begin)
                continue
            framed = not (is_cut and block) and is_framed(self._source, position, head.size)
            if framed and is_cut and begin + head.size <= begin + len(self._buffer) and not is_last:
                return begin, head.size  # read again from its start
            is_whole = framed and self._is_whole(position, head)
            self._found.add(_piece(self._number, position, head, messages=int(is_whole), framed=framed))
            at = begin + (head.size if framed else 1)
        return max(at, filled if is_last else filled - _EXTRA + 1), 0

    def _head(self, begin: int, filled: int) -> Head | None:
        if self._buffer[begin] > 1 or (begin + 12 < filled and self._buffer[begin + 12]):  # TOTALSIZE, QUEUEID
            return None
        block = self._source.block_size
        announced = self._found.end_at(self.reached + begin) if block else None
        head = head_at(bytes(self._buffer[begin : min(filled, begin + HEAD_ROOM)]), announced)
        return None if head is None or (block and (head.physical_offset - begin) % block) else head

    def _walk(self, begin: int, end: int, physical_offset: int) -> int:
        return scan.walk(self._bytes[begin:end], physical_offset, OFFSET_MAX, self._rows, check_bodies=True)

    def _take_rows(self, position: int, begin: int, physical_offset: int, count: int) -> int:
        first, last = self._rows[0], self._rows[count - 1]
        size = int(last["position"]) + int(last["size"])
        hosts = []
        for row in (first, last):
            first_byte, end = _STORE_HOSTS[int(row["sys_flag"]) & V6]
            start = begin + int(row["position"])
            hosts.append(bytes(self._buffer[start + first_byte : start + end]))
        times = int(first["store_timestamp"]), int(last["store_timestamp"])
        queues = None if self._source.block_size else self._counter.count(self._bytes[begin:], self._rows[:count])
        piece = Piece(self._number, position, physical_offset, size, count, *times, hosts[0], hosts[1])
        header = self._source.read(position - ENTRY_HEADER.size, ENTRY_HEADER.size)
        entries = int(is_entry(header, physical_offset - ENTRY_HEADER.size))
        self._found.add(piece._replace(last_size=int(last["size"]), queues=queues, entries=entries))
        return size

    def _note_blank(self, at: int, filled: int, base: int) -> None:
        raw = self._buffer[at : min(at + 8, filled)]
        size, magic = int.from_bytes(raw[:4], "big"), int.from_bytes(raw[4:], "big")
        if size == MAGIC_ENTRY_BLANK & 0xFFFFFFFF:
            self.blanks[base + at] = base + at + magic + ENTRY_HEADER.size
        elif magic == message.MAGIC_BLANK and size >= message.BLANK_SIZE:
            self.blanks[base + at] = base + at + size

    def _is_whole(self, position: int, head: Head) -> bool:
        raw = self._source.read(position, head.size)
        return len(raw) == head.size and isinstance(message.decode(raw, 0, head.physical_offset, head.size), Message)

    def _add_straddling(self, raw: bytes) -> None:
        """Add the head that began in the block before the one that begins with `raw`.

        It is known by a PHYSICALOFFSET that lies so many bytes before the end of a block, and by its times; TOTALSIZE
        is not there.
        """
        for before in range(1, PHYSICALOFFSET_OFFSET + 1) if len(raw) == HEAD_ROOM else ():
            at = PHYSICALOFFSET_OFFSET - before
            offset = int.from_bytes(raw[at : at + 8], "big")
            if 0 < offset <= OFFSET_MAX and (offset + before) % self._source.block_size == 0:
                head = _likely_head(bytes(before) + raw, RECORD_SIZE_MAX, offset, 2**39)
                if head is not None:
                    piece = _piece(self._number, self.reached - before, head._replace(size=0))
                    self._found.add(piece._replace(before=before))
                    return


class _Pieces:
    """The pieces of one source, in order."""

    def __init__(self, room: int) -> None:
        self.pieces: list[Piece] = []
        self._room = room

    def add_all(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            self.add(piece)

    def add(self, piece: Piece) -> None:
        last = self.pieces[-1] if self.pieces else None
        before = ENTRY_HEADER.size if piece.entries else 0
        is_next = last is not None and last.messages and last.end + before == piece.begin and last.base == piece.base
        if last is not None and is_next and piece.messages:
            self.pieces[-1] = last._replace(
                size=piece.end - last.begin,
                messages=last.messages + piece.messages,
                last_time=piece.last_time,
                last_host=piece.last_host,
                last_size=piece.last_size,
                entries=last.entries + piece.entries,
                queues=None if last.queues is None or piece.queues is None else joined(last.queues, piece.queues),
            )
            return
        if last is not None and is_next and piece.first_time == UNKNOWN_TIME:
            time, host = last.last_time, last.last_host
            piece = piece._replace(first_time=time, last_time=time, first_host=host, last_host=host)
        if len(self.pieces) >= self._room:
            raise BadRequest(f"more than {PIECES_MAX:,} pieces of logs: salvage fewer sources at once", path="SOURCE")
        if last is not None and last.messages < COUNTED_LEAST:
            self.pieces[-1] = last._replace(queues=None)
        self.pieces.append(piece)

    def end_at(self, position: int) -> int | None:
        """Return the physical offset at which the last piece ends, or None.

        None if it does not end at this position of the source.
        """
        last = self.pieces[-1] if self.pieces else None
        return last.end if last is not None and last.messages and last.position + last.size == position else None

    def shuffled(self) -> int:
        """Return the size of the blocks of a shuffled source, or 0."""
        breaks = sum(not piece.messages and not piece.framed for piece in self.pieces)
        placed = [
            piece
            for piece in self.pieces
            if not piece.base % BLOCK_SIZES[1] and piece.position % BLOCK_SIZES[0] <= BLOCK_SIZES[0] - MIN_SIZE
        ]
        changes = sum(
            one.base != other.base and one.position // BLOCK_SIZES[0] == other.position // BLOCK_SIZES[0]
            for one, other in pairwise(placed)
        )
        size = BLOCK_SIZES[changes > max(2, breaks // 16)]
        followed = sum(
            (piece.position + piece.size - 1) // size - piece.position // size
            for piece in self.pieces
            if piece.messages
        )
        return size if breaks >= 4 and followed < WHOLE_SHARE * breaks else 0

    def drop_nested(self) -> int:
        """Leave out what lies between two pieces of one stretch; return its messages.

        The record around it has lost its head. If the head is there, the stretch goes on elsewhere.
        """
        kept: list[Piece] = []
        last_of: dict[int, int] = {}  # base -> index in `kept`
        nested = 0
        for piece in self.pieces:
            index = last_of.get(piece.base)
            if index is not None and index < len(kept):
                last = kept[index]
                is_near = piece.begin - last.end <= NESTED_WITHIN and last.base == piece.base
                if last.messages and is_near:
                    for inner in kept[index + 1 :]:
                        nested += inner.messages
                    del kept[index + 1 :]
            last_of[piece.base] = len(kept)
            kept.append(piece)
        self.pieces = kept
        return nested


def _piece(number: int, position: int, head: Head, *, messages: int = 0, framed: bool = False) -> Piece:
    time, host = head.store_timestamp, head.store_host
    what = head.physical_offset, head.size, messages, time, time, host, host, framed
    return Piece(number, position, *what, last_size=head.size)


def is_framed(source: Source, position: int, size: int) -> bool:
    """Return whether the lengths of the record at a position add up to `size`.

    Only its lengths are read, as `size` may be a lie.
    """
    raw = source.read(position, message.HEAD_SIZE_MAX)
    if len(raw) < MIN_SIZE:
        return False
    head = message.head_of(raw)
    if head.size > len(raw):
        return False
    body_length = int.from_bytes(raw[head.size - 4 : head.size], "big", signed=True)
    length_size = message.topic_length_size(int.from_bytes(raw[4:8], "big"))
    at = head.size + body_length
    if body_length < 0 or at + length_size + 2 > size:
        return False
    topic_length = int.from_bytes(source.read(position + at, length_size), "big")
    at += length_size + topic_length
    if at + 2 > size:
        return False
    return at + 2 + int.from_bytes(source.read(position + at, 2), "big") == size


def messages_of(source: Source, piece: Piece, most: int) -> Iterator[Message]:
    """Yield the first messages of a piece, at most `most`."""
    position, end = piece.position, piece.position + piece.size
    while position < end and most:
        size = int.from_bytes(source.read(position, 4), "big")
        raw = source.read(position, min(size, end - position))
        found = message.decode(raw, 0, piece.base + position, size) if len(raw) == size >= MIN_SIZE else None
        if not isinstance(found, Message):
            return
        yield found
        position, most = position + size, most - 1
