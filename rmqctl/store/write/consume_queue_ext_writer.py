"""The writer of a consume queue's extension.

It has one unit for each message of the queue; the queue's unit has its address instead of the tags code.

The last four bytes of a file are never used: if the next unit does not fit, a size of -1 is written after the last one
(ConsumeQueueExt.put). rmqctl does not calculate filter bitmaps (enableCalcFilterBitMap); without one, an extension unit
has 20 bytes. A broker that dispatches messages again may add units that the queue does not use; rmqctl writes none.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.format.columns import EXT_UNITS, UNITS
from rmqctl.format.cq_unit import CQ_EXT_UNIT, CQ_UNIT, EXT_ADDRESS_MAX, EXT_BASE, ext_offset, is_ext_address

if TYPE_CHECKING:
    from rmqctl.format.columns import Numbers
    from rmqctl.logfile.writable_mapped_file_queue import WritableMappedFileQueue
    from rmqctl.store.read.consume_queue import ConsumeQueue
    from rmqctl.store.read.consume_queue_ext import ConsumeQueueExt

END_BLANK_SIZE = 4
QUEUE_FILES_LOOKED_AT = 3
_SIZE = struct.Struct(">h")


class ConsumeQueueExtWriter:
    """Appends units to the extension `queue`. Methods raise OSError."""

    def __init__(self, queue: WritableMappedFileQueue) -> None:
        self.queue = queue

    def put(self, tags_codes: Numbers, store_timestamps: Numbers) -> Numbers:
        """Append a unit for each message, and return their addresses.

        All arrays are int64. Times are in ms since 1970.
        """
        units = np.zeros(len(tags_codes), EXT_UNITS)
        units["size"], units["tagsCode"], units["storeTime"] = CQ_EXT_UNIT.size, tags_codes, store_timestamps
        addresses = np.empty(len(units), np.int64)
        done = 0
        while done < len(units):
            file = self.queue.last_with_room()
            count = (file.size - file.wrote_position - END_BLANK_SIZE) // CQ_EXT_UNIT.size
            if count <= 0:
                file.append(_SIZE.pack(-1))
                file.skip_to_end()
                continue
            at = file.file_from_offset + file.wrote_position
            part = units[done : done + count]
            file.append(part.tobytes())
            addresses[done : done + len(part)] = EXT_BASE + at + CQ_EXT_UNIT.size * np.arange(len(part))
            done += len(part)
        return addresses


def end_of_units(extension: ConsumeQueueExt, queue: ConsumeQueue) -> int | None:
    """Return the byte offset where the extension of `queue` continues, or None.

    A broker that loads the extension cuts it there: at the end of the extension unit with the last address in the
    queue's last three files (truncateByMaxAddress), or without such an address at the end of the extension's last unit
    (recover). None if the last address does not point to an extension unit. Raises OSError.
    """
    address = _last_address(queue)
    if address is None:
        return extension.end
    size = extension.size_at(address)
    return ext_offset(address) + size if size is not None else None


def _last_address(queue: ConsumeQueue) -> int | None:
    last = queue.last()
    if last is None or is_ext_address(last.tags_code):
        return last.tags_code if last is not None else None
    found = None
    start = queue.queue.files[-QUEUE_FILES_LOOKED_AT:][0].file_from_offset // CQ_UNIT.size
    for _, data in queue.blocks(start, last.queue_offset + 1):
        codes = np.frombuffer(data, UNITS)["tagsCode"]
        addresses = codes[codes <= EXT_ADDRESS_MAX]
        found = int(addresses[-1]) if len(addresses) else found
    return found
