"""How far a live log is written, and where its records begin.

A stream may read only this part of the log.

The rules are those of `Dump.follow`. A record counts as written if it is whole and something follows it, or if it does
not change for a while. Damage and zeros are passed over if whole records follow. Only what is written is read; the rest
of a file is not read.
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
    """One or more items from `begin` to `end` (physical offsets).

    `last` is the message that ends at `end`. This message may be half written.
    """

    begin: int
    end: int
    last: Message | None


class Written(NamedTuple):
    """How far the log is surely written: up to `end`.

    `unsure` is a whole message at `end` that nothing follows yet.
    """

    end: int
    unsure: Message | None


def steps(log: CommitLog, position: int) -> Iterator[Step]:
    """Yield the steps of the log from `position` on, where an item must begin.

    The steps end where nothing is written yet.
    """
    columns = ColumnReader()
    while (step := _step(log, columns, position)) is not None:
        yield step
        position = step.end


def written(log: CommitLog, position: int, most: int | None) -> Written:
    """Return how far the log is written from `position` on.

    The function stops soon after `most` bytes. None: it checks the whole log.
    """
    end, unsure = position, None
    for step in steps(log, position):
        end = step.end if step.last is None else step.last.physical_offset
        unsure = step.last
        if most is not None and end - position >= most:
            return Written(end, None)
    if unsure is not None and isinstance(log.at(unsure.end), Damage) and log.queue.find(unsure.end) is not None:
        return Written(unsure.end, None)  # a record in the making, or damage: something follows
    return Written(end, unsure)


def _step(log: CommitLog, columns: ColumnReader, position: int) -> Step | None:
    file = log.queue.find(position)
    found = columns.at(file, position - file.file_from_offset, end_position(file)) if file is not None else None
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

    The step passes over the rest of a file, or over missing files. None: no later file has records. In this case, the
    item at `position` may not be complete yet.
    """
    later = (file.file_from_offset for file in log.queue.files if file.file_from_offset > position)
    found = next((offset for offset in later if _has_records(log, offset)), None)
    return None if found is None else Step(position, found, None)


def _has_records(log: CommitLog, offset: int) -> bool:
    """Return whether the file that begins at `offset` has a record.

    A pre-allocated file has no record: its first bytes are zeros. Such a file is not read to its end.
    """
    item = log.at(offset)
    return item is not None and (not isinstance(item, Damage) or log.next_record(offset) is not None)
