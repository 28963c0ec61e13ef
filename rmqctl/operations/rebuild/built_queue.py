"""One rebuilt consume queue.

Its units are compared with those of the existing queue, and with a writer also written to files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from zlib_ng import zlib_ng

from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import EXT_ADDRESS_MAX, PRE_BLANK_SIZE
from rmqctl.store.read.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.columns import Flags, Numbers, Rows
    from rmqctl.operations.rebuild.planned_store import BuiltUnits
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.consume_queue_ext import ConsumeQueueExt
    from rmqctl.store.write.batch_consume_queue_writer import BatchConsumeQueueWriter
    from rmqctl.store.write.consume_queue_writer import ConsumeQueueWriter


class QueueCounts(msgspec.Struct):
    """The result of rebuilding one queue."""

    topic: str
    queue_id: int
    min_offset: int = 0  # queue offset
    max_offset: int = 0  # queue offset
    same: int = 0  # units that the existing queue has
    kept: int = 0  # units of the existing queue that lead to no message of the log
    strays: int = 0  # kept units that lead to no lost range of the log
    repeated: int = 0  # units in the places of lost messages; each leads to the next message
    misnumbered: int = 0  # messages that have another place than QUEUEOFFSET
    duplicates: int = 0  # messages whose QUEUEOFFSET belongs to another message: they get no unit
    duplicate_bytes: int = 0
    first_duplicate: int = -1  # physical offset
    earlier: int = 0  # messages before the queue began again at 0; 0 if the store already has the queue
    earlier_bytes: int = 0
    bytes: int = 0  # of the queue's messages
    moved: int = 0  # places at which the existing queue leads to another message of the log
    anew: int = 0  # times that the queue began again at 0
    crc: int = 0  # CRC-32 of the written units
    end: int = 0  # physical offset after the record of the last unit
    store_timestamp: int = 0  # of that record, in ms since 1970

    @property
    def key(self) -> QueueKey:
        """The topic and queueId."""
        return self.topic, self.queue_id

    @property
    def units(self) -> int:
        """The number of units of the queue."""
        return self.max_offset - self.min_offset

    @property
    def unplaced(self) -> int:
        """The number of messages without a unit (`duplicates` and `earlier`)."""
        return self.duplicates + self.earlier

    def add(self, units: Rows, max_offset: int, store_timestamp: int) -> None:
        """Count units that were appended, up to the queue offset `max_offset`."""
        self.max_offset = max_offset
        self.bytes += int(units["size"].sum(dtype=np.int64))
        self.end = int(units[-1]["physicalOffset"]) + int(units[-1]["size"])
        self.store_timestamp = store_timestamp

    def count_duplicates(self, messages: Rows) -> None:
        """Count messages, in log order, whose queue offset belongs to other messages."""
        if len(messages) and not self.duplicates:
            self.first_duplicate = int(messages[0]["physical_offset"])
        self.duplicates += len(messages)
        self.duplicate_bytes += int(messages["size"].sum(dtype=np.int64))


class BuiltQueue:
    """Receives the next units of a queue that is being rebuilt.

    `put` gives the first unit the queue offset `counts.max_offset`. Without a `writer`, units are only compared. `log`
    is the range of physical offsets in the log. `kept` keeps the units, too. `extension` is that of the existing queue:
    of a unit with an address in it, the tagsCode there is compared. Methods raise OSError.
    """

    __slots__ = ("_before", "_extension", "_kept", "_log", "counts", "writer")

    def __init__(
        self,
        counts: QueueCounts,
        before: UnitQueue | None,
        writer: ConsumeQueueWriter | None,
        extension: ConsumeQueueExt | None,
        log: range,
        kept: BuiltUnits | None,
    ) -> None:
        self.counts = counts
        self._log = log
        self._before = before
        self._extension = extension
        self.writer = writer
        self._kept = kept

    def put(self, units: Rows, store_timestamps: Numbers) -> None:
        """Append units (a nonempty array of UNITS), with the messages' store times (ms)."""
        counts, start = self.counts, self.counts.max_offset
        if self._kept is not None:
            self._kept.put(counts.key, start, units)
        for slot, old in slots_of(self._before, start, start + len(units)):
            new = units[slot - start :][: len(old)]
            plain = without_addresses(old, self._extension) if self._extension is not None else old
            # usually all are equal
            same = len(old) if new.tobytes() == plain.tobytes() else int(np.count_nonzero(new == plain))
            counts.same += same
            if same < len(old):
                elsewhere = old["physicalOffset"] != new["physicalOffset"]
                counts.moved += int(np.count_nonzero(lead_into(old, self._log) & elsewhere))
        if self.writer is not None:
            units = self.writer.append(start, units, store_timestamps)
            counts.crc = zlib_ng.crc32(units.view(np.uint8), counts.crc)
        counts.add(units, start + len(units), int(store_timestamps[-1]))


class BuiltBatchQueue(NamedTuple):
    """A batch consume queue that is being rebuilt.

    Without a `writer`, its units are only counted.
    """

    counts: QueueCounts
    writer: BatchConsumeQueueWriter | None


def close_built(queue: BuiltQueue | BuiltBatchQueue) -> None:
    """Close the files of a rebuilt queue, if any were written.

    The mtime of the last one becomes the store time of the queue's last message. Raises OSError.
    """
    if queue.writer is not None:
        if queue.writer.queue.last is not None:
            queue.writer.queue.last.set_modified(queue.counts.store_timestamp)
        queue.writer.close()


def slots_of(queue: UnitQueue | None, start: int, end: int) -> Iterator[tuple[int, Rows]]:
    """Yield the slots [start, end) of an existing consume queue, used or not.

    Each item is (queue offset of the first slot, numpy array of UNITS). Batch consume queues have no such slots.
    """
    if isinstance(queue, ConsumeQueue):
        for slot, data in queue.blocks(start, end):
            yield slot, np.frombuffer(data, UNITS)


def blocks_of(queue: UnitQueue | None, start: int, end: int) -> Iterator[tuple[int, Rows]]:
    """Yield the slots as `slots_of` does, up to the queue's last unit in use."""
    return slots_of(queue, start, min(end, queue.max_offset)) if queue is not None and start < end else iter(())


def without_addresses(units: Rows, extension: ConsumeQueueExt | None, unknown: int | None = None) -> Rows:
    """Return units with tagsCodes instead of addresses in `extension`.

    A rebuild changes the addresses. An address that `extension` does not have becomes `unknown` (None: it stays).
    Raises OSError.
    """
    found = units.copy()
    for at in np.flatnonzero(units["tagsCode"] <= EXT_ADDRESS_MAX).tolist():
        address = int(units["tagsCode"][at])
        code = extension.tags_code(address) if extension is not None else None
        found["tagsCode"][at] = code if code is not None else address if unknown is None else unknown
    return found


def is_unit(units: Rows) -> Flags:
    """Return, for each of UNITS, whether it represents a message.

    It does if it is in use and is not a pre-blank.
    """
    found: Flags = (units["physicalOffset"] >= 0) & (units["size"] > 0) & (units["size"] != PRE_BLANK_SIZE)
    return found


def lead_into(units: Rows, log: range) -> Flags:
    """Return, for each of UNITS, whether it points to a message of the log.

    `log` is the range of physical offsets in the log.
    """
    return is_unit(units) & (units["physicalOffset"] >= log.start) & (units["physicalOffset"] < log.stop)


def count_leading(queue: UnitQueue | None, log: range, *places: range) -> int:
    """Count the existing units at `places` that point to messages of the log.

    Raises OSError.
    """
    found = (lead_into(units, log) for each in places for _, units in blocks_of(queue, each.start, each.stop))
    return sum(int(np.count_nonzero(leads)) for leads in found)
