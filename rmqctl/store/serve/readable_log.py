"""The commit log from which a broker reads single messages.

A message is read only if its whole record is in one file and before the end of the written part.
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
    """The commit log `log` up to `max_offset` (bytes). Methods raise Unreadable."""

    def __init__(self, log: CommitLog, max_offset: int) -> None:
        self._log = log
        self.max_offset = max_offset

    @property
    def min_offset(self) -> int:
        """Return the physical offset of the first byte that still exists."""
        return self._log.min_offset

    def has(self, physical_offset: int, size: int) -> bool:
        """Return whether `size` bytes exist at an offset, all in one file.

        If these bytes exist, a broker's CommitLog.getMessage returns these bytes.
        """
        file = self._log.queue.find(physical_offset)
        return file is not None and physical_offset + size <= min(file.end, self.max_offset)

    def message(self, physical_offset: int) -> Message | None:
        """Return the message at an offset; None if the offset has no whole record.

        A broker does not check the record, and returns the bytes at the offset. For offset 0, a broker returns the
        bytes of the first file if the log does not begin at 0 any more.
        """
        if not self.has(physical_offset, 1):
            return None
        found = self._log.at(physical_offset)
        if isinstance(found, Damage) and found.code in UNREADABLE:
            raise Unreadable(found.detail, path=found.path, offset=physical_offset)
        message = message_of(found)
        return message if message is not None and message.end <= self.max_offset else None

    def store_timestamp(self, physical_offset: int, size: int) -> int:
        """Return the store time of the message at an offset, in ms since 1970.

        The result is -1 if the log has no message at the offset. The rule is CommitLog.pickupStoreTimestamp.
        """
        message = self.message(physical_offset) if self.has(physical_offset, size) else None
        return NO_TIME if message is None else message.store_timestamp

    def roll_next_file(self, physical_offset: int) -> int:
        """Return the first offset of the file after the file of a physical offset."""
        size = self._log.queue.file_size
        return physical_offset + size - physical_offset % size
