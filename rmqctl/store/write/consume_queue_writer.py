"""The writer of a consume queue: it appends units at the end, in log order.

If a queue does not begin at queue offset 0, pre-blank units fill the first file up to its first unit
(ConsumeQueue.fillPreBlank). A queue with pre-blank units but no real one makes 4.x add no more units to any queue, so
both are written together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import CQ_UNIT, GAP_SIZE, PRE_BLANK_SIZE

if TYPE_CHECKING:
    from rmqctl.format.columns import Numbers, Rows
    from rmqctl.logfile.writable_mapped_file import WritableMappedFile
    from rmqctl.logfile.writable_mapped_file_queue import WritableMappedFileQueue
    from rmqctl.store.write.consume_queue_ext_writer import ConsumeQueueExtWriter


class ConsumeQueueWriter:
    """Appends units to one consume queue.

    `max_physical_offset` is the physical offset after the record of the last unit. With `ext`, tags codes are written
    into the queue's extension, and the units have their addresses. With `gap_at`, places that no unit was put to get
    gap units, which lead there; without, as in a broker, later units move down. Methods raise OSError.
    """

    def __init__(
        self, queue: WritableMappedFileQueue, max_physical_offset: int = 0, ext: ConsumeQueueExtWriter | None = None
    ) -> None:
        self.queue = queue
        self.gap_at: int | None = None
        self.max_physical_offset = max_physical_offset
        self.ext = ext

    @property
    def max_offset(self) -> int:
        """Return the queue offset after the last unit."""
        return self.queue.max_offset // CQ_UNIT.size

    def put(self, queue_offset: int, units: Rows, store_timestamps: Numbers, *, extended: bool = True) -> int:
        """Append units, and return how many were written.

        `units` is a numpy array of UNITS for the queue offsets from `queue_offset` on, in log order. As in a broker, a
        unit is left out if the queue already has it, or if its record ends at or before `max_physical_offset`.

        `store_timestamps` (array, ms) are the store times of the messages. A full file's modification time is set to
        that of the last message: in a broker's store these are near to each other, because a broker writes units at
        once, and 4.x uses the modification times to find the file for a given time
        (MappedFileQueue.getMappedFileByTime).

        `extended` must be False for units of LMQ queues, which never use the extension.
        """
        keep = units["physicalOffset"].astype(np.int64) + units["size"] > self.max_physical_offset
        known = 0 if self.queue.last is None else max(self.max_offset - queue_offset, 0)
        skipped = max(int(np.argmax(keep)) if keep.any() else len(units), min(known, len(units)))
        if skipped == len(units):
            return 0
        self.append(queue_offset + skipped, units[skipped:], store_timestamps[skipped:], extended=extended)
        return len(units) - skipped

    def append(self, queue_offset: int, units: Rows, store_timestamps: Numbers, *, extended: bool = True) -> Rows:
        """Append all units, at least one, and return the units that were written.

        The parameters are those of `put`.
        """
        if self.ext is not None and extended:
            units = units.copy()
            units["tagsCode"] = self.ext.put(units["tagsCode"], store_timestamps)
        filler = self._pre_blank(queue_offset) if self.queue.last is None else self._gap(queue_offset)

        def set_modified(file: WritableMappedFile, done: int) -> None:
            file.set_modified(int(store_timestamps[max((done - len(filler)) // CQ_UNIT.size - 1, 0)]))

        data = filler + units.tobytes() if filler else units.view(np.uint8).data
        self.queue.append(data, queue_offset * CQ_UNIT.size, set_modified)
        self.max_physical_offset = int(units[-1]["physicalOffset"]) + int(units[-1]["size"])
        return units

    def _gap(self, queue_offset: int) -> bytes:
        filler = np.zeros(0 if self.gap_at is None else max(queue_offset - self.max_offset, 0), UNITS)
        filler["physicalOffset"], filler["size"] = self.gap_at or 0, GAP_SIZE
        return filler.tobytes()

    def flush(self) -> None:
        """Flush the units to disk, after the extension that they have addresses of."""
        if self.ext is not None:
            self.ext.queue.flush()
        self.queue.flush()

    def close(self) -> None:
        """Close all files."""
        if self.ext is not None:
            self.ext.queue.close()
        self.queue.close()

    def _pre_blank(self, queue_offset: int) -> bytes:
        position = queue_offset * CQ_UNIT.size % self.queue.file_size
        filler = np.zeros(position // CQ_UNIT.size, UNITS)
        filler["size"] = PRE_BLANK_SIZE
        self.queue.flushed_where = self.queue.committed_where = queue_offset * CQ_UNIT.size - position
        return filler.tobytes()
