"""What can be had back from sources: the records of one generation.

With their grades, and what is missing between.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmqctl.errors import BadRequest
from rmqctl.forensics.salvage.carve import BLOCK_SIZES, HEAD_ROOM, OFFSET_MAX, V6, Piece, carve, head_at, is_entry
from rmqctl.forensics.salvage.coverage import QueueCounter, Queues, joined
from rmqctl.forensics.salvage.generations import generations_of
from rmqctl.forensics.salvage.joins import Blocks, Extent, Joined, Joiner
from rmqctl.forensics.salvage.witnesses import UniqueKeyTimes, is_end_proven
from rmqctl.format import host, message
from rmqctl.format.message import MIN_SIZE, Message
from rmqctl.format.timestamp import rfc3339
from rmqctl.kernels import scan
from rmqctl.store.dledger.dledger_entry import ENTRY_HEADER
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rmqctl.forensics.salvage.generations import Generation
    from rmqctl.forensics.salvage.sources import Source
    from rmqctl.format.columns import Bytes, Rows
    from rmqctl.store.config.topics import QueueKey

GRADES = ("whole", "bodyDamaged", "headerOnly", "jointNotProven")
READ_SIZE = 2 * 1024 * 1024
MEMORY_BASE = 256 * 1024 * 1024  # bytes: numpy, numba, kernels, buffers, and the build of the queues
MISSING_MAX = 10_000  # ranges of queue offsets that are listed


class Run(NamedTuple):
    """Whole records that follow one another in the log."""

    begin: int  # physical offset
    size: int  # bytes
    extents: tuple[Extent, ...]
    messages: int = 0
    queues: Queues | None = None  # None: they, and the messages, were not counted

    @property
    def end(self) -> int:
        """The physical offset after the last record."""
        return self.begin + self.size


@dataclass
class QueueCoverage:
    """The messages of one queue that came back."""

    messages: int = 0
    first: int = 0  # queue offset
    last: int = -1
    missing: list[tuple[int, int, int]] = field(default_factory=list)  # queue offsets [begin, end), number of the hole


@dataclass
class Survey:
    """The log that comes back. `holes` are [begin, end) in physical offsets."""

    sources: Sequence[Source]
    generations: Sequence[Generation]
    chosen: int
    runs: list[Run]
    holes: list[tuple[int, int]]
    grades: Counter[str]
    joined: int  # of the whole records, those that were put together from blocks
    ambiguous: int
    nested: int
    blanks: dict[int, int]  # where the blanks at the ends of log files begin and end
    queues: dict[QueueKey, QueueCoverage] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The bytes of the whole records."""
        return sum(run.size for run in self.runs) - max(self.entries - len(self.runs), 0) * ENTRY_HEADER.size

    @property
    def entries(self) -> int:
        """The number of records with a header of DLedger before them."""
        return sum(piece.entries for piece in self.generations[self.chosen].pieces) if self.generations else 0

    def begin_at(self, physical_offset: int) -> None:
        """Let the log begin at or before its first record: what is between is a hole.

        Where a log begins at 0, its queues do as well.
        """
        first = self.runs[0].begin
        if physical_offset == first:
            return
        self.holes.insert(0, (physical_offset, first))
        for queue in self.queues.values():
            queue.missing = [(begin, end, number + 1) for begin, end, number in queue.missing]
            if physical_offset == 0 and queue.first:
                queue.missing.insert(0, (0, queue.first, 0))

    def columns(self, run: Run) -> Iterator[tuple[int, Rows, Bytes]]:
        """Yield the records of a run.

        These are the physical offset of the buffer, rows of RECORD_COLUMNS, and the buffer. Raises BadRequest if a
        source has changed since.
        """
        rows = np.empty(READ_SIZE // MIN_SIZE + 1, scan.RECORD_COLUMNS)
        raw = np.zeros(0, np.uint8)
        at, need = run.begin, READ_SIZE
        while at < run.end:
            at, raw, count = _walk(at, raw, rows)
            if not count:
                fresh = np.frombuffer(self.read(run, at, min(need, run.end - at)), np.uint8)
                at, raw, count = _walk(at, fresh, rows)
            if not count and need <= READ_SIZE and len(raw) > MIN_SIZE:
                need = max(int.from_bytes(raw[:4].tobytes(), "big"), 1)
                if len(raw) < need:
                    continue
            decoded = message.decode(raw.data, 0, at, len(raw)) if not count and len(raw) >= need else None
            if isinstance(decoded, Message):  # a record that only the decoder knows
                rows[0], count = _row(decoded), 1
            if not count:
                changed = self.sources[run.extents[0].source].path
                raise BadRequest("a source changed while it was read", path=str(changed), hint="salvage a copy of it")
            yield at, rows[:count], raw
            end = int(rows[count - 1]["position"]) + int(rows[count - 1]["size"])
            at, raw, need = at + end, raw[end:], READ_SIZE

    def read(self, run: Run, physical_offset: int, size: int) -> bytes:
        """Return bytes of a run."""
        parts, at = [], run.begin
        for extent in run.extents:
            low, high = max(physical_offset, at), min(physical_offset + size, at + extent.size)
            if low < high:
                position = extent.position + low - at
                zeros = extent.source < 0
                parts.append(bytes(high - low) if zeros else self.sources[extent.source].read(position, high - low))
            at += extent.size
        return b"".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return the keys of the document of `salvage`."""
        whole = self.grades["whole"]
        return {
            "records": self.grades.total(),
            "messages": whole,
            "bytes": self.size,
            "grades": {grade: self.grades[grade] for grade in GRADES},
            "joined": self.joined,
            "ambiguousRecords": self.ambiguous,
            "nested": self.nested,
            "ranges": [{"begin": begin, "end": end} for begin, end in _ranges(self.runs)],
            "holes": [{"begin": begin, "end": end} for begin, end in self.holes],
            "queues": [
                {
                    "topic": topic,
                    "queueId": queue_id,
                    "messages": queue.messages,
                    "minOffset": queue.first,
                    "maxOffset": queue.last + 1,
                    "lacks": [{"begin": begin, "end": end} for begin, end, _ in queue.missing],
                }
                for (topic, queue_id), queue in sorted(self.queues.items())
            ],
            "generations": [_of_generation(one, number, self.chosen) for number, one in enumerate(self.generations)],
            "sources": [self._of_source(number) for number in range(len(self.sources))],
        }

    def _of_source(self, number: int) -> dict[str, Any]:
        source = self.sources[number]
        used = sum(extent.size for run in self.runs for extent in run.extents if extent.source == number)
        return {
            "path": str(source.path),
            "size": source.size,
            "blockSize": source.block_size or None,
            "unreadableBytes": source.unreadable,
            "bytes": used,
        }


def _walk(at: int, raw: Bytes, rows: Rows) -> tuple[int, Bytes, int]:
    """Read records into `rows`, after a header of DLedger if one is there.

    Returns where they begin, their bytes, and how many there are.
    """
    if is_entry(raw[: ENTRY_HEADER.size].data, at):
        at, raw = at + ENTRY_HEADER.size, raw[ENTRY_HEADER.size :]
    return at, raw, scan.walk(raw, at, OFFSET_MAX, rows, check_bodies=False) if len(raw) else 0


def _row(record: Message) -> tuple[int, ...]:
    """Return the fields of RECORD_COLUMNS of the record at the start of a buffer."""
    body_start = message.HEADS[record.sys_flag & V6].size
    lengths = len(record.body), len(record.topic_bytes), len(record.properties_bytes)
    where = 0, record.queue_offset, record.store_timestamp, body_start
    return (*where, record.size, record.queue_id, record.sys_flag, *lengths)


def _of_generation(one: Generation, number: int, chosen: int) -> dict[str, Any]:
    all_of_it = [*one.pieces, *one.heads]
    return {
        "number": number,
        "chosen": number == chosen,
        "messages": sum(piece.messages for piece in one.pieces),
        "bytes": one.size,
        "storeHosts": sorted(str(host.decode(raw)) for raw in one.hosts if raw)[:8],
        "minPhyOffset": min((piece.begin for piece in all_of_it), default=0),
        "maxPhyOffset": max((piece.end for piece in one.pieces), default=0),
        "firstStoreTime": rfc3339(min((piece.first_time for piece in all_of_it), default=0)),
        "lastStoreTime": rfc3339(one.last_time),
    }


def memory_of(sources: Sequence[Source]) -> int:
    """Return how many bytes of memory a survey and a new store need at most.

    Each 100,000 pieces of logs need some 120 MiB more.
    """
    return sum(min(source.size, source.allocated) for source in sources) // BLOCK_SIZES[0] * 16 + MEMORY_BASE


def survey(
    sources: Sequence[Source],
    generation: int = 0,
    on_progress: Callable[[int], None] = lambda _: None,
    threads: int = 1,
) -> Survey:
    """Look for records in all sources, and choose what comes back.

    `generation` is the number of the log that is wanted, of several; 0 is the one with most bytes. Raises BadRequest if
    there is no such log, and OSError.
    """
    pieces, blanks, nested = carve(sources, on_progress, threads)
    generations = generations_of(pieces, sources, blanks)
    if generation >= max(len(generations), 1):
        raise BadRequest(f"the sources have {counted(len(generations), 'log')}, numbered from 0", path="--generation")
    found = Survey(sources, generations, generation, [], [], Counter(), 0, 0, nested, blanks)
    if generations:
        _fill(found, pieces)
    return found


def _fill(found: Survey, pieces: Sequence[Piece]) -> None:
    chosen = found.generations[found.chosen]
    heads = chosen.heads
    put: list[Joined] = []
    times = UniqueKeyTimes(chosen.pieces, found.sources)
    chosen.leave_doubtful_ends([is_end_proven(found.sources[one.source], one, times) for one in chosen.pieces])
    if any(not head.framed for head in heads):
        size = min((source.block_size for source in found.sources if source.block_size), default=BLOCK_SIZES[0])
        put = Joiner(chosen, Blocks(pieces, found.sources, size), times).join()
    good = [one for one in put if one.is_proven and one.candidates == 1]
    runs = [Run(one.begin, one.size, tuple(one.extents)) for one in good]
    for one in chosen.pieces:
        extent = Extent(one.source, one.position, one.size)
        runs.append(Run(one.begin, one.size, (extent,), one.messages, one.queues))
    found.runs = _without_overlap(found, runs)
    begins = [run.begin for run in found.runs]
    found.joined = sum(run.extents != () and len(run.extents) > 1 for run in found.runs)
    found.ambiguous = sum(one.candidates > 1 for one in put)
    grades = {head.begin: "bodyDamaged" if head.framed else "headerOnly" for head in heads}
    grades |= {one.begin: "jointNotProven" for one in put}
    for begin, grade in grades.items():
        at = bisect_right(begins, begin) - 1
        if at < 0 or begin >= found.runs[at].end:
            found.grades[grade] += 1
    found.holes = [
        (one.end, other.begin)
        for one, other in zip(found.runs, found.runs[1:], strict=False)
        if one.end < other.begin != found.blanks.get(one.end)
    ]
    _count_queues(found)


def _ranges(runs: Sequence[Run]) -> Iterator[tuple[int, int]]:
    begins = [run.begin for run in runs]
    ends = [run.end for run in runs]
    yield from zip(sorted(set(begins) - set(ends)), sorted(set(ends) - set(begins)), strict=True)


def _without_overlap(found: Survey, runs: list[Run]) -> list[Run]:
    """Return the runs in log order, without overlap.

    A copy begins where the run before it ends, if a record begins there in both.
    """
    kept: list[Run] = []
    for run in sorted(runs, key=lambda run: (run.begin, -run.size)):
        covered = kept[-1].end if kept else run.begin
        if run.end <= covered:
            continue
        if run.begin < covered:
            head = head_at(found.read(run, covered, HEAD_ROOM))
            if head is None or head.physical_offset != covered or len(run.extents) > 1:
                continue
            extent, left = run.extents[0], run.end - covered
            extent = extent._replace(position=extent.position + covered - run.begin, size=left)
            kept.append(Run(covered, left, (extent,)))
        else:
            kept.append(run)
    return kept


def _count_queues(found: Survey) -> None:
    """Count the messages of each queue, and what its offsets lack between them."""
    ends = [end for _, end in found.holes]
    last_hole: dict[tuple[bytes, int], int] = {}
    coverage: dict[tuple[bytes, int], QueueCoverage] = {}
    ranges = 0
    for run in found.runs:
        number = bisect_right(ends, run.begin) - 1
        messages, queues = (run.messages, run.queues) if run.queues is not None else _counted(found, run)
        found.grades["whole"] += messages
        for key, (count, first, last) in queues.items():
            queue = coverage.get(key)
            if queue is None:
                is_first_lost = number >= 0 and found.runs[0].begin == 0
                queue = coverage[key] = QueueCoverage(0, first, -1 if is_first_lost else first - 1)
            if first > queue.last + 1 and number > last_hole.get(key, -1) and ranges < MISSING_MAX:
                queue.missing.append((queue.last + 1, first, number))
                ranges += 1
            queue.messages += count
            queue.last = max(queue.last, last)
            last_hole[key] = number
    found.queues = {(topic.decode("utf-8", "replace"), queue_id): one for (topic, queue_id), one in coverage.items()}


def _counted(found: Survey, run: Run) -> tuple[int, Queues]:
    counter, queues, messages = QueueCounter(), Queues(), 0
    for _, rows, raw in found.columns(run):
        queues, messages = joined(queues, counter.count(raw, rows)), messages + len(rows)
    return messages, queues
