"""The writer of a batch consume queue (5.x, queue.type=BatchCQ).

Each record, one message or an inner batch, has one unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.format.columns import Rows
    from rmqctl.logfile.writable_mapped_file_queue import WritableMappedFileQueue


class BatchConsumeQueueWriter:
    """Appends units to one batch consume queue.

    `max_physical_offset` is where the record of the last unit ends, `max_offset` the next queue offset. Methods raise
    OSError.
    """

    def __init__(self, queue: WritableMappedFileQueue, max_physical_offset: int = 0, max_offset: int = 0) -> None:
        self.queue = queue
        self.max_physical_offset = max_physical_offset
        self.max_offset = max_offset

    def put(self, units: Rows) -> int:
        """Append the units that the queue does not have yet; return their number.

        `units` is a numpy array of BATCH_UNITS, in log order.
        """
        units = units[units["physicalOffset"] >= self.max_physical_offset]
        if not len(units):
            return 0
        self.queue.append(units.tobytes())
        self.max_physical_offset = int(units[-1]["physicalOffset"]) + int(units[-1]["size"])
        self.max_offset = int(units[-1]["baseOffset"]) + int(units[-1]["count"])
        return len(units)

    def flush(self) -> None:
        """Flush the units to disk."""
        self.queue.flush()

    def close(self) -> None:
        """Close all files."""
        self.queue.close()
