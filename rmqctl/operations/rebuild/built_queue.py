"""One consume queue, rebuilt.

Its units go to files where it is written, and are compared with those of the existing queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
from zlib_ng import zlib_ng

from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import EXT_ADDRESS_MAX, PRE_BLANK_SIZE
from rmqctl.store.read.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqctl.format.columns import Flags, Numbers, Row, Rows
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.consume_queue_ext import ConsumeQueueExt
    from rmqctl.store.write.batch_consume_queue_writer import BatchConsumeQueueWriter
    from rmqctl.store.write.consume_queue_writer import ConsumeQueueWriter


WHOLE_LOG = range(2**63 - 1)


def keep_nothing(_queue_offset: int, _units: Rows) -> None:
    """Do nothing: the default of `BuiltQueue.keep`."""


class QueueCounts(msgspec.Struct):
    """What became of one queue. Offsets in units; the other numbers count units.

    `same` are those that the existing queue has just so; `kept` stand for messages that only that queue still has, of
    which `strays` lead to a record that says it is of another queue, or of another place; `repeated` lead once more to
    the message after a place whose message is lost; `misnumbered` are messages whose queue offset cannot be right, and
    which got the next place; `duplicates` those whose queue offset another message has already (they got no place),
    with their bytes, the first one's physical offset and the last one's queue offset; `moved` are places where the
    existing queue leads to another message of the log; `earlier` and their bytes are messages before the queue began
    again at 0, where no existing queue shows that its topic was deleted; `bytes` are those of its messages; `anew` says
    how often the queue began again at 0. `crc` is over its units; `end` (physical offset) is after the last one's
    record, whose message was stored at `store_timestamp` (ms since 1970).
    """

    topic: str
    queue_id: int
    min_offset: int = 0
    max_offset: int = 0
    same: int = 0
    kept: int = 0
    strays: int = 0
    repeated: int = 0
    misnumbered: int = 0
    duplicates: int = 0
    duplicate_bytes: int = 0
    first_duplicate: int = -1
    last_duplicate: int = -2
    earlier: int = 0
    earlier_bytes: int = 0
    bytes: int = 0
    moved: int = 0
    anew: int = 0
    crc: int = 0
    end: int = 0
    store_timestamp: int = 0

    @property
    def key(self) -> QueueKey:
        """Return the topic and queueId."""
        return self.topic, self.queue_id

    @property
    def units(self) -> int:
        """Return how many units it has."""
        return self.max_offset - self.min_offset

    @property
    def unplaced(self) -> int:
        """Return how many messages of the queue have no place in it, as others have theirs."""
        return self.duplicates + self.earlier

    def refuse(self, message: Row, *, is_counted: bool = True) -> None:
        """Note a message (of DISPATCH_COLUMNS) whose queue offset was there already, and count it."""
        if is_counted:
            self.count_duplicate(int(message["physical_offset"]), int(message["size"]))
        self.last_duplicate = int(message["queue_offset"])

    def count_duplicate(self, physical_offset: int, size: int) -> None:
        """Count a message whose queue offset was there already."""
        if not self.duplicates:
            self.first_duplicate = physical_offset
        self.duplicates += 1
        self.duplicate_bytes += size


class BuiltQueue:
    """Takes units for the places from `counts.max_offset` on.

    Without a `writer` it only compares. Methods raise OSError.

    `log` are the physical offsets of the log. `keep` gets what is put: the queue offset of the first unit, and the
    units. `extension` is that of the existing queue: units which have an address in it are the same where it has
    their tagsCode.
    """

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
        """Append units (numpy array of UNITS) of messages stored at these times (ms)."""
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
        """Yield (queue offset of the first, numpy array of UNITS) of what the existing queue has at these places."""
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
    """Close a queue's files.

    The last one says that it was written last when its last message was stored. Raises OSError.
    """
    if writer.queue.last is not None:
        writer.queue.last.set_modified(counts.store_timestamp)
    writer.close()


def _equal_units(units: Rows, others: Rows) -> int:
    """Return how many of two rows of units are equal.

    All of them, as a rule, which is seen at once.
    """
    if np.array_equal(units.view(np.uint32), others.view(np.uint32)):
        return len(units)
    return int(np.count_nonzero(units == others))


def is_unit(units: Rows) -> Flags:
    """Return, of each unit (numpy array of UNITS) whether it stands for a message: in use and no pre-blank."""
    found: Flags = (units["physicalOffset"] >= 0) & (units["size"] > 0) & (units["size"] != PRE_BLANK_SIZE)
    return found


def lead_into(units: Rows, log: range) -> Flags:
    """Return of each unit (numpy array of UNITS) whether it stands for a message in these physical offsets of the log."""
    return is_unit(units) & (units["physicalOffset"] >= log.start) & (units["physicalOffset"] < log.stop)


def crc_of(queue: ConsumeQueue, counts: QueueCounts) -> int:
    """Return CRC-32 over the units that `counts` reports, as they stand in the files of `queue`. Raises OSError."""
    crc = 0
    for _, data in queue.blocks(counts.min_offset, counts.max_offset):
        crc = zlib_ng.crc32(data, crc)
    return crc
