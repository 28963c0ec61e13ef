"""Read the commit log from its first byte to its end.

A strict scan stops at the first damage, as a broker's recovery does unless the damage `is_served`. A lenient scan
reports each damage and reads to the end of the last file; after a damage, it continues at the next record with right
lengths and the right PHYSICALOFFSET.

The log ends where a record would begin with eight zero bytes. A broker leaves only zeros after it: in the rest of the
last file, and in files allocated in advance. Any other byte there is damage: `hole` if whole records follow the zeros
of a log file, and `bytes-behind-end` if only other data does. `no-blank` is a log file that does not end with a blank,
although the next file continues the log.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from rmqctl.format.damage_kinds import codes
from rmqctl.format.message import BAD_BODY_CRC, BLANK_SIZE, Blank, Damage, Message
from rmqctl.logfile.mapped_file_queue import OFFSET_MAX
from rmqctl.logfile.record_reader import POINT_WINDOW_SIZE, RecordReader, shifted_parts
from rmqctl.store.dledger.dledger_entry import ENTRY_HEADER, decode_entry_header
from rmqctl.store.dledger.entry_reader import EntryReader
from rmqctl.store.read.file_scan import FileScan, RecordRun, ScanItem, ZeroTail, end_position, next_readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.logfile.mapped_file_queue import MappedFileQueue
    from rmqctl.store.read.file_scan import OnRun

NO_BLANK = "no-blank"
UNREADABLE = codes(is_read=False, has_record=True)
FILE_OVERLAP = "file-overlap"
T = TypeVar("T")
NOT_READ = codes(is_read=False)
SERVED = codes(is_served=True)
PROGRESS_BYTES = 4 * 1024 * 1024
SMALL_SEGMENT_SIZE = 2 * 1024 * 1024  # if the results of `take` need more memory than the records


@dataclass
class ScanSummary:
    """The current counts and offsets of a scan; offsets and sizes are in bytes."""

    bytes_scanned: int = 0
    messages: int = 0
    blanks: int = 0
    damages: int = 0
    ok_up_to: int = 0  # all records before this physical offset are good
    end: int = 0  # after the last good record
    incomplete: bool = False
    stopped: str = "not begun"
    zeros_from: int = OFFSET_MAX  # from this physical offset on, the last files have only zeros

    @property
    def records(self) -> int:
        """Return the number of good records (messages and blanks)."""
        return self.messages + self.blanks

    def count(self, item: ScanItem | RecordRun) -> None:
        """Add one message, blank, damage or record run to the counts."""
        if isinstance(item, Damage):
            self.damages += 1
            self.bytes_scanned += 0 if item.code in NOT_READ else item.size
            self.incomplete = self.incomplete or item.code in UNREADABLE
            return
        self.bytes_scanned += item.size
        if isinstance(item, RecordRun):
            self.messages += item.messages
        elif isinstance(item, Message):
            self.messages += 1
        else:
            self.blanks += 1
        self.end = item.end
        if not self.damages:
            self.ok_up_to = item.end


class CommitLog:
    """The files of the commit log.

    A scan calls `on_progress` every few MiB, with the number of bytes read since the last call. `entries_in` is the
    folder of DLedger's log files, or None; there, each record has a header before it.
    """

    def __init__(self, queue: MappedFileQueue, entries_in: Path | None = None) -> None:
        self.queue = queue
        self.has_entries = entries_in is not None
        self._entries_in = entries_in
        self.on_progress: Callable[[int], None] = lambda _: None

    @property
    def size(self) -> int:
        """Return the total size of the log's files, in bytes."""
        return sum(file.size for file in self.queue.files)

    @property
    def min_offset(self) -> int:
        """Return the physical offset of the log's first byte; 0 if it has no file."""
        return self.queue.min_offset

    def at(self, physical_offset: int) -> Message | Blank | Damage | None:
        """Return the message, blank or damage at a physical offset.

        None if eight zero bytes are there. If no file contains the offset, it is Damage `outside-log`, and `unreadable`
        if the file cannot be read.
        """
        file = self.queue.find(physical_offset)
        if file is None:
            return Damage("outside-log", physical_offset, 0, "no file of the commit log holds this offset")
        try:
            return self.reader_of(file)(file, POINT_WINDOW_SIZE).at(physical_offset - file.file_from_offset)
        except OSError as error:
            return _unreadable(file, physical_offset, error)

    def with_shifted(self, items: Iterable[T], on_damage: Callable[[Damage], object]) -> Iterator[T | Damage]:
        """Yield items, damage in `shifted_parts`; `on_damage` gets it whole.

        Raises OSError.
        """
        for item in items:
            if isinstance(item, Damage):
                on_damage(item)
            if not isinstance(item, Damage) or item.message is not None or item.code in NOT_READ:
                yield item
                continue
            file = None if self.has_entries else self.queue.find(item.physical_offset)
            yield from (item,) if file is None else shifted_parts(file, item)

    def next_record(self, physical_offset: int) -> int | None:
        """Return the offset of the first record or blank at or after an offset, or None.

        The search ends with the file that contains `physical_offset`. None also if there is no such file, or it cannot
        be read.
        """
        file = self.queue.find(physical_offset)
        if file is None:
            return None
        try:
            found = self.reader_of(file)(file, POINT_WINDOW_SIZE).next_record(physical_offset - file.file_from_offset)
        except OSError:
            return None
        return None if found is None else file.file_from_offset + found

    def message_at(self, physical_offset: int) -> Message | None:
        """Return the message with right lengths at a physical offset, or None.

        Its content may be damaged.
        """
        return message_of(self.at(physical_offset))

    def files_in_use(self) -> list[MappedFile]:
        """Return the files up to the last one that begins with a record.

        Files allocated in advance, without a record, are left out. Raises OSError if a file cannot be read.
        """
        count = len(self.queue.files)
        while count and not any(self.queue.files[count - 1].read(0, BLANK_SIZE)):
            count -= 1
            self.queue.files[count].close()
        return self.queue.files[:count]

    def end(self, hint: int | None = None) -> tuple[int, Message | None]:
        """Return the offset at which a broker's log scan ends, and the last message.

        Only the last file in use is scanned; the message is None if it has none. `hint` is the physical offset of a
        record in this file, for example from the last unit of a queue: the scan then begins there. Raises OSError.
        """
        in_use = self.files_in_use()
        if not in_use:
            return self.min_offset, None
        file = in_use[-1]
        reader = self.reader_of(file)(file)
        position = hint - file.file_from_offset if hint is not None and file.file_from_offset <= hint < file.end else 0
        if not _is_passed(reader.at(position)):
            position = 0
        last = None
        while position < file.size and (item := reader.at(position)) is not None and _is_passed(item):
            last = message_of(item) or last
            position = item.end - file.file_from_offset
        file.close()
        return file.file_from_offset + position, last

    def last_entry(self) -> tuple[int, int]:
        """Return the end of DLedger's log, and the index of its last entry or -1.

        Damage before the end is passed over, and a record whose header is damaged. Raises OSError.
        """
        last, headless = None, -1
        for one in reversed(self.files_in_use()):
            for item in self.scan(start=one.file_from_offset, stop=one.end):
                if isinstance(item, Damage) and item.code == "bad-entry":
                    headless = item.end
                elif item.physical_offset != headless:
                    last = message_of(item) or last
            if last is not None:
                break
        end = last.end if last is not None else self.min_offset
        begin = last.physical_offset - ENTRY_HEADER.size if last is not None else -1
        file = self.queue.find(begin)
        if file is None or file.path.parent != self._entries_in:  # a log from before DLedger has no entries
            return end, -1
        return end, decode_entry_header(file.read(begin - file.file_from_offset, ENTRY_HEADER.size)).entry_index

    def path_of(self, physical_offset: int) -> str:
        """Return the name of the file that contains a physical offset.

        If none does, it is the last file before the offset, or "" if all begin after it.
        """
        file = self.queue.at_or_before(physical_offset)
        return file.name if file else ""

    def scan(
        self,
        summary: ScanSummary | None = None,
        *,
        start: int | None = None,
        stop: int | None = None,
        strict: bool = False,
    ) -> Iterator[ScanItem]:
        """Yield the messages, blanks and damages of [start, stop) in log order.

        Without these physical offsets, the whole log is scanned. If `start` is inside a record, the scan begins with
        the next one. A strict scan ends after the first damage.
        """
        files = self._files_from(start)
        items = (self._one_by_one(file, start) for file in files)
        for item in self._parts(
            summary if summary is not None else ScanSummary(), files, items, start, stop, strict=strict
        ):
            if not isinstance(item, RecordRun):
                yield item

    def scan_columns(
        self,
        summary: ScanSummary,
        take: OnRun | None = None,
        *,
        threads: int,
        start: int | None = None,
        stop: int | None = None,
        segment_size: int | None = None,
        check_bodies: bool = True,
        exact: bool = False,
    ) -> Iterator[ScanItem | RecordRun]:
        """Scan the log with several threads; yield the items in log order.

        Good messages come as `RecordRun`, blanks and damages one by one; in DLedger's log, all items one by one. The
        threads call `take` with the columns of each record run.

        `start` and `stop` are physical offsets; without them, the whole log is scanned. The scan begins at the first
        byte of the file that contains `start`. With `exact`, an item must begin at `start`, and only [start, stop) is
        read. Without `check_bodies`, a record run may contain messages with a wrong body CRC.
        """
        from rmqctl.store.read.parallel_scan import SEGMENT_SIZE, ParallelScan  # numba: only for whole files

        files = self._files_from(start)
        begin = min(start, files[0].file_from_offset) if files and start is not None and not exact else start
        if self.has_entries:
            yield from self._parts(
                summary, files, (self._one_by_one(file, None) for file in files), begin, stop, strict=False
            )
            return
        size = segment_size or SEGMENT_SIZE
        only = range(start or 0, files[-1].end if stop is None else stop) if files and exact else None
        with ParallelScan(
            files, take, threads, only=only, segment_size=size, border=stop, check_bodies=check_bodies
        ) as scan:
            items = (scan.items(file) for file in files)
            yield from self._parts(summary, files, items, begin, stop, strict=False)

    def scan_by(
        self, items_of: Callable[[MappedFile], Iterator[ScanItem | RecordRun | ZeroTail]], summary: ScanSummary
    ) -> Iterator[ScanItem | RecordRun]:
        """Yield the items of all files as `scan_columns` does.

        `items_of` gives the items of one file.
        """
        files = self.queue.files
        yield from self._parts(summary, files, (items_of(file) for file in files), None, None, strict=False)

    def never_closed(self, zeros: ZeroTail) -> Damage | None:
        """Return the damage `no-blank` if the log continues in a later file, or None.

        `zeros` reach from the last record of a file to its end.
        """
        files = self._files_from(zeros.physical_offset)
        items = chain([iter([zeros])], (self._one_by_one(file, None) for file in files[1:]))
        found = self._items(ScanSummary(), files, items, files[0].file_from_offset) if files else ()
        return next((item for item in found if isinstance(item, Damage) and item.code == NO_BLANK), None)

    def _one_by_one(self, file: MappedFile, start: int | None) -> Iterator[ScanItem | RecordRun | ZeroTail]:
        """Return the items of the file from the physical offset `start` on, or all."""
        reader = self.reader_of(file)
        position: int | None = 0
        if start is not None and start > file.file_from_offset:
            position = next_readable(file, start - file.file_from_offset, reader=reader)
        return FileScan(file, position, reader=reader).items(end_position(file)) if position is not None else iter(())

    def reader_of(self, file: MappedFile) -> type[RecordReader]:
        """Return the class that reads the records of a file.

        In a DLedger store, log files from before DLedger have no headers.
        """
        return EntryReader if file.path.parent == self._entries_in else RecordReader

    def _files_from(self, start: int | None) -> Sequence[MappedFile]:
        return [file for file in self.queue.files if start is None or file.end > start]

    def _parts(
        self,
        summary: ScanSummary,
        files: Sequence[MappedFile],
        items_of_files: Iterator[Iterator[ScanItem | RecordRun | ZeroTail]],
        start: int | None,
        stop: int | None,
        *,
        strict: bool,
    ) -> Iterator[ScanItem | RecordRun]:
        summary.ok_up_to = summary.end = self.min_offset if start is None else start
        summary.stopped = "interrupted"
        unreported = 0
        for item in self._items(summary, files, items_of_files, start):
            if stop is not None and item.physical_offset >= stop:
                summary.stopped = f"no record from offset {stop} on is wanted"
                break
            summary.count(item)
            unreported += item.size
            if unreported >= PROGRESS_BYTES:
                self.on_progress(unreported)
                unreported = 0
            yield item
            if strict and isinstance(item, Damage):
                summary.stopped = f"{item.code} at {item.physical_offset}"
                return
        else:
            summary.stopped = "end of the log" if self.queue.files else "there is no commit log file"
        if unreported:
            self.on_progress(unreported)

    def _items(
        self,
        summary: ScanSummary,
        files: Sequence[MappedFile],
        items_of_files: Iterator[Iterator[ScanItem | RecordRun | ZeroTail]],
        start: int | None,
    ) -> Iterator[ScanItem | RecordRun]:
        """Yield the files' items, and the damages between successive files."""
        wrong = sorted(self.queue.anomalies, key=lambda anomaly: anomaly.physical_offset)
        overlaps = any(anomaly.code == FILE_OVERLAP for anomaly in wrong)
        anomalies = deque(anomaly for anomaly in wrong if start is None or anomaly.end > start)
        open_end: int | None = None
        behind = 0  # where all that is no zeros ends; files may overlap
        for file, items in zip(files, items_of_files, strict=True):
            for number, item in enumerate(items):
                if open_end is not None and goes_on(item):
                    gap = anomalies[0].physical_offset if anomalies else item.physical_offset
                    yield _never_closed(open_end, min(max(gap, open_end), item.physical_offset), item.physical_offset)
                    open_end = None
                while number == 0 and anomalies and anomalies[0].physical_offset < file.file_from_offset:
                    yield anomalies.popleft()
                behind = behind if isinstance(item, ZeroTail) else max(behind, item.end)
                if isinstance(item, ZeroTail):
                    open_end = item.physical_offset if open_end is None else open_end
                elif overlaps and isinstance(item, Damage) and not item.path:
                    yield item._replace(path=file.name)
                else:
                    yield item
            file.close()
        summary.zeros_from = OFFSET_MAX if open_end is None else max(open_end, behind)
        yield from anomalies


def is_served(damage: Damage) -> bool:
    """Return whether a broker serves a damaged record to consumers.

    Its scan goes on after such a record. Brokers do not check the CRC of an empty body.
    """
    message = damage.message
    return damage.code in SERVED or (damage.code == BAD_BODY_CRC and message is not None and not message.body)


def _is_passed(item: ScanItem | None) -> bool:
    return isinstance(item, Message | Blank) or (isinstance(item, Damage) and is_served(item))


def message_of(item: ScanItem | None) -> Message | None:
    """Return the message of an item, also a damaged one with right lengths, or None."""
    if isinstance(item, Damage):
        return item.message
    return item if isinstance(item, Message) else None


def goes_on(item: ScanItem | RecordRun | ZeroTail) -> bool:
    """Return whether `item` is neither zeros nor unreadable: the log goes on."""
    return not isinstance(item, ZeroTail) and not (isinstance(item, Damage) and item.code in UNREADABLE)


def _never_closed(open_end: int, end: int, following: int) -> Damage:
    detail = f"zeros instead of a blank record, but the log goes on at {following}; a broker ends the log here"
    return Damage(NO_BLANK, open_end, end - open_end, detail)


def _unreadable(file: MappedFile, at: int, error: OSError) -> Damage:
    return Damage("unreadable", at, max(file.end - at, 0), f"cannot be read: {error.strerror}", path=file.name)
