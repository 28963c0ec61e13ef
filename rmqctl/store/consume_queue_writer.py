"""A consume queue, written: units appended at the queue's end, in the order of the log.

A queue that does not begin at 0 begins with pre-blank units in the file of its first offset (ConsumeQueue.fillPreBlank); never
without a real unit behind them: 4.x would fill no queue any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import CQ_UNIT, PRE_BLANK_SIZE

if TYPE_CHECKING:
    from rmqctl.logfile.writable_mapped_file_queue import WritableMappedFileQueue


class ConsumeQueueWriter:
    """Units of one queue; `max_physical_offset` is behind the record of the last one. Methods raise OSError."""

    def __init__(self, queue: WritableMappedFileQueue, max_physical_offset: int = 0) -> None:
        self.queue = queue
        self.max_physical_offset = max_physical_offset

    @property
    def max_offset(self) -> int:
        """Queue offset behind the last unit."""
        return self.queue.max_offset // CQ_UNIT.size

    def put(self, queue_offset: int, units: Any) -> int:
        """Append units (numpy array of UNITS) for the queue offsets from `queue_offset` on, in log order; how many were written.

        Those that are there already, or whose records lie before the last unit's end, are left out, as a broker does.
        """
        keep = units["physicalOffset"].astype(np.int64) + units["size"] > self.max_physical_offset
        known = 0 if self.queue.last is None else max(self.max_offset - queue_offset, 0)
        skipped = max(int(np.argmax(keep)) if keep.any() else len(units), min(known, len(units)))
        units, queue_offset = units[skipped:], queue_offset + skipped
        if not len(units):
            return 0
        filler = self._pre_blank(queue_offset) if self.queue.last is None else b""
        data = memoryview(filler + units.tobytes())
        while data:
            file = self.queue.last_with_room(queue_offset * CQ_UNIT.size)
            room = file.size - file.wrote_position
            file.append(data[:room])
            data = data[room:]
        self.max_physical_offset = int(units[-1]["physicalOffset"]) + int(units[-1]["size"])
        return len(units)

    def _pre_blank(self, queue_offset: int) -> bytes:
        """What comes before a queue's first unit in its first file; written together with it, so that it never stands alone."""
        position = queue_offset * CQ_UNIT.size % self.queue.file_size
        filler = np.zeros(position // CQ_UNIT.size, UNITS)
        filler["size"] = PRE_BLANK_SIZE
        self.queue.flushed_where = self.queue.committed_where = queue_offset * CQ_UNIT.size - position
        return filler.tobytes()
