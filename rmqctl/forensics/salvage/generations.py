"""Which pieces belong to one log.

Two logs may have other records at the same offsets: another broker's, or one broker's before and after its store was
emptied. A *generation* is one of them. Its pieces have the STOREHOST of one broker, and in the order of their offsets
their store times never fall, or in a DLedger group's by at most 1 s. Where they overlap, they have the same records.
Pieces are taken in the order of their store times: in the log of one broker, the offsets then rise, and they fall back
where a new log begins. A log that begins where the last file of another one ends goes on with it: its broker got
another address, or its clock was set back.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqctl.forensics.salvage.carve import UNKNOWN_TIME, Piece
from rmqctl.format.message import MIN_SIZE
from rmqctl.store.dledger.dledger_entry import ENTRY_HEADER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rmqctl.forensics.salvage.sources import Source

GENERATIONS_MAX = 64  # of one broker; further pieces are not compared with older ones
HEADS_LEAST = 8  # of a log without a whole record: fewer may be damaged ones
NEAR = 64 * 1024  # bytes between two pieces of one stretch of a log: room for a damaged record
ENTRIES_FALL = 1000  # ms by which the store times of a DLedger log may fall: they are taken before its lock
_COMPARED = MIN_SIZE  # bytes of a record


@dataclass
class Generation:
    """One log: its whole pieces in log order, and the heads that lie between them."""

    hosts: set[bytes] = field(default_factory=set)
    pieces: list[Piece] = field(default_factory=list)
    heads: list[Piece] = field(default_factory=list)
    size: int = 0  # bytes of whole records
    last_time: int = 0

    def add(self, piece: Piece) -> None:
        """Add a piece that fits."""
        self.hosts |= {piece.first_host, piece.last_host}
        self.last_time = max(self.last_time, piece.last_time)
        if piece.messages:
            insort(self.pieces, piece, key=_begin)
            self.size += piece.size
        else:
            insort(self.heads, piece, key=_begin)

    def leave_doubtful_ends(self, is_proven: Sequence[bool]) -> None:
        """Make heads of the last records of those pieces whose end is not proven."""
        pieces, self.pieces = self.pieces, []
        for piece, is_whole in zip(pieces, is_proven, strict=True):
            left = piece
            if not is_whole:
                at, time, host = piece.size - piece.last_size, piece.last_time, piece.last_host
                place = piece.source, piece.position + at, piece.begin + at, piece.last_size
                self.heads.append(Piece(*place, 0, time, time, host, host))
                size = max(at - (ENTRY_HEADER.size if piece.entries else 0), 0)
                left = piece._replace(size=size, messages=piece.messages - 1, queues=None)
                left = left._replace(entries=max(piece.entries - 1, 0))
                self.size -= piece.size - size
            self.pieces += [left] if left.messages else []

    def distance(self, piece: Piece, sources: Sequence[Source]) -> tuple[bool, int] | None:
        """Return how far a piece is from the one before it, or None.

        None if it is no part of this log. That is whether it is farther than NEAR, and the time between them in ms.
        """
        before, behind = _beside(self.pieces, piece)
        overlaps = [(before, piece)] if before is not None and before.end > piece.begin else []
        overlaps += [(piece, behind)] if behind is not None and piece.messages and piece.end > behind.begin else []
        if overlaps:
            is_same = all(one.messages and _is_same(one, later, sources) for one, later in overlaps)
            return (False, 0) if is_same and piece.messages else None
        heads = (None, None) if piece.messages else _beside(self.heads, piece)
        slack = ENTRIES_FALL if piece.entries else 0
        is_early = any(one.last_time - slack > piece.first_time for one in (before, heads[0]) if one is not None)
        if is_early or any(one.first_time + slack < piece.last_time for one in (behind, heads[1]) if one is not None):
            return None
        last = max((one for one in (before, heads[0]) if one is not None), key=_begin, default=None)
        return last is None or piece.begin - last.end > NEAR, piece.first_time - (last.last_time if last else 0)


def _begin(piece: Piece) -> int:
    return piece.begin


def _beside(pieces: Sequence[Piece], piece: Piece) -> tuple[Piece | None, Piece | None]:
    at = bisect_right(pieces, piece.begin, key=_begin)
    return pieces[at - 1] if at else None, pieces[at] if at < len(pieces) else None


def _is_same(one: Piece, later: Piece, sources: Sequence[Source]) -> bool:
    """Return whether both pieces have the same record where the later one begins."""
    beside = sources[one.source].read(later.begin - one.base, _COMPARED)
    return beside == sources[later.source].read(later.position, _COMPARED)


def generations_of(pieces: Sequence[Piece], sources: Sequence[Source], blanks: Mapping[int, int]) -> list[Generation]:
    """Divide pieces into generations, the one with most bytes first.

    Of equal ones, the newest is first. `blanks` says of the blanks at the ends of log files where they begin and end.
    """
    brokers = _Brokers()
    for piece in pieces:
        brokers.join(piece.first_host, piece.last_host)
    found: dict[bytes, list[Generation]] = {}
    for piece in sorted(pieces, key=lambda piece: (not piece.messages, piece.first_time, piece.begin)):
        of_broker = found.setdefault(brokers.of(piece.first_host), [])
        if piece.first_time == UNKNOWN_TIME:
            continue
        distances = [(one.distance(piece, sources), one) for one in of_broker[-GENERATIONS_MAX:]]
        near = [(distance, one) for distance, one in distances if distance is not None]
        if near:
            min(near, key=lambda pair: pair[0])[1].add(piece)
        elif piece.messages or len(of_broker) < GENERATIONS_MAX:
            of_broker.append(Generation())
            of_broker[-1].add(piece)
    logs = [one for of_broker in found.values() for one in of_broker]
    told = [one for one in logs if one.pieces or len(one.heads) >= HEADS_LEAST]
    generations = _continued(told or logs, blanks)
    generations.sort(key=lambda one: (one.size, one.last_time), reverse=True)
    _add_cut(generations, [piece for piece in pieces if piece.first_time == UNKNOWN_TIME])
    return generations


def _continued(generations: list[Generation], blanks: Mapping[int, int]) -> list[Generation]:
    whole = [one for one in generations if one.pieces]
    ends = Counter(blanks.get(one.pieces[-1].end) for one in whole)
    begins = Counter(one.pieces[0].begin for one in whole)
    for one in sorted(whole, key=lambda one: one.pieces[0].begin, reverse=True):
        end = blanks.get(one.pieces[-1].end)
        later = next((other for other in generations if other.pieces and other.pieces[0].begin == end), None)
        if later is not None and ends[end] == begins[later.pieces[0].begin] == 1:
            one.hosts |= later.hosts
            one.pieces += later.pieces
            one.heads += later.heads
            one.size, one.last_time = one.size + later.size, max(one.last_time, later.last_time)
            generations.remove(later)
    return generations


def _add_cut(generations: Sequence[Generation], cut: Sequence[Piece]) -> None:
    """Add each head that is cut before its store time.

    It goes where the next record follows it.
    """
    begins: dict[int, Generation] = {}
    ends = {piece.end for piece in cut}
    for generation in reversed(generations):
        begins |= {piece.begin: generation for piece in (*generation.pieces, *generation.heads) if piece.begin in ends}
    for piece in cut:
        home = begins.get(piece.end, generations[0] if generations else None)
        if home is not None:
            home.heads.append(piece)


class _Brokers:
    """Store hosts that one log has in turn are one broker's."""

    def __init__(self) -> None:
        self._above: dict[bytes, bytes] = {}

    def of(self, host: bytes) -> bytes:
        while (above := self._above.get(host, host)) != host:
            host = above
        return host

    def join(self, one: bytes, other: bytes) -> None:
        if one != other:
            self._above[self.of(one)] = self.of(other)
