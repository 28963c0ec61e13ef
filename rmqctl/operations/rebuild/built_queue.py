"""One rebuilt consume queue.

If the queue has a writer, the units of the queue are written to files. The units are compared with the units of the
existing queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
from zlib_ng import zlib_ng

from rmqctl.errors import Unreadable
from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import EXT_ADDRESS_MAX, PRE_BLANK_SIZE, is_ext_address
from rmqctl.logfile.mapped_file_queue import MappedFileQueue
from rmqctl.store.config.store_path import CONSUMEQUEUE
from rmqctl.store.read.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqctl.format.columns import Flags, Numbers, Rows
    from rmqctl.logfile.system.storage import Storage
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.consume_queue_ext import ConsumeQueueExt
    from rmqctl.store.write.batch_consume_queue_writer import BatchConsumeQueueWriter
    from rmqctl.store.write.consume_queue_writer import ConsumeQueueWriter


WHOLE_LOG = range(2**63 - 1)


def keep_nothing(_queue_offset: int, _units: Rows) -> None:
    """Do nothing: the default of `BuiltQueue.keep`."""


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
        """Return the topic and queueId."""
        return self.topic, self.queue_id

    @property
    def units(self) -> int:
        """Return how many units the queue has."""
        return self.max_offset - self.min_offset

    @property
    def unplaced(self) -> int:
        """Return how many messages have no unit (`duplicates` and `earlier`)."""
        return self.duplicates + self.earlier

    def count_duplicate(self, physical_offset: int, size: int) -> None:
        """Count a message whose queue offset belongs to another message."""
        if not self.duplicates:
            self.first_duplicate = physical_offset
        self.duplicates += 1
        self.duplicate_bytes += size


class BuiltQueue:
    """Receives the next units of a queue that is being rebuilt.

    `put` gives the first unit the queue offset `counts.max_offset`. Without a `writer`, units are compared, but not
    written. `log` is the range of physical offsets in the log. `put` calls `keep` with the queue offset of the first
    unit, and with the units. `extension` is the consume queue extension of the existing queue. If an existing unit has
    an address in `extension`, the tagsCode at the address is compared. Methods raise OSError.
    """

    __slots__ = ("_before", "_extension", "_keep", "_log", "_writer", "counts")

    def __init__(
        self,
        counts: QueueCounts,
        before: UnitQueue | None,
        writer: ConsumeQueueWriter | None,
        extension: ConsumeQueueExt | None = None,
        log: range = WHOLE_LOG,
        keep: Callable[[int, Rows], None] = keep_nothing,
    ) -> None:
        self.counts = counts
        self._log = log
        self._before = before if isinstance(before, ConsumeQueue) else None
        self._extension = extension
        self._writer = writer
        self._keep = keep

    def put(self, units: Rows, store_timestamps: Numbers) -> None:
        """Append units (an array of UNITS), with the messages' store times (ms)."""
        if not len(units):
            return
        counts = self.counts
        self._keep(counts.max_offset, units)
        for slot, old in self._old_units(counts.max_offset, counts.max_offset + len(units)):
            new = units[slot - counts.max_offset :][: len(old)]
            same = _equal_units(new, self._without_addresses(old))
            counts.same += same
            if same < len(old):
                counts.moved += int(
                    np.count_nonzero(lead_into(old, self._log) & (old["physicalOffset"] != new["physicalOffset"]))
                )
        if self._writer is not None:
            units = self._writer.append(counts.max_offset, units, store_timestamps)
            counts.crc = zlib_ng.crc32(units.view(np.uint8), counts.crc)
        counts.max_offset += len(units)
        counts.bytes += int(units["size"].sum(dtype=np.int64))
        counts.end = int(units[-1]["physicalOffset"]) + int(units[-1]["size"])
        counts.store_timestamp = int(store_timestamps[-1])

    def _old_units(self, start: int, end: int) -> Iterator[tuple[int, Rows]]:
        """Yield the existing queue's units with queue offsets in [start, end).

        Each item is (queue offset of the first unit, numpy array of UNITS).
        """
        if self._before is not None:
            for slot, data in self._before.blocks(start, end):
                yield slot, np.frombuffer(data, UNITS)

    def _without_addresses(self, units: Rows) -> Rows:
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
    """Close the files of a rebuilt queue.

    The mtime of the last queue file becomes the store time of the queue's last message. Raises OSError.
    """
    if writer.queue.last is not None:
        writer.queue.last.set_modified(counts.store_timestamp)
    writer.close()


def _equal_units(units: Rows, others: Rows) -> int:
    """Count the positions at which two arrays of units are equal.

    Usually all units are equal, so the bytes of the whole arrays are compared first.
    """
    if units.tobytes() == others.tobytes():
        return len(units)
    return int(np.count_nonzero(units == others))


def without_addresses(units: Rows, extension: ConsumeQueueExt | None) -> Rows:
    """Return units with tagsCodes instead of addresses in `extension`.

    A rebuild changes the addresses. Raises OSError.
    """
    found = units.copy()
    for unit in found:
        if is_ext_address(int(unit["tagsCode"])):
            unit["tagsCode"] = (extension.tags_code(int(unit["tagsCode"])) if extension is not None else None) or 0
    return found


def is_unit(units: Rows) -> Flags:
    """Return, for each unit, whether the unit represents a message.

    A unit represents a message if the unit is in use and is not a pre-blank. `units` is a numpy array of UNITS.
    """
    found: Flags = (units["physicalOffset"] >= 0) & (units["size"] > 0) & (units["size"] != PRE_BLANK_SIZE)
    return found


def lead_into(units: Rows, log: range) -> Flags:
    """Return, for each unit, whether the unit points to a message of the log.

    `units` is a numpy array of UNITS. `log` is the range of physical offsets in the log.
    """
    return is_unit(units) & (units["physicalOffset"] >= log.start) & (units["physicalOffset"] < log.stop)


def check_built(storage: Storage, counts: QueueCounts, file_size: int) -> None:
    """Check that the files of a rebuilt queue have the bytes that were written.

    The files are in the root folder of `storage`, and have `file_size` bytes. Raises Unreadable and OSError.
    """
    folder = storage.root / CONSUMEQUEUE / counts.topic / str(counts.queue_id)
    queue = ConsumeQueue(counts.topic, counts.queue_id, MappedFileQueue(storage, [folder], file_size))
    as_made = (
        not queue.queue.anomalies and queue.max_offset == counts.max_offset and _crc_of(queue, counts) == counts.crc
    )
    queue.queue.close()
    if not as_made:
        raise not_as_made(storage.display(folder))


def not_as_made(what: str) -> Unreadable:
    """Return the error for a new file, `what`, that does not have the written bytes."""
    return Unreadable(
        "a file does not have the bytes that were written",
        path=what,
        hint="nothing was changed; the disk may be failing",
    )


def _crc_of(queue: ConsumeQueue, counts: QueueCounts) -> int:
    """Return the CRC-32 of a queue's units. Raises OSError.

    The units have the queue offsets [`counts.min_offset`, `counts.max_offset`).
    """
    crc = 0
    for _, data in queue.blocks(counts.min_offset, counts.max_offset):
        crc = zlib_ng.crc32(data, crc)
    return crc
