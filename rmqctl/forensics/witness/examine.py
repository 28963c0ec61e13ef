"""Bring a damaged record back from its own bytes.

Each bit is tried; what satisfies all witnesses is kept.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.errors import Unreadable
from rmqctl.forensics.bit_flips import find_bit_flips, find_two_bit_flips
from rmqctl.forensics.witness.copies import Copies, Spot
from rmqctl.forensics.witness.pointers import WEAK, Pointers, pointers_to
from rmqctl.forensics.witness.usual import is_text
from rmqctl.format import crc
from rmqctl.format import message as record
from rmqctl.format.body.client_check import begins_as_zlib
from rmqctl.format.message import (
    BAD_BODY_CRC,
    BAD_PHYSICAL_OFFSET,
    BLANK_SIZE,
    BODYCRC_OFFSET,
    HEAD_SIZE_MAX,
    PHYSICALOFFSET_OFFSET,
    Blank,
    Damage,
    Message,
)
from rmqctl.format.properties import UNIQ_KEY
from rmqctl.store.read.commit_log import message_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rmqctl.forensics.witness.copies import Built
    from rmqctl.forensics.witness.usual import Usual
    from rmqctl.store.read.read_only_store import ReadOnlyStore

ONE_BIT_BODY_MAX = 26 * 1024  # bytes: here a CRC of 31 bits explains garbage by one bit in 1 of 10,000 cases
# bytes: two bits explain garbage in 1 of 500 cases; a misdirected write of a sector would have hit the lengths, too
TWO_BIT_SURE_MAX = 371
TWO_BIT_BODY_MAX = 4 * 1024  # bytes: longer bodies have several explanations by two bits
SPOTS_MAX = 10_000  # damaged records with copies that are looked for; more are no damaged sectors, but a lost log
RECORD_MAX = 16 * 1024 * 1024  # bytes of a record that is examined
# what else is wrong just before other damage belongs to it, and is no flipped bit, unless a checksum says so
OF_CHECKSUMS = frozenset({BAD_BODY_CRC, "bad-property-crc"})
BIT_FLIP, TWO_BIT, COPY = "bit-flip", "two-bits", "copy"


class Candidate(NamedTuple):
    """Bytes that may be the right ones of a damaged record."""

    physical_offset: int
    content: bytes
    how: str
    bits: tuple[tuple[int, int], ...]  # position (bytes in the record) and bit of each change
    message: Message | Blank | None = None
    copied_from: int | None = None  # physical offset of the record with the same body
    near: tuple[str, ...] = ()  # fields that are not exact, but the nearest known time

    def describe(self) -> str:
        """Return where the bytes come from, in one line."""
        if self.copied_from is not None:
            near = f" (only near: {', '.join(self.near)})" if self.near else ""
            return f"the record of the same message at {self.copied_from}{near}"
        return ", ".join(f"bit {bit} of the byte at {self.physical_offset + at}" for at, bit in self.bits)


@dataclass(frozen=True)
class Verdict:
    """The witnesses on a damaged record: one exact candidate, several, or none."""

    physical_offset: int
    size: int  # bytes
    candidates: tuple[Candidate, ...] = ()
    is_exact: bool = False
    witnesses: tuple[str, ...] = ()  # that refute the record as it is, or confirm the candidate
    why: str = ""  # nothing is repaired
    is_damage: bool = True  # False: the record may be right, and its unit or its index entry damaged


class Examination:
    """Examines the damaged records of a store by its `usual` values."""

    def __init__(self, store: ReadOnlyStore, usual: Usual, *, accept_single_bit: bool = False) -> None:
        self._store = store
        self._usual = usual
        self._accept = accept_single_bit
        self._copies: dict[int, Message] = {}  # by the physical offset of the damaged record
        self._built: dict[int, list[Built]] = {}  # by the physical offset of the damaged record
        self._places: list[int] = []  # of the damaged records that units lead to

    def find_copies(self, damages: Sequence[Damage]) -> None:
        """Find other records of the messages in damaged parts of the log. Raises OSError.

        Such are half and commit, delayed and delivered, retry and dead letter. They have the UNIQ_KEY of the damaged
        record, and the body that its BODYCRC says.
        """
        spots = [*islice(chain.from_iterable(map(self._spots, damages)), SPOTS_MAX)]
        self._places = sorted(spot.place for spot in spots)
        copies = Copies(self._store.commit_log, spots)
        made = ((spot.place, copies.of(spot, partial(self._is_fit, spot))) for spot in spots)
        self._built = {place: found for place, found in made if found}
        bodies = {
            _body_of(damage.message): damage for damage in damages if damage.code == BAD_BODY_CRC and damage.message
        }
        sums = {crc for _, crc, _ in bodies}
        for item in self._store.commit_log.scan() if bodies else ():
            damage = bodies.get(_body_of(item)) if isinstance(item, Message) and item.body_crc in sums else None
            if damage is not None and isinstance(item, Message):
                self._copies[damage.physical_offset] = item._replace(body=memoryview(bytes(item.body)))

    def _spots(self, damage: Damage) -> Iterator[Spot]:
        log = self._store.commit_log
        beside = self._usual.beside.get(damage.physical_offset, (None, None))
        places: set[int] = set()
        for queue in self._store.queues.values():
            first = queue.first_where(lambda unit: unit.physical_offset >= damage.physical_offset)
            units = queue.units(first.queue_offset, queue.max_offset) if first is not None else iter(())
            places |= {unit.physical_offset for unit in takewhile(lambda one: one.physical_offset < damage.end, units)}
        for place in sorted(places):
            pointers, file = pointers_to(self._store, place, None), log.queue.find(place)
            size = pointers.size
            if len(pointers.units) == 1 and size is not None and 0 < size <= RECORD_MAX and file is not None:
                self._usual.beside.setdefault(place, beside)
                raw = file.read(place - file.file_from_offset, min(size, file.end - place))
                yield Spot(pointers, raw, beside)

    def _is_fit(self, spot: Spot, content: bytes) -> bool:
        found = record.decode(content, 0, spot.place, len(content))
        return isinstance(found, Message) and next(self._refuted(found, spot.pointers), None) is None

    def next_place(self, place: int, end: int) -> int:
        """Return where the next unit's record begins behind `place`, or `end`."""
        return min(next((one for one in self._places[bisect_right(self._places, place) :][:1]), end), end)

    def refutes(self, message: Message) -> bool:
        """Return whether a witness refutes a replica's record here. Raises OSError."""
        pointers = pointers_to(self._store, message.physical_offset, message.queue_offset)
        return next(self._refuted(message, pointers), None) is not None

    def examine(self, physical_offset: int, end: int | None = None) -> Verdict | None:
        """Return the verdict on a record; None if nothing refutes it.

        `end` is the first physical offset after the damage, or None if the record's lengths are right. Raises OSError.
        """
        log = self._store.commit_log
        file = log.queue.find(physical_offset)
        if file is None:
            return None
        found = log.at(physical_offset)
        if found is None and end is None:
            return None
        if found is None:
            found = Damage("hole", physical_offset, 0, "")
        message = message_of(found)
        room = file.end - physical_offset
        wanted = message.size if message is not None else max((end or 0) - physical_offset, HEAD_SIZE_MAX)
        if min(wanted, room) > RECORD_MAX:
            return Verdict(physical_offset, wanted, why=f"a record of {wanted} bytes is too long to be examined")
        raw = file.read(physical_offset - file.file_from_offset, min(wanted, room))
        try:
            pointers = pointers_to(self._store, physical_offset, message.queue_offset if message else None)
        except Unreadable:
            pointers = Pointers(physical_offset, (), False, frozenset(), (), None, False)
        return self._verdict(found, raw, room, pointers, end)

    def _verdict(
        self, found: Message | Blank | Damage, raw: bytes, room: int, pointers: Pointers, end: int | None
    ) -> Verdict | None:
        at, message = pointers.physical_offset, message_of(found)
        refuted = [] if message is None else [*self._refuted(message, pointers)]
        code = found.code if isinstance(found, Damage) else None
        if not refuted and code is None:
            return None
        size = len(raw) if end is None else end - at
        kept = [
            candidate
            for candidate in self._candidates(found, raw)
            if (whole := _decoded(candidate, room)) is not None and self._fits(whole, pointers, end)
            for candidate in [candidate._replace(message=whole, content=candidate.content[: whole.size])]
        ]
        kept = self._best(kept)
        names = tuple(dict.fromkeys([*([code] if code else []), *refuted, *pointers.names()]))
        if not kept:
            why = "no single flipped bit explains it" if code else ""
            return Verdict(at, size, why=why, witnesses=names, is_damage=code is not None)
        is_sure = code is not None or not WEAK.issuperset(refuted) or self._are_tags_known(message, kept[0])
        is_apart = kept[0].how == COPY or code in OF_CHECKSUMS or not self._is_damaged(at + len(kept[0].content))
        is_exact = len(kept) == 1 and is_sure and is_apart and self._is_body_sure(kept[0], message, code)
        why = "" if is_exact else "not corroborated" if len(kept) == 1 else f"{len(kept)} explanations"
        return Verdict(at, len(kept[0].content), tuple(kept), is_exact, names, why, code is not None)

    def _refuted(self, message: Message, pointers: Pointers) -> Iterator[str]:
        yield from self._usual.violated(message)
        yield from pointers.refuted(message)

    def _fits(self, whole: Message | Blank, pointers: Pointers, end: int | None) -> bool:
        if isinstance(whole, Blank):
            return not pointers.units
        if end is not None and whole.end != end and whole.size != pointers.size and not self._is_boundary(whole.end):
            return False
        return next(self._refuted(whole, pointers), None) is None

    def _is_damaged(self, physical_offset: int) -> bool:
        return isinstance(self._store.commit_log.at(physical_offset), Damage)

    def _is_boundary(self, physical_offset: int) -> bool:
        found = self._store.commit_log.at(physical_offset)
        return isinstance(found, Message | Blank)

    def _candidates(self, found: Message | Blank | Damage, raw: bytes) -> Iterator[Candidate]:
        at, message = found.physical_offset, message_of(found)
        for one in self._built.get(at, ()) if isinstance(found, Damage) else ():
            yield Candidate(at, one.content, COPY, (), copied_from=one.copied_from, near=one.near)
        if message is not None and isinstance(found, Damage) and found.code == BAD_BODY_CRC:
            yield from _of_body(at, raw, message)
            copy, head = self._copies.get(at), record.head_of(raw).size
            if copy is not None and at not in self._built:
                content = raw[:head] + bytes(copy.body) + raw[head + len(copy.body) :]
                yield Candidate(at, content, COPY, (), copied_from=copy.physical_offset)
        if message is not None and isinstance(found, Damage) and found.code == "bad-property-crc":
            stored = crc.stored_property_crc(message.properties_bytes)
            flips = [] if stored is None else find_bit_flips(raw[: -crc.PROPERTY_CRC_SIZE], stored)
            yield from (_changed(at, raw, BIT_FLIP, ((flip.position, flip.bit),)) for flip in flips)
        for position in _positions(found, raw) if any(raw[:BLANK_SIZE]) else ():
            for bit in range(8):
                yield _changed(at, raw, BIT_FLIP, ((position, bit),))

    def _best(self, kept: list[Candidate]) -> list[Candidate]:
        """Leave out what others explain better: by one bit, text, or names in use."""
        copies = {candidate.content for candidate in kept if candidate.how == COPY}
        kept = [candidate for candidate in kept if not copies or candidate.content in copies]
        for how in (COPY, BIT_FLIP):
            kept = [candidate for candidate in kept if candidate.how == how] or kept
        kept = [candidate for candidate in kept if self._is_body_usual(candidate)] or kept
        unknown = [self._usual.unknown(one.message) if isinstance(one.message, Message) else 0 for one in kept]
        return [candidate for candidate, count in zip(kept, unknown, strict=True) if count == min(unknown)]

    def _is_body_usual(self, candidate: Candidate) -> bool:
        message = candidate.message
        if not isinstance(message, Message) or not self._usual.has_text_bodies(message.topic):
            return True
        return is_text(message.body)

    def _is_body_sure(self, candidate: Candidate, damaged: Message | None, code: str | None) -> bool:
        """Return whether it is no chance that the checksum explains the body."""
        message = candidate.message
        if code != BAD_BODY_CRC or not isinstance(message, Message) or damaged is None:
            return True
        if not self._is_body_usual(candidate):
            return False
        if candidate.how == COPY or _is_corroborated(message, damaged):
            return True
        if candidate.how == TWO_BIT:
            return self._usual.has_text_bodies(message.topic) and len(message.body) <= TWO_BIT_SURE_MAX
        return self._accept or len(message.body) <= ONE_BIT_BODY_MAX

    def _are_tags_known(self, message: Message | None, candidate: Candidate) -> bool:
        """Return whether others have the candidate's TAGS, and none those as they are."""
        if message is None or not isinstance(candidate.message, Message):
            return False
        return self._usual.are_tags_in_use(candidate.message) and not self._usual.are_tags_in_use(message, least=2)


def _body_of(message: Message) -> tuple[str | None, int, int]:
    """Return what a record says about its body; without UNIQ_KEY, it is unlike all."""
    unique = message.properties.get(UNIQ_KEY)
    return unique, message.body_crc, len(message.body) if unique else -1 - message.physical_offset


def _changed(at: int, raw: bytes, how: str, bits: tuple[tuple[int, int], ...]) -> Candidate:
    content = bytearray(raw)
    for position, bit in bits:
        content[position] ^= 1 << bit
    return Candidate(at, bytes(content), how, bits)


def _decoded(candidate: Candidate, room: int) -> Message | Blank | None:
    """Return the candidate's record, or None if it is damaged."""
    try:
        found = record.decode(candidate.content, 0, candidate.physical_offset, room)
    except ValueError:  # longer than the bytes that were read
        return None
    return found if isinstance(found, Message | Blank) else None


def _positions(found: Message | Blank | Damage, raw: bytes) -> Iterable[int]:
    """Return the positions of the bytes in which one flipped bit may be the fault."""
    message = message_of(found)
    if message is None:
        return _head_and_lengths(raw)
    head = record.head_of(raw)
    code = found.code if isinstance(found, Damage) else None
    if code == BAD_BODY_CRC:
        return range(BODYCRC_OFFSET, BODYCRC_OFFSET + 4)
    if code == BAD_PHYSICAL_OFFSET:
        return range(PHYSICALOFFSET_OFFSET, PHYSICALOFFSET_OFFSET + 8)
    if code == "bad-property-crc":
        return range(len(raw) - crc.PROPERTY_CRC_SIZE, len(raw))
    return [*range(head.size), *range(head.size + len(message.body), len(raw))]


def _of_body(at: int, raw: bytes, message: Message) -> Iterator[Candidate]:
    head = record.head_of(raw).size
    for flip in find_bit_flips(message.body, message.body_crc):
        yield _changed(at, raw, BIT_FLIP, ((head + flip.position, flip.bit),))
    if len(message.body) <= TWO_BIT_BODY_MAX:
        for pair in find_two_bit_flips(message.body, message.body_crc):
            yield _changed(at, raw, TWO_BIT, tuple((head + flip.position, flip.bit) for flip in pair))


def _head_and_lengths(raw: bytes) -> list[int]:
    """Return the positions of the bytes that say where a record's fields lie.

    No other bit can put that right.
    """
    if len(raw) < record.MIN_SIZE:
        return [*range(min(BLANK_SIZE, len(raw)))]
    head = record.head_of(raw)
    fields = dict(
        zip((field.name for field in head.fields), head.struct.unpack_from(raw.ljust(head.size)), strict=True)
    )
    topic_length_at = head.size + fields["BODYLENGTH"]
    names = ("TOTALSIZE", "MAGICCODE", "SYSFLAG", "BODYLENGTH")
    positions = {head.offset(name) + at for name in names for at in range(4)}
    for length_size in (1, 2):
        if topic_length_at >= 0 and topic_length_at + length_size <= len(raw):
            topic_length = int.from_bytes(raw[topic_length_at : topic_length_at + length_size], "big")
            properties_length_at = topic_length_at + length_size + topic_length
            positions |= {*range(topic_length_at, topic_length_at + length_size)}
            positions |= {properties_length_at, properties_length_at + 1}
    return sorted(at for at in positions if at < len(raw))


def _is_corroborated(message: Message, damaged: Message) -> bool:
    """Return whether a body is right by more than its checksum.

    It is a zlib stream with its Adler-32, or text that the damage made another thing: other text that was written over
    a part of it stays text, whatever is flipped in it.
    """
    body = bytes(message.body)
    if begins_as_zlib(body[:4]):
        inflater = zlib.decompressobj()
        try:
            inflater.decompress(body, RECORD_MAX)
        except zlib.error:
            return False
        return inflater.eof
    return is_text(body) and not is_text(damaged.body)
