"""Put records together whose blocks lie in different places.

The head of a record says where it begins and ends, and the next record, which begins there, where its last block is.
Between them, blocks have no head: `checksum.py` finds one or two of them by BODYCRC, among all blocks without a place.
Zeros may be any number of blocks. Where a source is not shuffled, blocks that follow the head, and those that precede
the next record, are tried at every length. The last block of a record that no other follows is found by its lengths.

Each candidate is decoded as a whole. Two of them that differ are ambiguous, and neither is used.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import accumulate, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.forensics.salvage.carve import COMMON_MAGIC, Piece, head_at
from rmqctl.forensics.salvage.checksum import BlockTable, moved, plain_crc, plain_targets
from rmqctl.forensics.salvage.witnesses import is_proven
from rmqctl.format import message
from rmqctl.format.message import BODYCRC_OFFSET, HEAD_SIZE_MAX, Message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqctl.forensics.salvage.generations import Generation
    from rmqctl.forensics.salvage.sources import Source
    from rmqctl.forensics.salvage.witnesses import UniqueKeyTimes
    from rmqctl.format.columns import Numbers

CANDIDATES_MAX = 16
TAIL_MAX = 2 + 32767 + 2 + 32767  # bytes of topic and properties
_SYSFLAG_END = message.HEADS[0].offset("SYSFLAG") + 4
SECONDS_MAX = 1 << 13  # blocks of which each may be the second one of a record
PAIR_BLOCKS_MAX = 1 << 16  # more blocks make most pairs ambiguous
WRONG_SHARE = 1 / 5000  # of the records that need as many blocks by checksum, those that may be so by chance
WORK_FACTOR, WORK_LEAST = 16, 1 << 33  # bytes that are read for joins: so many times the sources', and these


class Extent(NamedTuple):
    """A part of a record. Source -1: zeros."""

    source: int
    position: int  # byte of the source
    size: int


@dataclass
class Joined:
    """A record that is put together."""

    begin: int  # physical offset
    size: int
    extents: list[Extent]
    is_proven: bool  # that all parts are of this record
    missing: int  # blocks that were found by their checksum
    candidates: int = 1  # with other bytes; more than 1: it is not used


class Blocks:
    """The blocks of `size` bytes in which no record begins.

    They are numbered through all sources; the first 2^32 blocks can be found. Raises OSError.
    """

    def __init__(self, pieces: Sequence[Piece], sources: Sequence[Source], size: int) -> None:
        self.sources = sources
        self.size = size  # bytes of a block
        self._firsts = list(accumulate((-(-source.size // size) for source in sources), initial=0))
        covered = defaultdict[int, _Places](list)
        for piece in pieces:
            first = (piece.position + piece.before) // size
            last = (piece.position + max(piece.size, 1) - 1) // size if piece.messages or piece.framed else first
            covered[piece.source].append((first, last))
        found = array("Q")
        for number, source in enumerate(sources):
            taken = sorted(covered[number], reverse=True)
            for begin, end in source.extents():
                for block in range(begin // size, min(-(-end // size), 2**32 - 1 - self._firsts[number])):
                    while taken and taken[-1][1] < block:
                        taken.pop()
                    data = b"" if taken and taken[-1][0] <= block else source.read(block * size, size)
                    if len(data) == size and any(data):
                        found.append(plain_crc(data) << 32 | self._firsts[number] + block)
        self.count = len(found)
        self.table = BlockTable(found, size)

    def place(self, number: int) -> tuple[int, int]:
        """Return the source and the first byte of a block; source -1 for zeros."""
        if number < 0:
            return -1, 0
        source = bisect_right(self._firsts, number) - 1
        return source, (number - self._firsts[source]) * self.size

    def read(self, place: tuple[int, int], size: int) -> bytes:
        """Return the first bytes of a block."""
        return bytes(size) if place[0] < 0 else self.sources[place[0]].read(place[1], size)

    def all(self) -> Iterator[tuple[tuple[int, int], bytes]]:
        """Yield the place and the bytes of each block, in order."""
        for number in self.table.numbers():
            place = self.place(number)
            yield place, self.read(place, self.size)


_Places = list[tuple[int, int]]  # source and first byte of each block


@dataclass
class _Parts:
    """The known blocks of a record: those from its head on, and those up to its end."""

    forward: _Places
    backward: _Places
    count: int  # of all its blocks
    skip: int  # bytes of the first block before the record


class Joiner:
    """Joins the heads of one generation, in log order."""

    def __init__(self, generation: Generation, blocks: Blocks, times: UniqueKeyTimes) -> None:
        self._blocks = blocks
        self._size = blocks.size
        self._sources = blocks.sources
        self._times = times
        self._begins = defaultdict[int, list[Piece]](list)
        self._ends = defaultdict[int, _Places](list)  # physical offset -> source, byte
        for piece in (*generation.pieces, *generation.heads):
            if not piece.before:
                self._begins[piece.begin].append(piece)
            if piece.messages:
                self._ends[piece.end].append((piece.source, piece.position + piece.size))
        self._heads = sorted(generation.heads, key=lambda head: head.begin)
        self._work = max(WORK_LEAST, WORK_FACTOR * sum(source.size for source in self._sources))
        self._tails: dict[int, _Places] = {}
        self._seconds: dict[int, _Places] = {}
        self._ends_of_bodies: dict[int, _Places] = {}  # where the properties go on in the last block

    def join(self) -> list[Joined]:
        """Return the records that could be put together.

        Two missing blocks are looked for in a second pass.
        """
        self._find_blocks()
        found: dict[int, Joined] = {}
        for most in (1, 2):
            for head in self._heads:
                if (head.begin in found and found[head.begin].is_proven) or self._work <= 0:
                    continue
                joined = self._join(head, most)
                if joined is not None:
                    found[head.begin] = joined
                    if joined.candidates == 1:
                        last = joined.extents[-1]
                        self._ends[joined.begin + joined.size].append((last.source, last.position + last.size))
        self._doubt_chance(found)
        return list(found.values())

    def _doubt_chance(self, found: dict[int, Joined]) -> None:
        """Trust no checksum where many blocks are lost.

        Of N blocks, N^missing / 2^31 fit by chance. They are the only ones that fit if those of the record are lost:
        how often that is, show the records for which none fit.
        """
        unsolved = sum(head.begin not in found and not head.framed for head in self._heads)
        for missing in (1, 2):
            solved = [one for one in found.values() if one.is_proven and one.missing == missing]
            if unsolved * self._blocks.count**missing > WRONG_SHARE * len(solved) * 2**31:
                for one in solved:
                    one.is_proven = False

    def _join(self, head: Piece, most: int) -> Joined | None:
        candidates: dict[bytes, tuple[list[Extent], bool, Message, int]] = {}
        for raw, head_places in self._first_blocks(head):
            self._work -= self._size
            if self._work <= 0:
                break
            size = int.from_bytes(raw[:4], "big")
            for parts in self._parts(head, size, head_places):
                for missing, places in self._solutions(raw, size, parts, most):
                    self._work -= parts.count * self._size
                    checked = self._checked(head, size, places, parts)
                    if checked is not None:
                        key = self._bytes(checked[0])
                        candidates.setdefault(key, (*checked, missing))
                    if len(candidates) > CANDIDATES_MAX or self._work <= 0:
                        break
        if not candidates:
            return None
        extents, proven, record, missing = next(iter(candidates.values()))
        proven = proven and len(candidates) == 1 and self._work > 0
        if proven:
            self._times.learn(record)
        return Joined(head.begin, record.size, extents, proven, missing, len(candidates))

    def _bytes(self, extents: Sequence[Extent]) -> bytes:
        return b"".join(self._blocks.read((part.source, part.position), part.size) for part in extents)

    def _first_blocks(self, head: Piece) -> Iterator[tuple[bytes, _Places]]:
        """Yield the head's bytes, and the block or blocks in which they are."""
        source = self._sources[head.source]
        if not head.before:
            first = head.position // self._size * self._size
            known = self._known(head)
            if len(known) == HEAD_SIZE_MAX:
                yield known, [(head.source, first)]
            for place in dict.fromkeys([*self._seconds.get(head.begin, ()), *self._last_blocks(head, head.size)]):
                raw = known + self._blocks.read(place, HEAD_SIZE_MAX - len(known))
                if len(known) < HEAD_SIZE_MAX and head_at(raw) is not None:
                    yield raw, [(head.source, first), place]
            return
        second = head.position + head.before
        rest = source.read(second, HEAD_SIZE_MAX)
        for number, position in self._ends.get(head.begin, ()):
            raw = self._sources[number].read(position, head.before) + rest
            if head_at(raw) is not None:
                yield raw, [(number, position // self._size * self._size), (head.source, second)]

    def _parts(self, head: Piece, size: int, first: _Places) -> Iterator[_Parts]:
        skip = head.begin % self._size
        count = -(-(skip + size) // self._size)
        if count < 2 or head.base % self._size:
            return
        forward = list(first)
        if not self._sources[head.source].block_size:
            number, position = forward[-1]
            self._work -= count * self._size
            forward += [(number, position + index * self._size) for index in range(1, count - len(forward) + 1)]
        forward = forward[:count]
        tails = self._last_blocks(head, size)
        for source, last in tails:
            length = 1 if self._sources[source].block_size else count
            backward = [(source, last - index * self._size) for index in reversed(range(length))]
            backward = [place for place in backward if place[1] >= 0][-count + 1 :]
            for end_of_body in self._ends_of_bodies.get(head.begin, ()):
                yield _Parts(forward, [end_of_body, *backward[-1:]], count, skip)
            yield _Parts(forward, backward, count, skip)
        if not tails:
            yield _Parts(forward, [], count, skip)

    def _known(self, head: Piece) -> bytes:
        """Return the head's bytes that are in its first block.

        In a source that is not shuffled, also those behind it.
        """
        size = self._size - head.position % self._size if self._sources[head.source].block_size else HEAD_SIZE_MAX
        return self._sources[head.source].read(head.position, min(size, HEAD_SIZE_MAX))

    def _last_blocks(self, head: Piece, size: int) -> _Places:
        """Return the blocks that may be the last one of a record.

        There the next record begins, or `_find_blocks` found them.
        """
        end = head.begin + size
        found = [
            (piece.source, (piece.position - (not end % self._size)) // self._size * self._size)
            for piece in self._begins.get(end, ())[:CANDIDATES_MAX]
            if not piece.base % self._size and (end % self._size or not self._sources[piece.source].block_size)
        ]
        return list(dict.fromkeys(found or self._tails.get(head.begin, [])))

    def _solutions(self, raw: bytes, size: int, parts: _Parts, most: int) -> Iterator[tuple[int, _Places]]:
        """Yield the blocks of the record, in order, as the body's checksum asks for.

        Before them, how many were found by their checksum.
        """
        layout = message.head_of(raw)
        body = int.from_bytes(raw[layout.size - 4 : layout.size], "big")
        if layout.size + body > size:
            return
        begin, end = parts.skip + layout.size, parts.skip + layout.size + body
        after = self._checksums_forward(parts, begin, end)
        before = self._checksums_backward(parts, begin, end)
        targets = plain_targets(int.from_bytes(raw[BODYCRC_OFFSET : BODYCRC_OFFSET + 4], "big"), body)
        first_back = parts.count - len(parts.backward)
        by_checksum = {checksum: first_back + index for index, checksum in reversed(list(enumerate(before)))}
        for (known, checksum), target in product(enumerate(after, 1), targets):
            wanted = checksum ^ target
            is_next = first_back <= known and before[known - first_back] == wanted
            following = known if is_next else by_checksum.get(wanted)
            if following is not None and following >= known:
                zeros = [(-1, 0)] * (following - known)
                yield 0, [*parts.forward[:known], *zeros, *parts.backward[following - first_back :]]
            for missing in (1, 2)[:most]:
                behind = known + missing
                is_inside = begin <= known * self._size and behind * self._size <= end
                if is_inside and first_back <= behind < first_back + len(before):
                    rest = parts.backward[behind - first_back :]
                    away = end - behind * self._size
                    for found in self._look_up(wanted ^ before[behind - first_back], away, missing):
                        yield missing, [*parts.forward[:known], *found, *rest]

    def _look_up(self, wanted: int, away: int, missing: int) -> Iterator[_Places]:
        table = self._blocks.table
        if missing == 1:
            for number in table.find(moved(wanted, -away)):
                yield [self._blocks.place(number)]
        elif self._blocks.count <= PAIR_BLOCKS_MAX:
            self._work -= 16 * self._blocks.count
            for one, other in table.find_pairs(moved(wanted, -away)):
                yield [self._blocks.place(one), self._blocks.place(other)]

    def _checksums_forward(self, parts: _Parts, begin: int, end: int) -> list[int]:
        """Return the checksum of the body's part in the first 1, 2 … blocks.

        Each is moved to the body's end.
        """
        found, checksum = [], 0
        for index, place in enumerate(parts.forward):
            low, high = max(begin, index * self._size), min(end, (index + 1) * self._size)
            if low < high:
                data = self._blocks.read((place[0], place[1] + low - index * self._size), high - low)
                if len(data) < high - low:
                    break
                checksum = plain_crc(data, checksum)
            found.append(moved(checksum, max(end - max((index + 1) * self._size, begin), 0)))
        return found

    def _checksums_backward(self, parts: _Parts, begin: int, end: int) -> list[int]:
        """Return the checksum of the body's part from each block of the end on.

        It is 0 behind the last block.
        """
        found, checksum, first = [0], 0, parts.count - len(parts.backward)
        for index in reversed(range(len(parts.backward))):
            low, high = max(begin, (first + index) * self._size), min(end, (first + index + 1) * self._size)
            place = parts.backward[index]
            if low < high:
                data = self._blocks.read((place[0], place[1] + low - (first + index) * self._size), high - low)
                checksum ^= moved(plain_crc(data), end - high)
            found.append(checksum)
        return found[::-1]

    def _checked(
        self, head: Piece, size: int, places: Sequence[tuple[int, int]], parts: _Parts
    ) -> tuple[list[Extent], bool, Message] | None:
        if len(places) != parts.count:
            return None
        extents: list[Extent] = []
        joints, at = [], 0
        for index, (source, position) in enumerate(places):
            begin = parts.skip if index == 0 else 0
            length = min(self._size - begin, size - at)
            last = extents[-1] if extents else None
            is_next = last is not None and (last.source, last.position + last.size) == (source, position + begin)
            if last is not None and is_next and source >= 0 and not self._sources[source].block_size:
                extents[-1] = last._replace(size=last.size + length)
            else:
                joints += [at] if index else []
                extents.append(Extent(source, position + begin, length))
            at += length
        raw = self._bytes(extents)
        record = message.decode(raw, 0, head.begin, size) if len(raw) == size else None
        if not isinstance(record, Message) or not joints:
            return None
        return extents, is_proven(raw, record, joints, self._checksums_beside(places, head.begin), self._times), record

    def _checksums_beside(self, places: Sequence[tuple[int, int]], begin: int) -> Counter[int]:
        """Return the BODYCRCs of other records in the first and the last block."""
        found = Counter[int]()
        for place in (places[0], places[-1]):
            data = self._blocks.read(place, self._size)
            at = data.find(COMMON_MAGIC)
            while at >= 0:
                head = head_at(data[max(at - 4, 0) :])
                if head is not None and head.physical_offset != begin:
                    found[int.from_bytes(data[at + 4 : at + 8], "big")] += 1
                at = data.find(COMMON_MAGIC, at + 1)
        return found

    def _find_blocks(self) -> None:
        """Look for the blocks that the lengths in them give away.

        It is one pass over all blocks without a place. These are the block in which a body ends, if it is not the
        record's last one or no other record follows there, and the second block of a record whose first block ends
        within its head.
        """
        tails = defaultdict[int, defaultdict[tuple[int, int], list[_Places]]](lambda: defaultdict(list))
        seconds = []
        for head in self._heads:
            is_shuffled = self._sources[head.source].block_size
            known = self._known(head) if is_shuffled and not head.before and not head.framed else b""
            layout = message.head_of(known) if len(known) >= _SYSFLAG_END else message.HEADS[0]
            if 0 < len(known) < layout.size:
                length = known[layout.size - 4 :].ljust(4, b"\0")
                seconds.append((layout.size - 4 - len(known), *length, head.size - layout.size, head.begin))
            elif known:
                topic_at = head.begin + layout.size + int.from_bytes(known[layout.size - 4 : layout.size], "big")
                block, last = topic_at // self._size, (head.end - 1) // self._size
                length_size = message.topic_length_size(int.from_bytes(known[4:8], "big"))
                is_asked = last - block == bool(self._last_blocks(head, head.size))
                if is_asked and block > head.begin // self._size:
                    begin = block * self._size
                    found = self._ends_of_bodies if block < last else self._tails
                    tails[length_size][topic_at - begin, head.end - begin].append(found.setdefault(head.begin, []))
        asked = [(size, np.unique([at for at, _ in ends]), max(end for _, end in ends)) for size, ends in tails.items()]
        rows = np.array(seconds, np.int64).reshape(-1, 7)
        for place, data in self._blocks.all() if tails or seconds else ():
            numbers: Numbers = np.append(np.frombuffer(data, np.uint8).astype(np.int64), np.zeros(4, np.int64))
            for length_size, at, most in asked:
                for key in _ends_of_bodies(numbers, length_size, at, most):
                    for places in tails[length_size].get(key, ()):
                        places.append(place)
            for number in _rests_of_heads(numbers, rows):
                places = self._seconds.setdefault(seconds[number][-1], [])
                places += [place] if len(places) < SECONDS_MAX else []


def _ends_of_bodies(block: Numbers, length_size: int, at: Numbers, most: int) -> Iterator[tuple[int, int]]:
    """Yield where topics may begin in a block, and where their records end.

    `at` has the bytes at which topics are looked for; no end is after `most`.
    """
    topic = block[at] if length_size == 1 else block[at] << 8 | block[at + 1]
    properties_at = np.minimum(at + length_size + topic, len(block) - 2)
    end = properties_at + 2 + (block[properties_at] << 8 | block[properties_at + 1])
    is_near = end <= most
    yield from zip(at[is_near].tolist(), end[is_near].tolist(), strict=True)


def _rests_of_heads(block: Numbers, asked: Numbers) -> Iterator[int]:
    """Yield the rows of `asked` whose head may go on in this block.

    A row is the byte of BODYLENGTH, its four bytes as far as they are known, and its greatest value.
    """
    at, *known, most, _ = asked.T
    body = np.zeros(len(asked), np.int64)
    for index, first in enumerate(known):
        body = body << 8 | np.where(at + index < 0, first, block[np.maximum(at + index, 0)])
    yield from map(int, np.flatnonzero((body <= most) & (body + TAIL_MAX >= most)))
