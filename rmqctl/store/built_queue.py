"""One consume queue, made anew: its units go to files where it is written, and are compared with those of the queue that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from zlib_ng import zlib_ng

from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import EXT_ADDRESS_MAX, PRE_BLANK_SIZE
from rmqctl.store.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.store.batch_consume_queue_writer import BatchConsumeQueueWriter
    from rmqctl.store.consume_queue import UnitQueue
    from rmqctl.store.consume_queue_ext import ConsumeQueueExt
    from rmqctl.store.consume_queue_writer import ConsumeQueueWriter
    from rmqctl.store.read_only_store import QueueKey


class QueueCounts(msgspec.Struct):
    """What became of one queue. Offsets in units; the other numbers count units.

    `same` are those that the queue that is there has just so; `kept` stand for messages that only that queue still knows of,
    `repeated` lead once more to the message behind a place whose message is lost; `misnumbered` are messages whose queue offset
    cannot be right, and which got the next place; `again` those whose queue offset was there already, and which got none;
    `anew` says how often the queue began again at 0. `crc` is over its
    units; `end` (physical offset) is behind the last one's record, whose message was stored at `store_timestamp` (ms since 1970).
    """

    topic: str
    queue_id: int
    min_offset: int = 0
    max_offset: int = 0
    same: int = 0
    kept: int = 0
    repeated: int = 0
    misnumbered: int = 0
    again: int = 0
    anew: int = 0
    crc: int = 0
    end: int = 0
    store_timestamp: int = 0

    @property
    def key(self) -> QueueKey:
        """Topic and queueId."""
        return self.topic, self.queue_id

    @property
    def units(self) -> int:
        """How many units it has."""
        return self.max_offset - self.min_offset


class BuiltQueue:
    """Takes units for the places from `counts.max_offset` on; without a `writer` it only compares. Methods raise OSError.

    `extension` is that of the queue that is there: units which have an address in it are the same where it has their tagsCode.
    """

    def __init__(
        self, counts: QueueCounts, before: UnitQueue | None, writer: ConsumeQueueWriter | None, extension: ConsumeQueueExt | None = None
    ) -> None:
        self.counts = counts
        self._before = before if isinstance(before, ConsumeQueue) else None
        self._extension = extension
        self._writer = writer

    def put(self, units: Any, store_timestamps: Any) -> None:
        """Append units (numpy array of UNITS) of messages stored at these times (ms)."""
        if not len(units):
            return
        counts = self.counts
        for slot, old in self.old_units(counts.max_offset, counts.max_offset + len(units)):
            counts.same += _equal_units(units[slot - counts.max_offset :][: len(old)], self._without_addresses(old))
        if self._writer is not None:
            units = self._writer.append(counts.max_offset, units, store_timestamps)
            counts.crc = zlib_ng.crc32(units.view(np.uint8), counts.crc)
        counts.max_offset += len(units)
        counts.end = int(units[-1]["physicalOffset"]) + int(units[-1]["size"])
        counts.store_timestamp = int(store_timestamps[-1])

    def old_units(self, start: int, end: int) -> Iterator[tuple[int, Any]]:
        """(queue offset of the first, numpy array of UNITS) of what the queue that is there has at these places."""
        if self._before is not None:
            for slot, data in self._before.blocks(start, end):
                yield slot, np.frombuffer(data, UNITS)

    def _without_addresses(self, units: Any) -> Any:
        if self._extension is None:
            return units
        units = units.copy()
        for at in np.flatnonzero(units["tagsCode"] <= EXT_ADDRESS_MAX).tolist():
            found = self._extension.tags_code(int(units["tagsCode"][at]))
            if found is not None:
                units["tagsCode"][at] = found
        return units

    def finish(self) -> None:
        """Close the files."""
        if self._writer is not None:
            close_built(self._writer, self.counts)


def close_built(writer: ConsumeQueueWriter | BatchConsumeQueueWriter, counts: QueueCounts) -> None:
    """Close a queue's files; the last one says that it was written last when its last message was stored. Raises OSError."""
    if writer.queue.last is not None:
        writer.queue.last.set_modified(counts.store_timestamp)
    writer.close()


def _equal_units(units: Any, others: Any) -> int:
    """How many of two rows of units are equal; all of them, as a rule, which is seen at once."""
    if np.array_equal(units.view(np.uint32), others.view(np.uint32)):
        return len(units)
    return int(np.count_nonzero(units == others))


def is_unit(units: Any) -> Any:
    """Of each unit (numpy array of UNITS) whether it stands for a message: in use and no pre-blank."""
    return (units["physicalOffset"] >= 0) & (units["size"] > 0) & (units["size"] != PRE_BLANK_SIZE)


def crc_of(queue: ConsumeQueue, counts: QueueCounts) -> int:
    """CRC-32 over the units that `counts` tells of, as they stand in the files of `queue`. Raises OSError."""
    crc = 0
    for _, data in queue.blocks(counts.min_offset, counts.max_offset):
        crc = zlib_ng.crc32(data, crc)
    return crc
