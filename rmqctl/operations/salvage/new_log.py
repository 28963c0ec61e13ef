"""The log of a salvaged store.

It has whole records, and what stands in the place of lost ones. With `compact`, records move together and get new
physical offsets; without, each keeps its own, and fillers take the bytes of the holes. In both, a placeholder takes
each queue offset that a queue lacks, so that no message changes its queue offset.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.errors import BadRequest
from rmqctl.format import crc, message
from rmqctl.format.message import BLANK_SIZE, MAGIC_BLANK, PHYSICALOFFSET_OFFSET, Message
from rmqctl.format.sys_flag import TRANSACTION_MASK, TransactionType
from rmqctl.logfile.mapped_file_queue import FILE_NAME_DIGITS
from rmqctl.operations.placeholder.pieces import Span, placeholder_records
from rmqctl.operations.placeholder.record import (
    Claim,
    claimed_record,
    filler_size_min,
    least_size,
    sign_size,
    surroundings,
)
from rmqctl.store.config.store_path import COMMITLOG
from rmqctl.store.dledger.dledger_entry import ENTRY_HEADER

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.forensics.salvage.survey import Run, Survey
    from rmqctl.format.columns import Bytes, Rows
    from rmqctl.logfile.system.writable_storage import WritableStorage
    from rmqctl.operations.placeholder.record import Surroundings

NO_HOLE = -1
HOLE = "hole"  # the code in placeholders
_BODY_SIZE = 32  # bytes of a placeholder's body: room for the code
_BLANK = struct.Struct(">iI")
_LONG = struct.Struct(">q")
_FILE_SIZE_USUAL = 1 << 30
_PAGE = 4096  # a file of another length was cut, unless blanks say that it is whole


def file_size_of(found: Survey, asked: int | None, *, compact: bool) -> int:
    """Return the length of the log's files.

    It is as asked, as the source files have it, or as the blanks say. Raises BadRequest if a record would lie in two
    files.
    """
    header = ENTRY_HEADER.size if found.entries else 0
    begins = {run.extents[0][:2]: run.begin - header for run in found.runs}
    sizes = [
        source.size
        for number, source in enumerate(found.sources)
        if source.size and begins.get((number, header), -1) % source.size == 0
    ]
    blanks = int(np.gcd.reduce([end - header for end in found.blanks.values()])) if found.blanks else 0
    likely = [size for size, _ in Counter(sizes).most_common() if not (blanks % size if blanks else size % _PAGE)]
    guesses = [asked] if asked else [*likely, blanks, _FILE_SIZE_USUAL]
    for size in guesses:
        if size and (compact or all(run.begin // size == (run.end - 1) // size for run in found.runs)):
            return size
    hint = "give --commitlog-file-size, or --holes compact"
    raise BadRequest("records would lie in two log files of this size", hint=hint)


@dataclass
class NewLog:
    """Writes the log files of a new store below `root`."""

    storage: WritableStorage
    root: Path
    file_size: int
    files: int = 0
    placeholders: int = 0  # messages that consumers receive in the place of lost ones
    dropped: int = 0  # queue offsets without room for a placeholder
    _moves: list[tuple[int, int, int]] = field(default_factory=list)  # old begin, old end, new begin
    _opened: tuple[int, int] | None = None  # first physical offset and descriptor

    def write(self, found: Survey, *, compact: bool) -> None:
        """Write all records of `found`, durably. Raises OSError and BadRequest."""
        at = previous = found.runs[0].begin // self.file_size * self.file_size
        if compact and at == 0 and any(queue.first for queue in found.queues.values()):
            at = self.file_size  # brokers of 4.x lose messages of a queue that begins after 0 in a log that begins at 0
        numbers = {begin: number for number, (begin, _) in enumerate(found.holes)}
        claims = _claims_of(found)
        before: Message | None = None
        with closing(self):
            for run in found.runs:
                number = numbers.get(previous, NO_HOLE)
                owed = claims.get(number, _Claims())
                after = _first_message(found, run)
                if owed and compact:
                    at = self._put_claims(at, None, owed, surroundings(before, after, long_topics=True))
                elif not compact and at < run.begin:
                    self._fill(at, run.begin, owed, surroundings(before, after, long_topics=True), number)
                at, before = self._copy(found, run, at if compact else None)
                previous = run.end

    def close(self) -> None:
        """Flush and close the open file."""
        if self._opened is not None:
            self.storage.sync(self._opened[1])
            self.storage.close(self._opened[1])
            self._opened = None

    def _put(self, at: int, data: bytes | memoryview) -> None:
        begin = at // self.file_size * self.file_size
        if self._opened is None or self._opened[0] != begin:
            self.close()
            path = self.root / COMMITLOG / f"{begin:0{FILE_NAME_DIGITS}d}"
            self._opened = begin, self.storage.create(path, self.file_size)
            self.files += 1
        self.storage.write(self._opened[1], at - begin, data)

    def _copy(self, found: Survey, run: Run, to: int | None) -> tuple[int, Message | None]:
        """Write a run, in its place or at `to`.

        Returns where it ends, and its last message.
        """
        at, last = run.begin if to is None else to, None
        for begin, rows, raw in found.columns(run):
            if to is None:
                end = int(rows[-1]["position"]) + int(rows[-1]["size"])
                self._put(at, raw[:end].data)
                at += end
            else:
                at = self._move(begin, rows, raw, at)
            first, size = int(rows[-1]["position"]), int(rows[-1]["size"])
            last = _decoded(raw[first : first + size].tobytes(), begin + first)
        return at, last

    def _move(self, begin: int, rows: Rows, raw: Bytes, at: int) -> int:
        """Write records at new physical offsets from `at` on."""
        ends = rows["position"] + rows["size"]
        done = 0
        while done < len(rows):
            first = int(rows[done]["position"])
            count = int(np.searchsorted(ends[done:], first + self._room(at), "right"))
            if not count:
                at = self._end_file(at)
                if first + self._room(at) < int(ends[done]):
                    raise BadRequest("a record is longer than a log file", hint="give --commitlog-file-size")
                continue
            part = rows[done : done + count]
            data = bytearray(raw[first : int(ends[done + count - 1])].tobytes())
            self._moves.append((begin + first, begin + int(ends[done + count - 1]), at))
            for row in part:
                self._renumber(data, int(row["position"]) - first, int(row["size"]), int(row["sys_flag"]), at)
            self._put(at, memoryview(data))
            at, done = at + len(data), done + count
        return at

    def _renumber(self, data: bytearray, start: int, size: int, sys_flag: int, at: int) -> None:
        _LONG.pack_into(data, start + PHYSICALOFFSET_OFFSET, at + start)
        if sys_flag & TRANSACTION_MASK in (int(TransactionType.COMMIT), int(TransactionType.ROLLBACK)):
            place = start + message.head_of(memoryview(data), start).offset("PREPAREDTRANSACTIONOFFSET")
            half = _LONG.unpack_from(data, place)[0]
            moved = next((new + half - old for old, end, new in reversed(self._moves) if old <= half < end), half)
            _LONG.pack_into(data, place, moved)
        end = start + size
        if data[end - crc.PROPERTY_CRC_SIZE : end].startswith(crc.PROPERTY_CRC_NAME):
            checksum = crc.masked_crc32(memoryview(data)[start : end - crc.PROPERTY_CRC_SIZE])
            data[end - crc.PROPERTY_CRC_SIZE : end] = crc.property_crc(checksum)

    def _room(self, at: int) -> int:
        return self.file_size - at % self.file_size - BLANK_SIZE

    def _end_file(self, at: int) -> int:
        left = self.file_size - at % self.file_size
        self._put(at, _BLANK.pack(left, MAGIC_BLANK))
        return at + left

    def _fill(self, begin: int, end: int, claims: _Claims, around: Surroundings, number: int) -> None:
        """Fill [begin, end), which may be in several files."""
        while begin < end:
            file_begin = begin // self.file_size * self.file_size
            file_end = file_begin + self.file_size
            part_end = min(end, file_end)
            if number == NO_HOLE and part_end == file_end:
                self._end_file(begin)
            else:
                at = self._put_claims(begin, part_end, claims, around)
                span = Span(at, part_end, file_begin, file_end)
                try:
                    for record in placeholder_records(span, (), HOLE, around).records if at < part_end else ():
                        self._put(record.physical_offset, record.data)
                except ValueError as error:
                    raise BadRequest(f"a hole cannot be filled: {error}", hint="use --holes compact") from error
            begin = part_end
        self.dropped += len(claims)

    def _put_claims(self, at: int, end: int | None, claims: _Claims, around: Surroundings) -> int:
        """Write placeholders from `at` on, up to `end` if that is given.

        They are taken from `claims`. Returns where they end. Those without room before `end` are left.
        """
        while claims:
            size = least_size((claims.first,), around) + sign_size(HOLE) + _BODY_SIZE
            if end is not None and at + size + max(filler_size_min(around), BLANK_SIZE) > end:
                break
            if end is None and size > self._room(at):
                at = self._end_file(at)
            claim = claims.take()
            if size > self._room(at):  # no record has such a topic
                self.dropped += 1
                continue
            self._put(at, claimed_record(at, size, (claim,), HOLE, around))
            at, self.placeholders = at + size, self.placeholders + 1
        return at


def _first_message(found: Survey, run: Run) -> Message | None:
    size = int.from_bytes(found.read(run, run.begin, 4), "big")
    return _decoded(found.read(run, run.begin, size), run.begin)


def _decoded(raw: bytes, physical_offset: int) -> Message | None:
    decoded = message.decode(raw, 0, physical_offset, len(raw))
    return decoded if isinstance(decoded, Message) else None


class _Claims:
    """The queue offsets that lack a message in one hole; there can be millions."""

    def __init__(self) -> None:
        self._ranges: deque[tuple[str, int, range]] = deque()

    def __len__(self) -> int:
        return sum(len(offsets) for _, _, offsets in self._ranges)

    def __bool__(self) -> bool:
        return bool(self._ranges)

    @property
    def first(self) -> Claim:
        topic, queue_id, offsets = self._ranges[0]
        return Claim(topic, queue_id, offsets[0])

    def add(self, topic: str, queue_id: int, offsets: range) -> None:
        if offsets:
            self._ranges.append((topic, queue_id, offsets))

    def take(self) -> Claim:
        found = self.first
        topic, queue_id, offsets = self._ranges.popleft()
        if len(offsets) > 1:
            self._ranges.appendleft((topic, queue_id, offsets[1:]))
        return found


def _claims_of(found: Survey) -> dict[int, _Claims]:
    """Return what the queues lack in each hole, but no more than its bytes can hold."""
    claims: dict[int, _Claims] = {}
    for (topic, queue_id), queue in found.queues.items():
        for begin, end, number in queue.missing:
            hole_begin, hole_end = found.holes[number]
            most = (hole_end - hole_begin) // message.MIN_SIZE
            offsets = range(begin, min(end, begin + most))
            claims.setdefault(number, _Claims()).add(topic, queue_id, offsets)
    return claims
