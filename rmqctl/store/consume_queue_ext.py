"""The consume queue's extension (enableConsumeQueueExt): tags code, store time and filter bitmap of a unit, by address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.format.cq_unit import CQ_EXT_UNIT, ext_offset

if TYPE_CHECKING:
    from rmqctl.logfile.mapped_file_queue import MappedFileQueue


class ConsumeQueueExt:
    """The extension of one queue."""

    def __init__(self, queue: MappedFileQueue) -> None:
        self.queue = queue

    def tags_code(self, address: int) -> int | None:
        """The tagsCode of the unit at an address; None when there is no such unit. Raises OSError."""
        offset = ext_offset(address)
        file = self.queue.find(offset)
        if file is None:
            return None
        raw = file.read(offset - file.file_from_offset, CQ_EXT_UNIT.size)
        if len(raw) < CQ_EXT_UNIT.size:
            return None
        size, tags_code, _, bitmap_length = CQ_EXT_UNIT.struct.unpack(raw)
        if size < CQ_EXT_UNIT.size or size != CQ_EXT_UNIT.size + max(bitmap_length, 0):
            return None
        return int(tags_code)
