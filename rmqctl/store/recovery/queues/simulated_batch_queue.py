"""A batch consume queue of 5.x in a simulated recovery (BatchConsumeQueue).

It is loaded, cut and filled by the broker's rules; nothing is written. Two things differ from a consume queue: its max
physical offset is the *start* of the last batch's record, and its units contain the queue offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqctl.format.columns import BATCH_UNITS
from rmqctl.store.config.store_path import BATCHCONSUMEQUEUE
from rmqctl.store.dispatch.dispatch_rules import batch_of
from rmqctl.store.recovery.rules import NO_QUEUE, third_from_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.format.columns import Flags, Rows
    from rmqctl.format.message import Message
    from rmqctl.format.profile import StartRules
    from rmqctl.logfile.mapped_file import MappedFile

_FIELDS = ["physicalOffset", "size", "baseOffset", "count"]  # what a simulated unit has
NO_BATCH = -1  # the min offset of a queue without units


class _File:
    """A file of a batch consume queue, on disk or new.

    `wrote` is the number of units in use. `new` has the units that the simulation added, from position `new_from` on.
    """

    def __init__(self, mapped: MappedFile | None, units_a_file: int) -> None:
        self.mapped = mapped
        self.wrote = units_a_file if mapped else 0
        self.new_from = 0
        self.new: list[tuple[int, int, int, int]] = []
        self._units_a_file = units_a_file

    def units(self) -> Rows:
        """Return all units of the file, in use or not (array of BATCH_UNITS)."""
        units = np.zeros(self._units_a_file, BATCH_UNITS)
        if self.mapped is not None:
            self.mapped.read_into(0, units.view(np.uint8).data)
            self.mapped.close()
        if self.new:
            units[self.new_from : self.new_from + len(self.new)][_FIELDS] = self.new
        return units

    def append(self, unit: tuple[int, int, int, int]) -> None:
        if not self.new:
            self.new_from = self.wrote
        self.new.append(unit)
        self.wrote += 1


class RecoveredBatchQueue:
    """A simulated batch consume queue with `files`, in ascending order.

    `max_physical_offset` and the queue offsets are those of BatchConsumeQueue. `deleted` names the files that recovery
    deletes; `cut_from` is the max offset before the cut, or None if it removed no batches. Methods raise OSError.
    """

    def __init__(self, topic: str, queue_id: int, files: Sequence[MappedFile], units_a_file: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.deleted: tuple[str, ...] = ()
        self.cut_from: int | None = None
        self.max_physical_offset = NO_QUEUE
        self.min_offset = NO_BATCH
        self.max_offset = 0
        self._units_a_file = units_a_file
        self._files = [_File(file, units_a_file) for file in files]

    @property
    def name(self) -> str:
        """Return the folder of the queue."""
        return f"{BATCHCONSUMEQUEUE}/{self.topic}/{self.queue_id}"

    def recover(self) -> None:
        """Find the end of the queue in the last three files, and delete later files."""
        for number in range(third_from_end(len(self._files)), len(self._files)):
            file = self._files[number]
            units = file.units()
            file.wrote = _first(~_in_use(units))
            if file.wrote:
                self.max_physical_offset = int(units[file.wrote - 1]["physicalOffset"])
            if file.wrote < self._units_a_file:
                self._delete_from(number + 1)
                break
        self._find_max_offset()

    def put(self, message: Message) -> None:
        """Dispatch one message."""
        if message.physical_offset <= self.max_physical_offset:
            return
        base, count = batch_of(message)
        if not self._files or self._files[-1].wrote == self._units_a_file:
            self._files.append(_File(None, self._units_a_file))
        self._files[-1].append((message.physical_offset, message.size, base, count))
        self.max_physical_offset, self.max_offset = message.physical_offset, base + count

    def cut(self, log_end: int) -> None:
        """Remove all batches that point to the log's end or after it.

        In the last file, the broker does not check whether the first unit is in use.
        """
        before = self.max_offset
        self.max_physical_offset = log_end - 1
        while self._files:
            units = self._files[-1].units()
            good = _in_use(units) & (units["physicalOffset"] < log_end)
            good[0] = units[0]["physicalOffset"] < log_end
            kept = _first(~good)
            if kept:
                self._files[-1].wrote = kept
                self.max_physical_offset = int(units[kept - 1]["physicalOffset"])
                break
            self._delete_from(len(self._files) - 1)
        self._find_max_offset()
        self.cut_from = before if self.max_offset < before else None

    def destroy(self) -> None:
        """Delete all files of the queue."""
        self._delete_from(0)
        self.max_physical_offset, self.max_offset = NO_QUEUE, 0

    def correct_min_offset(self, log_start: int, start: StartRules) -> str | None:  # noqa: ARG002 -- RecoveredQueue's
        """Find the min offset of the queue; return None, or why a broker fails.

        The search in the first file skips batches whose records are before the log's start. The min offset is the queue
        offset after the last skipped batch, or without one the base offset of the first batch.
        """
        self.min_offset = NO_BATCH
        if self._files and self._files[0].wrote:
            units = self._files[0].units()[: self._files[0].wrote]
            expired = _first(units["physicalOffset"] >= log_start)
            last = units[max(expired - 1, 0)]
            self.min_offset = int(last["baseOffset"]) + (int(last["count"]) if expired else 0)
        return None

    def _find_max_offset(self) -> None:
        self.max_offset = 0
        for file in self._files[:-3:-1]:
            if file.wrote:
                last = file.units()[file.wrote - 1]
                self.max_offset = int(last["baseOffset"]) + int(last["count"])
                return

    def _delete_from(self, number: int) -> None:
        self.deleted += tuple(file.mapped.name for file in self._files[number:] if file.mapped is not None)
        del self._files[number:]


def _in_use(units: Rows) -> Flags:
    return (units["physicalOffset"] >= 0) & (units["size"] > 0) & (units["baseOffset"] >= 0) & (units["count"] > 0)


def _first(holds: Flags) -> int:
    """Return the index of the first True in `holds`, or the length if all are False."""
    return int(np.argmax(holds)) if holds.any() else len(holds)
