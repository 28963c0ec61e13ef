"""The plan of `rmqctl erase`: which records, and where else their bytes are.

1. One scan of the log finds the records that are asked for, and where no record is: behind blanks, in damage, behind
   the end.
2. Every file below the store is searched for their bodies and keys (`content.py`). A record with the UNIQ_KEY of one
   that is erased is a copy, and so is what a client traced of it: they are erased too, and the search goes on with
   their texts, until nothing new is found.
3. Where no record is, texts and pieces of them become zeros. Elsewhere they remain, and are named.

A record is written over in its place (`erased_message`), its units lose the hash of its tags, and the index is built
anew without its keys.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmqctl.errors import BadRequest, LayoutNotSupported
from rmqctl.forensics.message_filter import Filter
from rmqctl.format.body import client_trace
from rmqctl.format.message import BLANK_SIZE, Blank, Damage, Message
from rmqctl.format.properties import UNIQ_KEY
from rmqctl.kernels import dispatch_scan, filter_scan, index_build, scan
from rmqctl.kernels.warm_up import warm_up
from rmqctl.logfile.system.storage import Kind, tree_of
from rmqctl.operations.erase.content import BODY, KEY, PIECE_MIN, Content, Pieces, Search, TextMatch, is_word
from rmqctl.operations.erase.units import unit_writes
from rmqctl.operations.placeholder.record import erased_message
from rmqctl.operations.rebuild import rebuild_plan
from rmqctl.operations.rebuild.rebuild import Rebuild
from rmqctl.operations.rebuild.selection import Selection
from rmqctl.operations.repair.refill import check_reads_all, refill_changes
from rmqctl.store.compaction.compaction_log import compaction_queues, records
from rmqctl.store.config.store_path import CHECKPOINT, SIGN_OF_5_4
from rmqctl.store.config.topics import TRACE_TOPIC
from rmqctl.store.journal.changes import Write, Zero
from rmqctl.store.journal.journals import JOURNAL_FOLDER, JournalState, list_journals, rmqctl_folder
from rmqctl.store.journal.pre_image import merged, nonzero_pieces
from rmqctl.store.read.commit_log import SMALL_SEGMENT_SIZE, ScanSummary, message_of
from rmqctl.store.read.file_scan import RecordRun
from rmqctl.store.read.index.index_database import index_database
from rmqctl.store.read.index.tag_index import indexes_tags
from rmqctl.store.read.version_guess import guess_profile
from rmqctl.store.rocksdb.message_rows import half_rows, timer_rows
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from rmqctl.format.profile import Profile
    from rmqctl.logfile.column_reader import Columns
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.journal.changes import Change
    from rmqctl.store.read.read_only_store import Fingerprint, ReadOnlyStore

BLOCK_SIZE = 4 * 1024 * 1024
COPIES_MAX, COPIES_SIZE_MAX = 100_000, 256 * 1024 * 1024  # bytes; they are kept in memory
REMAINS_LISTED = 1_000
TRACE_SIGN_SIZE = 32  # bytes; a body begins with the kind of its first record
Range = tuple[int, int]  # [begin, end)


class Wanted(NamedTuple):
    """The messages that are asked for: one of the fields is set."""

    key: str | None = None
    unique_key: str | None = None
    match: str | None = None  # in the body or in the properties
    offsets: tuple[int, ...] | None = None  # physical, ascending


class Copy(NamedTuple):
    """A record that is erased."""

    path: str
    position: int  # in the file
    message: Message
    is_compacted: bool  # it is in compaction/, and its physical offset is a place there

    def to_json(self) -> dict[str, Any]:
        """Return the keys of one entry of `erased`."""
        of = self.message
        names = ("physicalOffset", "topic", "queueId", "queueOffset", "size", "path")
        values = (of.physical_offset, of.topic, of.queue_id, of.queue_offset, of.size, self.path)
        return dict(zip(names, values, strict=True))


class Remaining(NamedTuple):
    """A body or a key that stays where it is."""

    path: str
    position: int  # in the file
    what: str  # body or key
    physical_offset: int | None  # of the record that has it; None: it is in no record

    def to_json(self) -> dict[str, Any]:
        """Return the keys of one entry of `remains`."""
        names = ("path", "fileOffset", "what", "physicalOffset")
        return dict(zip(names, self, strict=True))


@dataclass(frozen=True)
class ErasePlan:
    """What is erased, what else is overwritten, and what remains."""

    copies: tuple[Copy, ...]  # by path and position
    units: tuple[Write, ...]  # of queues
    zeros: tuple[Zero, ...]  # where no record is
    rebuilds_index: bool
    refills_queues: bool  # their database is removed, and the next start fills them
    remains: tuple[Remaining, ...]  # the first ones
    remains_count: int  # of all
    journals: tuple[str, ...]  # of earlier changes, that have the texts
    has_leftovers: bool  # of an interrupted change, which the next one removes
    notes: tuple[str, ...]
    fingerprint: Fingerprint

    @property
    def is_due(self) -> bool:
        """Whether there is something to erase, or to remove."""
        return bool(self.copies or self.zeros or self.journals or self.has_leftovers)

    def to_json(self) -> dict[str, Any]:
        """Return the keys of the document of `erase`."""
        return {
            "messages": len(self.copies),
            "erased": [copy.to_json() for copy in self.copies],
            "zeroedBytes": sum(zero.end - zero.begin for zero in self.zeros),
            "remains": [one.to_json() for one in self.remains],
            "remainsCount": self.remains_count,
            "journals": list(self.journals),
            "notes": list(self.notes),
        }


@dataclass
class _Scanned:
    """What one scan of the log found."""

    reached: int
    selected: list[Message] = field(default_factory=list)
    damaged: list[Message] = field(default_factory=list)  # that are asked for, too
    gaps: list[Range] = field(default_factory=list)  # physical offsets where no record is

    def cover(self, begin: int, end: int) -> None:
        if begin > self.reached:
            self.gaps.append((self.reached, begin))
        self.reached = max(self.reached, end)


class Erasure:
    """Plans the erasure of messages of `store`, and makes its changes."""

    def __init__(self, store: ReadOnlyStore, wanted: Wanted, profile: Profile | None = None, threads: int = 1) -> None:
        self._store = store
        self._profile = profile
        self._log = store.commit_log
        self._wanted = wanted
        self._threads = threads
        self._content = Content()
        self._copies: dict[tuple[str, int], Copy] = {}  # by path and position
        self._size = 0  # of all copies, in bytes
        self._gaps: list[Range] = []
        self._notes: list[str] = []
        self._match = None if wanted.match is None else TextMatch(_bytes(wanted.match))

    def warm_up(self) -> None:
        """Compile or load the kernels, unless the store is small."""
        warm_up(scan, filter_scan, dispatch_scan, index_build, size=self._store.allocated)

    def plan(self) -> ErasePlan:
        """Return the plan.

        Raises BadRequest if there are too many records, or the version is not clear, LayoutNotSupported if a database
        has their keys, Unreadable and OSError.
        """
        store = self._store
        fingerprint = store.fingerprint()
        journals = list_journals(store.storage, store.path.root)
        self._select()
        found = self._search()
        zeros = tuple(self._zeros())
        done, left = (
            {entry.folder.name for entry in journals if entry.state is state}
            for state in (JournalState.DONE, JournalState.NOT_BEGUN)
        )
        journal_of = {path: self._journal_of(path) for path in found}
        remains: list[Remaining] = []
        remains_count, holding = 0, set()
        for one in self._remaining(found, zeros):
            if journal_of[one.path] in done | left:
                holding.add(journal_of[one.path])
                continue
            remains_count += 1
            remains += [one] if remains_count <= REMAINS_LISTED else []
        copies = tuple(self._copies[key] for key in sorted(self._copies))
        self._check_messages_database()
        refills = bool(copies) and store.path.queue_database is not None
        if refills:
            check_reads_all(store, self._profile or guess_profile(store))
        rebuilds_index = bool(store.index.files) and any(not copy.is_compacted for copy in copies)
        if rebuilds_index:
            indexes_tags(store, self._profile)  # raises BadRequest while nothing is changed
        if self._content.short and copies:
            texts = counted(self._content.short, "key or body", "keys and bodies")
            self._notes.append(f"{texts} of fewer than 8 bytes: only these records lose it")
        return ErasePlan(
            copies,
            tuple(write for copy in copies if not copy.is_compacted for write in unit_writes(store, copy.message)),
            zeros,
            rebuilds_index,
            refills,
            tuple(remains),
            remains_count,
            tuple(sorted(done & holding)),
            bool(left),
            tuple(self._notes),
            fingerprint,
        )

    def changes(self, plan: ErasePlan, staging: Path) -> list[Change]:
        """Return the changes; the new index is built in `staging`.

        Raises ChangedSince, BadRequest, Unreadable and OSError.
        """
        self._store.check_as_it_was(plan.fingerprint)
        found: list[Change] = [
            Write(copy.path, copy.position, erased_message(copy.message, is_compacted=copy.is_compacted))
            for copy in plan.copies
        ]
        found += [*plan.units, *plan.zeros]
        if plan.rebuilds_index:
            tags = indexes_tags(self._store, self._profile)
            selection = Selection(queues=False, index=True, all_topics=True, tags=tags)
            erased = [copy.message.physical_offset for copy in plan.copies if not copy.is_compacted]
            rebuild = Rebuild(self._store, selection, staging, threads=self._threads, erased=erased)
            rebuild.run()
            rebuild.check()
            found += rebuild_plan.changes(rebuild, self._store, staging)
            self._store.check_as_it_was(plan.fingerprint)
        if plan.refills_queues:
            found = [change for change in found if change.path != CHECKPOINT]
            found += refill_changes(self._store, staging)
        return found

    def _select(self) -> None:
        wanted = self._wanted
        places = None if wanted.offsets is None else np.array(wanted.offsets, np.int64)
        found = self._scan(Filter(key=wanted.key or wanted.unique_key, body=self._match, places=places))
        self._gaps = found.gaps
        for message in filter(self._is_asked, found.selected):
            self._add(message)
        for message in filter(self._is_asked, found.damaged):
            self._content.add(message)
            self._notes.append(f"the record at {message.physical_offset} is damaged: what it has becomes zeros")
        if wanted.offsets is not None:
            there = {copy.message.physical_offset for copy in self._copies.values()}
            first = next((offset for offset in wanted.offsets if offset not in there), None)
            if first is not None:
                raise BadRequest("no whole record begins", path=str(self._store.path.root), offset=first)
        for text in (wanted.key, wanted.unique_key, wanted.match):
            self._content.add_text(_bytes(text or ""), KEY)
        for queue in compaction_queues(self._store):
            for file in queue.log.values():
                for item in records(file):
                    if isinstance(item, Message) and (self._is_known(item) or self._is_asked(item)):
                        self._add(item, file)
            queue.close()

    def _is_asked(self, message: Message) -> bool:
        wanted = self._wanted
        if wanted.unique_key is not None:
            return message.properties.get(UNIQ_KEY) == wanted.unique_key
        if self._match is not None:
            return self._match.is_in(message)
        return wanted.key is None or Filter(key=wanted.key).matches(message)

    def _is_known(self, message: Message) -> bool:
        return message.properties.get(UNIQ_KEY) in self._content.unique_keys

    def _scan(self, wanted: Filter) -> _Scanned:
        found = _Scanned(self._log.min_offset)

        def take(columns: Columns) -> list[Message]:
            return columns.messages(columns.rows[wanted.rows(columns)])

        for item in self._log.scan_columns(ScanSummary(), take, threads=self._threads, segment_size=SMALL_SEGMENT_SIZE):
            message = message_of(item) if not isinstance(item, RecordRun) else None
            is_wanted = message is not None and wanted.matches(message)
            if isinstance(item, RecordRun):
                found.selected += item.result
            elif message is not None and is_wanted:
                (found.damaged if isinstance(item, Damage) else found.selected).append(message)
            if isinstance(item, Blank):
                found.cover(item.physical_offset, item.physical_offset + BLANK_SIZE)
            elif not isinstance(item, Damage) or (message is not None and not is_wanted):
                found.cover(item.physical_offset, item.end)
        found.cover(self._log.queue.end, self._log.queue.end)
        return found

    def _add(self, message: Message, compacted: MappedFile | None = None) -> None:
        file = compacted or self._log.queue.find(message.physical_offset)
        if file is None or (file.name, message.physical_offset - file.file_from_offset) in self._copies:
            return
        position = message.physical_offset - file.file_from_offset
        self._copies[file.name, position] = Copy(file.name, position, message, compacted is not None)
        if not _is_trace(message):  # it has the keys of other messages, too
            self._content.add(message)
        self._size += message.size
        if len(self._copies) > COPIES_MAX or self._size > COPIES_SIZE_MAX:
            what = f"more than {COPIES_MAX} records, or {COPIES_SIZE_MAX} bytes: nothing was changed"
            raise BadRequest(what, path=str(self._store.path.root), hint="erase them in parts, with --offsets")

    def _search(self) -> dict[str, array[int]]:
        """Search until no more copies are found.

        Returns position, record and kind of what each path has.
        """
        found: dict[str, array[int]] = {}
        searched: dict[bytes, str] = {}
        while new := {text: kind for text, kind in self._content.texts.items() if text not in searched}:
            searched |= new
            search, longest = Search(new), max(map(len, new))
            for path in self._files():
                for one in self._search_file(path, search, longest):
                    record = -1 if one.physical_offset is None else one.physical_offset
                    found.setdefault(one.path, array("q")).extend((one.position, record, one.what == BODY))
        return found

    def _remaining(self, found: dict[str, array[int]], zeros: Iterable[Zero]) -> Iterator[Remaining]:
        """Yield what was found, without what is erased or becomes zeros."""
        gone, zeroed = self._ranges(), _by_path((zero.path, zero.begin, zero.end) for zero in zeros)
        for path, numbers in found.items():
            ranges = merged([*gone.get(path, []), *zeroed.get(path, [])])
            rows = iter(numbers)
            for position, record, is_body in zip(rows, rows, rows, strict=True):
                if not _is_in(ranges, position):
                    yield Remaining(path, position, BODY if is_body else KEY, None if record < 0 else record)

    def _files(self) -> Iterator[Path]:
        root = self._store.path.root
        for folder in (root, *(path for path in self._store.path.commitlogs if not path.is_relative_to(root))):
            for path, stamp in tree_of(self._store.storage.of_disk, folder):
                if stamp.kind is Kind.FILE:
                    yield path

    def _search_file(self, path: Path, search: Search, longest: int) -> Iterator[Remaining]:
        name = self._store.storage.of_disk.display(path)
        log = next((file for file in self._log.queue.files if file.name == name), None)
        hits = self._hits(path, search, longest)
        if log is not None:
            yield from self._in_records(log, hits)
            return
        for position, text, is_whole in hits:
            if is_whole or self._kind(text) == BODY or self._is_match(text):
                yield Remaining(name, position, self._kind(text), None)

    def _hits(self, path: Path, search: Search, longest: int) -> Iterator[tuple[int, bytes, bool]]:
        """Yield where a file has a text, ascending, and whether it is a whole word."""
        size = self._store.storage.of_disk.present(path).size
        for start, stop, at, data in self._blocks(path, 0, size, before=1, behind=longest):  # to say where a word ends
            for place, text in sorted(search.texts(data)):
                if start <= at + place < stop:
                    yield at + place, text, is_word(data, place, place + len(text))

    def _blocks(
        self, path: Path, begin: int, end: int, *, before: int, behind: int = 0
    ) -> Iterator[tuple[int, int, int, bytes]]:
        """Yield blocks of a file that are not only zeros.

        Each comes as its begin, its end, and where the data begins, with up to `before` bytes before the block and
        `behind` bytes behind it.
        """
        storage = self._store.storage.of_disk
        descriptor = storage.open(path)
        try:
            for first, last in nonzero_pieces(storage, descriptor, begin, end):
                for start in range(first, last, BLOCK_SIZE):
                    at, stop = max(start - before, begin), min(start + BLOCK_SIZE, last)
                    yield start, stop, at, storage.read(descriptor, at, stop + behind - at)
        finally:
            storage.close(descriptor)

    def _kind(self, text: bytes) -> str:
        return self._content.texts[text]

    def _is_match(self, text: bytes) -> bool:
        """Return whether a text is asked for as part of longer words, too."""
        return text == _bytes(self._wanted.match or "")

    def _in_records(self, file: MappedFile, hits: Iterator[tuple[int, bytes, bool]]) -> Iterator[Remaining]:
        """Add the copies among the records that have a text; yield the other ones."""
        base = file.file_from_offset
        erased = self._ranges().get(file.name, [])
        left = (
            (base + position, text)
            for position, text, _ in hits
            if not _is_in(erased, position) and not _is_in(self._gaps, base + position)
        )
        hit = next(left, None)
        for item in self._log.scan(start=base, stop=file.end) if hit is not None else ():
            message = message_of(item)
            while hit is not None and hit[0] < item.end:
                place, text = hit
                hit = next(left, None)
                if message is None or place < item.physical_offset:
                    continue
                if isinstance(item, Message) and self._is_copy(item, text):
                    self._add(item)
                elif _has(message, text, in_part=self._is_match(text)):
                    yield Remaining(file.name, place - base, self._kind(text), item.physical_offset)

    def _is_copy(self, message: Message, text: bytes) -> bool:
        is_asked = self._wanted.match is not None and self._is_asked(message)
        return self._is_known(message) or is_asked or (_is_trace(message) and _has(message, text))

    def _zeros(self) -> Iterator[Zero]:
        pieces = Pieces([*self._content.texts, *self._content.pairs])
        for begin, end in self._gaps:
            for file in self._log.queue.files:
                first, last = max(begin - file.file_from_offset, 0), min(end - file.file_from_offset, file.size)
                yield from self._zeros_in(file, first, last, pieces) if first < last else ()
        for queue in compaction_queues(self._store):
            for file in queue.log.values():
                reached = 0
                for item in records(file):
                    if isinstance(item, Message):
                        yield from self._zeros_in(file, reached, item.physical_offset - file.file_from_offset, pieces)
                        reached = item.end - file.file_from_offset
                yield from self._zeros_in(file, reached, file.size, pieces)
            queue.close()

    def _zeros_in(self, file: MappedFile, begin: int, end: int, pieces: Pieces) -> Iterator[Zero]:
        for _, _, at, data in self._blocks(file.path, begin, end, before=4 * PIECE_MIN):
            yield from (Zero(file.name, at + low, at + high) for low, high in pieces.ranges(data))

    def _check_messages_database(self) -> None:
        """Raise LayoutNotSupported if rocksdbstore/ has keys of a message."""
        path = self._store.path
        places = {copy.message.physical_offset for copy in self._copies.values() if not copy.is_compacted}
        index, database = index_database(path), path.message_database
        tables: list[Iterable[Any]] = [] if index is None else [index.rows()]
        tables += [] if database is None else [timer_rows(database), half_rows(database)]
        if any(row.physical_offset in places for table in tables for row in table):
            what = f"{SIGN_OF_5_4}/ has keys of these messages in RocksDB, which rmqctl does not write"
            hint = "delete the folder while the broker is stopped, and create `abort`: the next start fills it anew"
            raise LayoutNotSupported(what, path=str(path.root), hint=hint)

    def _journal_of(self, path: str) -> str | None:
        """Return the name of the journal that has it, or None."""
        folder = self._store.storage.display(rmqctl_folder(self._store.path.root) / JOURNAL_FOLDER) + "/"
        return path.removeprefix(folder).partition("/")[0] if path.startswith(folder) else None

    def _ranges(self) -> dict[str, list[Range]]:
        """Return where each file has copies."""
        return _by_path((copy.path, copy.position, copy.position + copy.message.size) for copy in self._copies.values())


def _is_trace(message: Message) -> bool:
    return message.topic == TRACE_TOPIC or client_trace.is_trace(bytes(message.body[:TRACE_SIGN_SIZE]))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _by_path(places: Iterable[tuple[str, int, int]]) -> dict[str, list[Range]]:
    """Return the ranges of each file, ascending."""
    found: dict[str, list[Range]] = {}
    for path, begin, end in sorted(places):
        found.setdefault(path, []).append((begin, end))
    return found


def _is_in(ranges: list[Range], position: int) -> bool:
    at = bisect_right(ranges, position, key=lambda each: each[0]) - 1
    return at >= 0 and position < ranges[at][1]


def _has(message: Message, text: bytes, *, in_part: bool = False) -> bool:
    """Return whether a record has a text as a whole word, or `in_part` of one."""
    for part in (bytes(message.body), message.properties_bytes):
        at = part.find(text)
        while at >= 0:
            if in_part or is_word(part, at, at + len(text)):
                return True
            at = part.find(text, at + 1)
    return False
