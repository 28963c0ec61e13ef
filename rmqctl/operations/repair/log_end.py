"""The end of the commit log, by the rules of a broker's recovery."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.format.message import Blank
    from rmqctl.logfile.mapped_file_queue import MappedFileQueue


class LogEnd:
    """Finds the end of the log while a scan reads the log.

    `offset` is the end of the records that the scan has read. `reason` says why the log ends. `reason` is None until
    the log's end is final. An empty log file continues the log if the file begins at the end of the previous file.
    After a gap, a log file continues the log if the file has messages.
    """

    def __init__(self, files: MappedFileQueue) -> None:
        self.offset = files.min_offset
        self.reason: str | None = None
        self._files = files

    @property
    def is_final(self) -> bool:
        """Return whether the log's end is final."""
        return self.reason is not None

    def message(self, end: int) -> None:
        """Process good messages. `end` is the physical offset after the last message."""
        self.offset = end

    def blank(self, blank: Blank) -> None:
        """Process the blank at the end of a log file.

        If no log file follows, the log ends before the blank, as in a broker.
        """
        goes_on = self._files.find(blank.end)
        self.offset = blank.physical_offset if goes_on is None else blank.end

    def end(self, physical_offset: int, why: str) -> None:
        """End the log at a physical offset."""
        self.offset, self.reason = physical_offset, why
