"""The extension of a consume queue (enableConsumeQueueExt).

It consists of extension units, each with the tagsCode, the store time and the filter bitmap of one unit of the queue.
The unit then contains the address of its extension unit instead of a tagsCode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.format.cq_unit import CQ_EXT_UNIT, ext_offset

if TYPE_CHECKING:
    from rmqctl.logfile.mapped_file_queue import MappedFileQueue


class ConsumeQueueExt:
    """The extension of one consume queue."""

    def __init__(self, queue: MappedFileQueue) -> None:
        self.queue = queue

    def tags_code(self, address: int) -> int | None:
        """Return the tagsCode of the extension unit at an address, or None.

        None if no valid extension unit is there. Raises OSError.
        """
        unit = self._unit_at(address)
        return unit[1] if unit is not None else None

    def size_at(self, address: int) -> int | None:
        """Return the size of the extension unit at an address in bytes, with its bitmap.

        None if no valid extension unit is there. Raises OSError.
        """
        unit = self._unit_at(address)
        return unit[0] if unit is not None else None

    @property
    def end(self) -> int:
        """Return the byte offset after the last extension unit; 0 without a file.

        It reads the last file from its first byte. Raises OSError.
        """
        if not self.queue.files:
            return 0
        file = self.queue.files[-1]
        data = file.read(0, file.data_end(0) + CQ_EXT_UNIT.size)
        at = 0
        while at + CQ_EXT_UNIT.size <= len(data) and (size := CQ_EXT_UNIT.struct.unpack_from(data, at)[0]) > 0:
            at += size
        return file.file_from_offset + at

    def _unit_at(self, address: int) -> tuple[int, int] | None:
        """Return (size, tagsCode); None if there is none, or the bitmap has another size."""
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
        return int(size), int(tags_code)
