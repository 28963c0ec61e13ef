"""The reasons why a store accepts no messages: RocketMQ's RunningFlags."""

from __future__ import annotations

from enum import IntFlag


class RunningFlags(IntFlag):
    """Flags for the reasons why a store accepts no messages, as in RocketMQ."""

    NONE = 0
    NOT_READABLE = 1
    NOT_WRITEABLE = 2
    WRITE_LOGICS_QUEUE_ERROR = 4
    WRITE_INDEX_FILE_ERROR = 8
    DISK_FULL = 16

    @property
    def is_writeable(self) -> bool:
        """Return whether the store accepts messages."""
        return not self & ~RunningFlags.NOT_READABLE
