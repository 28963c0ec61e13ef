"""The counts of the messages, blanks and damage that a task read.

The driver adds up those of all splits, each split once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format.message import Blank, Damage
from rmqctl.store.read.commit_log import NOT_READ, UNREADABLE
from rmqctl.store.read.file_scan import RecordRun

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqctl.store.read.file_scan import ScanItem


class RecordCounts(NamedTuple):
    """Counts of whole messages, their bytes, blanks and damaged places."""

    messages: int = 0
    bytes: int = 0
    blanks: int = 0
    damages: int = 0
    unreadable: int = 0  # damaged places that could not be read
    begin: int | None = None  # physical offset of the first message, blank or damage, if there is one
    end: int | None = None  # physical offset after the last message or blank, if there is one
    damaged_bytes: int = 0  # size of the damaged places that were read
    unread_path: str = ""  # file of the first place that could not be read
    unread_at: int = 0  # bytes
    why_unread: str = ""

    def plus(self, other: RecordCounts) -> RecordCounts:
        """Return the sum, with the lower `begin` and the higher `end`."""
        return RecordCounts(
            self.messages + other.messages,
            self.bytes + other.bytes,
            self.blanks + other.blanks,
            self.damages + other.damages,
            self.unreadable + other.unreadable,
            min((begin for begin in (self.begin, other.begin) if begin is not None), default=None),
            max((end for end in (self.end, other.end) if end is not None), default=None),
            self.damaged_bytes + other.damaged_bytes,
            *(self if self.why_unread else other)[-3:],
        )


def counts_of(item: ScanItem | RecordRun) -> RecordCounts:
    """Return the counts of one item or of one record run."""
    begin = item.physical_offset
    if isinstance(item, Damage):
        size = 0 if item.code in NOT_READ else item.size
        return RecordCounts(damages=1, unreadable=int(item.code in UNREADABLE), begin=begin, damaged_bytes=size)
    if isinstance(item, Blank):
        return RecordCounts(blanks=1, begin=begin, end=item.end)
    messages = item.messages if isinstance(item, RecordRun) else 1
    return RecordCounts(messages=messages, bytes=item.size, begin=begin, end=item.end)


def total(counts: Iterable[RecordCounts]) -> RecordCounts:
    """Return the sum of all counts, with the lowest `begin` and the highest `end`."""
    found = RecordCounts()
    for one in counts:
        found = found.plus(one)
    return found
