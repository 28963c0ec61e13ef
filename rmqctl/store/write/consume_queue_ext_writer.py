"""The writer of a consume queue's extension.

The extension has one unit for each message of the queue. The queue's unit has the address of the extension unit instead
of the tags code.

No unit uses the last four bytes of a file. If the next unit would need these bytes, a size of -1 is written at the end
of the file's units (ConsumeQueueExt.put). Filter bitmaps are not calculated (enableCalcFilterBitMap). Without a bitmap,
a unit has 20 bytes. When a broker dispatches messages again, the extension may get units to which no address points.
rmqctl does not write such units.
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
    """Appends to `queue`. Methods raise OSError."""

    def __init__(self, queue: WritableMappedFileQueue) -> None:
        self.queue = queue

    def put(self, tags_codes: Numbers, store_timestamps: Numbers) -> Numbers:
        """Append a unit for each message, and return the addresses of the units.

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
    """Return the byte offset where the extension of `queue` is continued.

    A broker cuts the extension at this offset when the broker loads the extension. The last address in the queue's last
    three files points to a unit of the extension, and the result is the offset after this unit (truncateByMaxAddress).
    If the queue's last three files have no address, the result is the offset after the last unit of the extension's
    last file (recover). The result is None if the last address points to no unit. Raises OSError.
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
