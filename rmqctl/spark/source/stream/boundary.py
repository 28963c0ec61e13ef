"""Find offsets between records, and the end of a log, with few reads.

The search for an offset begins some MiB before it, at the first record found there. This may be bytes in the body of a
message that look like a record. The records after it then do not follow one another, and the walk from record to record
finds the real ones again before it reaches the offset: the search begins further before the offset than a message is
long.

In a body of zeros that is longer than LOOK_BACK, the search may take the zeros for the end of the log. The rest of the
log is then read record by record.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format.message import Damage, Message
from rmqctl.logfile.column_reader import ColumnReader
from rmqctl.logfile.system.zeros import BLOCK_SIZE, is_zeros
from rmqctl.store.read.file_scan import end_position

if TYPE_CHECKING:
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.read.commit_log import CommitLog

RECORD_END = 64  # a topic, at least, is in these bytes of a record
LOOK_BACK = 8 * 1024 * 1024  # a broker accepts messages of 4 MiB, unless its maxMessageSize says otherwise


class Step(NamedTuple):
    """A part [begin, end) of the log, with messages, blanks or damaged places.

    A stream must not read beyond the written part of the log. As in `Dump.follow`, a whole record counts as written if
    other data follows it, or if it does not change for a while. Damage and zeros are skipped if whole records follow.
    Unwritten parts of a file are not read.
    """

    begin: int  # physical offset
    end: int  # physical offset
    last: Message | None  # the message that ends there, if one does; a broker may still be writing it
    last_begin: int  # where this message, or DLedger's header before it, begins; else `begin`


class Written(NamedTuple):
    """The part of the log that is certainly written."""

    end: int  # physical offset
    unsure: Message | None  # a message at `end` that may be incomplete, because no data follows it yet


def steps(log: CommitLog, position: int, stop: int | None = None) -> Iterator[Step]:
    """Yield the log in steps, from a physical offset on.

    A message, blank or damage must begin at `position`. All records of a step begin before `stop`, or the step has one
    record. The last step ends where the written part of the log ends.
    """
    columns = ColumnReader()
    while (step := _step(log, columns, position, stop)) is not None:
        yield step
        position = step.end


def written(log: CommitLog, position: int) -> Written:
    """Find the end of the written part of the log, from `position` on."""
    end, unsure = position, None
    for step in steps(log, position):
        end = step.end if step.last is None else step.last_begin
        unsure = step.last
    if unsure is not None and isinstance(log.at(unsure.end), Damage) and log.queue.find(unsure.end) is not None:
        return Written(unsure.end, None)  # an unfinished record or damage follows
    return Written(end, unsure)


def _step(log: CommitLog, columns: ColumnReader, position: int, stop: int | None) -> Step | None:
    file = log.queue.find(position)
    found = None
    if file is not None:
        last = end_position(file) if stop is None else min(end_position(file), stop - file.file_from_offset)
        found = columns.at(file, position - file.file_from_offset, last)
    if found is not None:
        last_message = found.message(len(found.rows) - 1)
        return Step(position, last_message.end, last_message, last_message.physical_offset)
    item = log.at(position)
    if isinstance(item, Damage):
        following = None if file is None else log.next_record(item.physical_offset + 1)
        return _to_later_file(log, position) if following is None else Step(position, following, None, position)
    if item is None:
        return _to_later_file(log, position)
    return Step(position, item.end, item if isinstance(item, Message) else None, position)


def _to_later_file(log: CommitLog, position: int) -> Step | None:
    """Return the step from `position` to the next file that has records.

    None if no later file has any: a broker may still be writing at `position`.
    """
    later = (file.file_from_offset for file in log.queue.files if file.file_from_offset > position)
    found = next((offset for offset in later if has_records(log, offset)), None)
    return None if found is None else Step(position, found, None, position)


def has_records(log: CommitLog, offset: int) -> bool:
    """Return whether the file that begins at `offset` (physical) has a record.

    One that begins with zeros has none, and is not read to the end.
    """
    item = log.at(offset)
    return item is not None and (not isinstance(item, Damage) or log.next_record(offset) is not None)


def boundary(log: CommitLog, known: int, target: int) -> int:
    """Return the first offset at or after `target` that is not inside a record.

    It is the end of the log if the log ends before `target`. A record, blank or damage begins at `known`. All are
    physical offsets.
    """
    end = nearer(log, known, target)
    for step in steps(log, end, target):
        end = step.end
        if end >= target:
            break
    return end


def end_of_log(log: CommitLog, known: int) -> Written:
    """Find the end of the written part of the log, as `written` does.

    A record, blank or damage begins at the physical offset `known`. Raises OSError if a file cannot be read.
    """
    in_use = (file for file in reversed(log.files_in_use()) if file.end > known)
    file = next((file for file in in_use if has_records(log, file.file_from_offset)), None)
    if file is None:
        return written(log, known)
    start = max(known, file.file_from_offset)
    return written(log, nearer(log, start, _last_data(file, start)))


def ends_before(log: CommitLog, offset: int) -> bool:
    """Return whether the log certainly ends before a physical offset.

    A record once ended at `offset`, and the last bytes of a record are never all zeros. False if the log now begins
    after `offset`, or has grown over it again. Raises OSError.
    """
    files = log.queue.files
    if offset <= log.min_offset:
        return False
    if not files or offset > files[-1].end:
        return True
    file = log.queue.find(offset)
    if file is None or offset == file.file_from_offset:
        return False  # a blank may end here, and may have zeros
    begin = max(offset - file.file_from_offset - RECORD_END, 0)
    return is_zeros(file.read(begin, 2 * RECORD_END))


def last_before(log: CommitLog, end: int) -> int:
    """Return where the last record, blank or damage before the offset `end` begins.

    It is in the same file, at most LOOK_BACK bytes before; `end` itself if no file has the byte before it. Raises
    OSError.
    """
    file = log.queue.find(end - 1)
    if file is None:
        return end
    begin = end
    for step in steps(log, nearer(log, file.file_from_offset, end - 1), end):
        begin = step.last_begin
    return max(min(begin, end), file.file_from_offset, end - LOOK_BACK)


def checksum(log: CommitLog, begin: int, end: int) -> int:
    """Return the CRC-32 of the bytes [begin, end), which are in one file.

    Bytes that the log does not have are left out. Raises OSError.
    """
    file = log.queue.find(begin)
    return zlib.crc32(b"" if file is None else file.read(begin - file.file_from_offset, end - begin))


def nearer(log: CommitLog, known: int, target: int) -> int:
    """Return the offset of a record at most LOOK_BACK before `target`.

    It is `known`, or the beginning of the file with `target`, if that is near enough, or if no record is found.
    """
    file = log.queue.find(target)
    known = known if file is None else max(known, file.file_from_offset)
    if target - known <= LOOK_BACK:
        return known
    found = log.next_record(target - LOOK_BACK)
    return known if found is None or found >= target else found


def _last_data(file: MappedFile, start: int) -> int:
    """Return a physical offset near the end of the data of a file.

    LOOK_BACK bytes with data begin there. Data begins at `start`.
    """
    low, high = start - file.file_from_offset, file.size
    ahead = LOOK_BACK
    while low + ahead < high and _has_data(file, low + ahead):
        low, ahead = low + ahead, ahead * 2
    high = min(high, low + ahead)
    while high - low > LOOK_BACK:
        middle = (low + high) // 2
        low, high = (middle, high) if _has_data(file, middle) else (low, middle)
    return file.file_from_offset + low


def _has_data(file: MappedFile, position: int) -> bool:
    end = min(position + LOOK_BACK, file.size)
    while (position := file.next_data(position)) < end:
        block = file.read(position, min(BLOCK_SIZE, end - position))
        if not is_zeros(block):
            return True
        position += BLOCK_SIZE
    return False
