"""Units of the consume queue, of its extension, and of 5.x's batch consume queue.

ConsumeQueue: a unit has 20 bytes, and its number in the queue is its queue offset. It is in use if physicalOffset >= 0
and size > 0:

{cq}

A queue that does not start at 0 begins with pre-blank units (0, 0x7FFFFFFF, 0). `rmqctl extract --keep-offsets` fills
places without a message with gap units (start of the log + 8, 0x7FFFFFF7, 0), which brokers pass over. The tagsCode is
the hashCode of TAGS, in SCHEDULE_TOPIC_XXXX the delivery time in ms. If it is <= -2^31-1, it is an address in the
extension (byte offset in the extension = address + 2^63).

ConsumeQueueExt (enableConsumeQueueExt): a unit has 20 bytes, and a bitmap may follow. One with size -1 is the blank at
the end of a file:

{ext}

BatchConsumeQueue (queue.type=BatchCQ): a unit has 46 bytes. It is in use if and only if physicalOffset >= 0, size > 0,
baseOffset >= 0 and count > 0:

{batch}
"""

from __future__ import annotations

from typing import NamedTuple

from rmqctl.format.layout import Field, Layout

PLACES_MAX = 2**58  # a queue's file is named by the byte offset of its first unit, which must fit into 63 bits
CQ_UNIT = Layout(
    "consume queue unit",
    (
        Field("physicalOffset", "q", "of the record in the commit log"),
        Field("size", "i", "of the record"),
        Field("tagsCode", "q"),
    ),
)
CQ_EXT_FILE_SIZE = 48 * 1024 * 1024  # the default of mappedFileSizeConsumeQueueExt
CQ_EXT_UNIT = Layout(
    "consume queue extension unit",
    (
        Field("size", "h", "of this unit, bitmap included"),
        Field("tagsCode", "q"),
        Field("storeTime", "q", "ms since 1970"),
        Field("bitmapLength", "h"),
    ),
)
BATCH_CQ_UNIT = Layout(
    "batch consume queue unit",
    (
        Field("physicalOffset", "q"),
        Field("size", "i"),
        Field("tagsCode", "q"),
        Field("storeTime", "q", "ms since 1970"),
        Field("baseOffset", "q", "queue offset of the batch's first message"),
        Field("count", "h", "messages in the batch"),
        Field("compactedOffset", "i", "-1"),
        Field("reserved", "i"),
    ),
)
if (CQ_UNIT.size, CQ_EXT_UNIT.size, BATCH_CQ_UNIT.size) != (20, 20, 46):
    raise AssertionError("consume queue units are 20, 20 and 46 bytes")
__doc__ = (__doc__ or "").format(cq=CQ_UNIT.table(), ext=CQ_EXT_UNIT.table(), batch=BATCH_CQ_UNIT.table())

DELAY_UNIT_MS = 1000  # a scheduled message's tagsCode is its store time and a delay of whole seconds
PRE_BLANK_SIZE = 0x7FFFFFFF
GAP_POSITION = 8  # in the log's first file; a broker adds it to the size, and must come to no more than 31 bits
GAP_SIZE = PRE_BLANK_SIZE - GAP_POSITION
NOT_COMPACTED = -1  # compactedOffset of a batch unit
EXT_ADDRESS_MAX = -(2**31) - 1
EXT_BASE = -(2**63)  # the address of an extension's first byte


def whole_units(content: bytes) -> bytes:
    """Return `content`, extended with zeros to a whole number of units.

    It is a queue file without the zeros at its end, so its last unit may be incomplete.
    """
    missing = -len(content) % CQ_UNIT.size
    return content + bytes(missing) if missing else content


class CqUnit(NamedTuple):
    """A unit of a consume queue, with its queue offset."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    batch_size: int = 1  # messages that the unit represents; 1 if it is not a batch

    @property
    def is_pre_blank(self) -> bool:
        """Return whether the unit fills the first file before the first real unit."""
        return self.physical_offset == 0 and self.size == PRE_BLANK_SIZE

    @property
    def is_gap(self) -> bool:
        """Return whether the unit fills a place that no message of an extract has.

        Its physical offset is in a log file that has only a blank.
        """
        return self.size == GAP_SIZE

    @property
    def end(self) -> int:
        """Return the physical offset of the byte after the unit's record."""
        return self.physical_offset + self.size


def is_ext_address(tags_code: int) -> bool:
    """Return whether a tagsCode is an address into consumequeue_ext.

    The rule is ConsumeQueueExt.isExtAddr.
    """
    return tags_code <= EXT_ADDRESS_MAX


def ext_offset(address: int) -> int:
    """Return the byte offset in consumequeue_ext for an address."""
    return address - EXT_BASE
