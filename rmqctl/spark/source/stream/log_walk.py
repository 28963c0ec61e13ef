"""Find the written part of a live log, and the offsets of the records.

A stream must not read beyond the written part of the log.

The module uses the rules of `Dump.follow`. A whole record counts as written if other data follows the record, or if the
record does not change for a while. Damage and zeros are skipped if whole records follow. Unwritten parts of a file are
not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format.message import Damage, Message
from rmqctl.logfile.column_reader import ColumnReader
from rmqctl.store.read.file_scan import end_position

if TYPE_CHECKING:
    from rmqctl.store.read.commit_log import CommitLog


class Step(NamedTuple):
    """A part of the log with one or more messages, blanks or damaged places.

    `begin` and `end` are the physical offsets where the part begins and ends. `last` is the message that ends at `end`.
    The message `last` may be incomplete, because a broker may still be writing the message. `last` is None if the step
    does not end with a message.
    """

    begin: int
    end: int
    last: Message | None


class Written(NamedTuple):
    """The part of the log that is certainly written, up to the physical offset `end`.

    `unsure` is a message at `end` that may be incomplete, because no data follows the message yet.
    """

    end: int
    unsure: Message | None


def steps(log: CommitLog, position: int, stop: int | None = None) -> Iterator[Step]:
    """Yield the log in steps, from a physical offset on.

    A message, blank or damage must begin at the physical offset `position`. All records of a step begin
    before the physical offset `stop`, or the step has one record. The last step ends where the written part of the
    log ends.
    """
    columns = ColumnReader()
    while (step := _step(log, columns, position, stop)) is not None:
        yield step
        position = step.end


def written(log: CommitLog, position: int) -> Written:
    """Find the end of the written part of the log.

    The search begins at the physical offset `position`.
    """
    end, unsure = position, None
    for step in steps(log, position):
        end = step.end if step.last is None else step.last.physical_offset
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
        return Step(position, found.physical_offset + found.size, found.message(len(found.rows) - 1))
    item = log.at(position)
    if isinstance(item, Damage):
        following = None if file is None else log.next_record(position + 1)
        return _to_later_file(log, position) if following is None else Step(position, following, None)
    if item is None:
        return _to_later_file(log, position)
    return Step(position, item.end, item if isinstance(item, Message) else None)


def _to_later_file(log: CommitLog, position: int) -> Step | None:
    """Return the step to the next file that has records.

    The step begins at the physical offset `position`. If no later file has records, the result is None. If the result
    is None, a broker may still be writing at `position`.
    """
    later = (file.file_from_offset for file in log.queue.files if file.file_from_offset > position)
    found = next((offset for offset in later if has_records(log, offset)), None)
    return None if found is None else Step(position, found, None)


def has_records(log: CommitLog, offset: int) -> bool:
    """Return whether the file that begins at `offset` has a record.

    `offset` is a physical offset. A file that begins with zeros has no records, and is not read to the end.
    """
    item = log.at(offset)
    return item is not None and (not isinstance(item, Damage) or log.next_record(offset) is not None)
