"""The records that fill a damaged range of the log completely.

A record that a unit leads to goes to the unit's place. Fillers take the rest, and at the end of a file a blank does.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format.message import BLANK_SIZE, MAGIC_BLANK
from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.operations.placeholder.record import claimed_record, filler, filler_size_min, least_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rmqctl.operations.placeholder.record import Claim, Surroundings

FILLER_SIZE_MAX = 4 * 1024 * 1024  # maxMessageSize's default; brokers take as much memory for each record they check
_BLANK = struct.Struct(">iI")


class Span(NamedTuple):
    """A damaged range [begin, end) of one log file, in physical offsets.

    Adjacent damages must be in one range.
    """

    begin: int
    end: int
    file_begin: int  # the log file has [file_begin, file_end)
    file_end: int


class PlaceholderRecord(NamedTuple):
    """A record that will be written over damage: a placeholder, a filler or a blank."""

    physical_offset: int
    size: int  # if it differs from the size in the unit, the unit must change
    data: bytes  # of a blank, only the first 8 bytes
    claims: tuple[Claim, ...] = ()  # units of the replaced messages; none for a filler or a blank


class PlaceholderPlan(NamedTuple):
    """The records that fill a damaged range, and the claims without a record."""

    records: Iterable[PlaceholderRecord]
    dropped: list[Claim]


class _Piece:
    """A part [begin, end) of the damaged range, with or without claims."""

    def __init__(self, begin: int, end: int, claims: tuple[Claim, ...] = ()) -> None:
        self.begin = begin
        self.end = end
        self.claims = claims


def placeholder_records(span: Span, claims: Sequence[Claim], code: str, around: Surroundings) -> PlaceholderPlan:
    """Return a plan with records that fill a damaged range completely, in log order.

    The records are built one by one, so that a large range needs little memory. Raises ValueError if the range is too
    small for a record.
    """
    pieces, dropped = _pieces(span, claims, around)
    return PlaceholderPlan(_records(span, pieces, code, around), dropped)


def _pieces(span: Span, claims: Sequence[Claim], around: Surroundings) -> tuple[list[_Piece], list[Claim]]:
    pieces: list[_Piece] = []
    dropped: list[Claim] = []
    groups = _groups(span, claims, dropped)
    limit = span.end - BLANK_SIZE if span.end == span.file_end else span.end
    for number, (at, group) in enumerate(groups):
        following = groups[number + 1][0] if number + 1 < len(groups) else limit
        end = min(at + group[0].size, following, limit)
        if end - at < least_size(group, around) or not _filled_up_to(pieces, span.begin, at, filler_size_min(around)):
            dropped += group
            continue
        pieces.append(_Piece(at, end, group))
    size_min = BLANK_SIZE if span.end == span.file_end else filler_size_min(around)
    if not _filled_up_to(pieces, span.begin, span.end, size_min):
        raise ValueError(f"{span.end - span.begin} bytes at {span.begin} are too few for a record")
    return pieces, dropped


def _groups(span: Span, claims: Sequence[Claim], dropped: list[Claim]) -> list[tuple[int, tuple[Claim, ...]]]:
    # group the claims by physical offset, in log order: a message with LMQs has several units
    by_place: dict[int, list[Claim]] = {}
    for claim in claims:
        if span.begin <= claim.physical_offset < span.end:
            by_place.setdefault(claim.physical_offset, []).append(claim)
        else:
            dropped.append(claim)
    return [(at, tuple(sorted(by_place[at], key=_is_lmq))) for at in sorted(by_place)]


def _is_lmq(claim: Claim) -> bool:
    return claim.topic.startswith(LMQ_PREFIX)


def _filled_up_to(pieces: list[_Piece], begin: int, end: int, size_min: int) -> bool:
    """Fill the gap from the last piece to `end`; return whether that was possible.

    A gap of at least `size_min` bytes becomes a new piece; a smaller one is added to the last piece.
    """
    covered = pieces[-1].end if pieces else begin
    gap = end - covered
    if gap >= size_min:
        pieces.append(_Piece(covered, end))
    elif gap and pieces:
        pieces[-1].end = end
    return gap == 0 or pieces != []


def _records(span: Span, pieces: list[_Piece], code: str, around: Surroundings) -> Iterator[PlaceholderRecord]:
    for piece in pieces:
        if piece.claims:
            record = claimed_record(piece.begin, piece.end - piece.begin, piece.claims, code, around)
            yield PlaceholderRecord(piece.begin, len(record), record, piece.claims)
        else:
            yield from _fillers(span, piece, code, around)


def _fillers(span: Span, piece: _Piece, code: str, around: Surroundings) -> Iterator[PlaceholderRecord]:
    """Yield fillers for a piece, none larger than a broker accepts.

    A piece at the end of a file becomes a blank. If it is a whole file, a filler precedes the blank, because recovery
    needs a store time.
    """
    at, end = piece.begin, piece.end
    smallest = filler_size_min(around)
    if piece.end == span.file_end:
        end = at + smallest if at == span.file_begin and piece.end - at >= smallest + BLANK_SIZE else at
    while at < end:
        size = min(end - at, FILLER_SIZE_MAX)
        if 0 < end - at - size < smallest:
            size -= smallest
        yield PlaceholderRecord(at, size, filler(at, size, code, around))
        at += size
    if at < piece.end:
        yield PlaceholderRecord(at, piece.end - at, _BLANK.pack(piece.end - at, MAGIC_BLANK))
