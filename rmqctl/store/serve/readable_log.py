"""The commit log as a source of single messages.

A message is read only if its record is complete, is in one log file, and ends before the end of the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.errors import Unreadable
from rmqctl.format.message import Damage
from rmqctl.store.read.commit_log import UNREADABLE, CommitLog, message_of

if TYPE_CHECKING:
    from rmqctl.format.message import Message

NO_TIME = -1


class ReadableLog:
    """The commit log `log` up to the physical offset `max_offset`."""

    def __init__(self, log: CommitLog, max_offset: int) -> None:
        self._log = log
        self.max_offset = max_offset

    @property
    def min_offset(self) -> int:
        """Return the physical offset at which the log begins."""
        return self._log.min_offset

    def has(self, physical_offset: int, size: int) -> bool:
        """Return whether the log has `size` bytes at an offset, all in one file.

        A broker's CommitLog.getMessage then returns these bytes.
        """
        file = self._log.queue.find(physical_offset)
        return file is not None and physical_offset + size <= min(file.end, self.max_offset)

    def message(self, physical_offset: int) -> Message | None:
        """Return the message at an offset, or None if no complete record is there.

        A broker does not check the record, and if the log begins after 0, it answers a request for offset 0 with bytes
        of the first log file. Raises Unreadable.
        """
        if not self.has(physical_offset, 1):
            return None
        found = self._log.at(physical_offset)
        if isinstance(found, Damage) and found.code in UNREADABLE:
            raise Unreadable(found.detail, path=found.path, offset=physical_offset)
        message = message_of(found)
        return message if message is not None and message.end <= self.max_offset else None

    def store_timestamp(self, physical_offset: int, size: int) -> int:
        """Return the store time (ms since 1970) of the message at an offset, or -1.

        As RocketMQ's CommitLog.pickupStoreTimestamp. Raises Unreadable.
        """
        message = self.message(physical_offset) if self.has(physical_offset, size) else None
        return NO_TIME if message is None else message.store_timestamp

    def roll_next_file(self, physical_offset: int) -> int:
        """Return the physical offset at which the next log file begins."""
        size = self._log.queue.file_size
        return physical_offset + size - physical_offset % size
