"""Check the units that no message of the log confirmed."""

from __future__ import annotations

from bisect import bisect_right
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.forensics.audit.units.queue_findings import FINDINGS_MAX
from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import GAP_POSITION, PRE_BLANK_SIZE, CqUnit
from rmqctl.format.message import Blank
from rmqctl.logfile.mapped_file_queue import OFFSET_MAX
from rmqctl.store.dispatch.dispatch_rules import DispatchTarget, queue_destinations

if TYPE_CHECKING:
    from rmqctl.forensics.audit.units.queue_findings import QueueFindings
    from rmqctl.forensics.audit.units.unit_audit import QueueCursor
    from rmqctl.format.columns import Flags, Rows
    from rmqctl.store.read.consume_queue import BatchConsumeQueue, UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore

_UNUSED = "an unused unit between used ones"


class UnconfirmedUnits:
    """Checks the units of queues that no message confirmed, and adds `findings`.

    `lost` has the ranges of the log without records, ascending, and `log_end` is the end of the last good record. In
    the end, `expired` counts the units that point before the log's start, and `spanning` those of queues whose last
    unit points into the log.
    """

    def __init__(
        self, store: ReadOnlyStore, findings: QueueFindings, lost: list[tuple[int, int]], log_end: int
    ) -> None:
        self.expired = 0
        self.spanning = 0
        self._store = store
        self._findings = findings
        self._lost = lost
        self._log_start = store.commit_log.min_offset
        self._log_end = log_end

    def finish_queue(self, cursor: QueueCursor) -> None:
        """Check the unconfirmed units of a queue, and close it. Raises OSError."""
        queue, confirmed = cursor.queue, cursor.confirmed()
        if confirmed == [(cursor.first, cursor.data_end)]:
            queue.queue.close()
            return
        rest = _Passed()
        behind, expired_before = 0, self.expired
        for start, end in confirmed:
            self._finish_slots(cursor, rest, behind, start)
            first, last = queue.find(start), queue.find(end - 1)
            if first is not None and first.physical_offset <= rest.previous:
                for slot in takewhile(lambda unit: unit.physical_offset <= rest.previous, queue.units(start, end)):
                    self._out_of_order(queue, slot, rest.previous)
            rest.in_front = False
            rest.previous = max(rest.previous, last.physical_offset if last else -1)
            behind = end
        self._finish_slots(cursor, rest, behind, cursor.data_end)
        self._count_spanning(queue, expired_before)
        queue.queue.close()

    def finish_batch_queue(self, queue: BatchConsumeQueue) -> None:
        """Check the batches of a queue.

        They must follow one another without a gap, in the order of the log, and must point into the log.
        """
        previous: CqUnit | None = None
        expired_before = self.expired
        for unit in queue.units(0, OFFSET_MAX):
            expected = previous.queue_offset + previous.batch_size if previous else unit.queue_offset
            if unit.queue_offset != expected:
                what = f"the batch begins at {unit.queue_offset}, the one before ends at {expected}"
                self._findings.add_unit("unit-order", queue, unit, what)
            if previous is not None and unit.physical_offset <= previous.physical_offset:
                self._out_of_order(queue, unit, previous.physical_offset)
            self._leads_to_no_record(queue, unit)
            previous = unit
        self._count_spanning(queue, expired_before)
        queue.queue.close()

    def _count_spanning(self, queue: UnitQueue, expired_before: int) -> None:
        """Count the expired units of a queue whose last unit points into the log.

        A queue whose messages have all expired does not count: a broker keeps its last units to know the next queue
        offset.
        """
        expired = self.expired - expired_before
        last = queue.last() if expired else None
        if last is not None and last.physical_offset >= self._log_start:
            self.spanning += expired

    def _finish_slots(self, cursor: QueueCursor, rest: _Passed, start: int, end: int) -> None:
        for at, count, data in cursor.queue.parts(start, end):
            if not data:  # a hole of the file: what zeros on the disk are, too
                unused = min(count, cursor.max_offset - at)
                if unused > 0:
                    target = DispatchTarget(cursor.queue.topic, cursor.queue.queue_id, at, 0)
                    self._findings.add("unit-hole", target, 0, _UNUSED, unused)
                continue
            units = np.frombuffer(data, UNITS)
            if at >= cursor.max_offset and not units.view(np.uint8).any():
                continue
            if rest.are_expired(units, self._log_start):
                self.expired += len(units)
                continue
            left = np.flatnonzero(~self._counted(cursor, rest, at, units))
            for number, unit in zip(left.tolist(), units[left].tolist(), strict=True):
                self._unconfirmed_slot(cursor, rest, CqUnit(at + number, *unit))

    def _counted(self, cursor: QueueCursor, rest: _Passed, at: int, units: Rows) -> Flags:
        # only units whose code already has FINDINGS_MAX findings; they begin at queue offset `at`; one flag each
        by_code = self._findings.of((cursor.queue.topic, cursor.queue.queue_id))
        counted = np.zeros(len(units), np.bool_)
        if rest.in_front or all(len(found) < FINDINGS_MAX for found in by_code.values()):
            return counted
        offsets, sizes = units["physicalOffset"], units["size"]
        is_unused = (offsets == 0) & (sizes == 0) & (units["tagsCode"] == 0)
        is_none = (offsets < 0) | (sizes <= 0)
        is_inside = np.arange(at, at + len(units)) < cursor.max_offset
        behind = offsets >= max(self._log_end, self._lost[-1][1] if self._lost else 0)
        kinds = {
            "unit-hole": is_none & is_inside,
            "unit-behind-end": is_none & ~is_inside & ~is_unused,
            "dangling-unit": ~is_none & behind,
        }
        for code, of_kind in kinds.items():
            if len(by_code.get(code, ())) >= FINDINGS_MAX:
                by_code[code][-1].count += int(np.count_nonzero(of_kind))
                counted |= of_kind
        return counted

    def _unconfirmed_slot(self, cursor: QueueCursor, rest: _Passed, slot: CqUnit) -> None:
        queue = cursor.queue
        if slot.physical_offset == slot.size == slot.tags_code == 0:
            if slot.queue_offset < cursor.max_offset:
                self._findings.add_unit("unit-hole", queue, slot, _UNUSED)
        elif slot.physical_offset < 0 or slot.size <= 0:
            code = "unit-hole" if slot.queue_offset < cursor.max_offset else "unit-behind-end"
            what = f"not a unit: physicalOffset {slot.physical_offset}, size {slot.size}"
            self._findings.add_unit(code, queue, slot, what)
        elif not (slot.is_pre_blank and rest.in_front) and not self._is_gap(slot):
            rest.in_front = False
            if slot.physical_offset <= rest.previous:
                self._out_of_order(queue, slot, rest.previous)
            if not self._leads_to_no_record(queue, slot):
                at = slot.physical_offset
                self._findings.add_unit("unit-mismatch", queue, slot, f"at {at} is {self._what_is_at(at)}")
            if slot.physical_offset < self._log_start:
                rest.previous = max(rest.previous, slot.physical_offset)  # other unconfirmed units may be wrong

    def _is_gap(self, slot: CqUnit) -> bool:
        if not slot.is_gap or slot.physical_offset != self._log_start + GAP_POSITION:
            return False
        return isinstance(self._store.commit_log.at(self._log_start), Blank)

    def _out_of_order(self, queue: UnitQueue, unit: CqUnit, previous: int) -> None:
        self._findings.add_unit("unit-order", queue, unit, f"physicalOffset {unit.physical_offset} after {previous}")

    def _leads_to_no_record(self, queue: UnitQueue, unit: CqUnit) -> bool:
        """Return whether a unit leads out of the log or to damage, and note it."""
        at = unit.physical_offset
        if at < self._log_start:
            self.expired += 1
        elif self._is_lost(at):
            what = "the unit points at damaged or missing bytes of the log"
            self._findings.add_unit("unit-lost-message", queue, unit, what)
        elif at >= self._log_end:
            what = f"the unit points after the end of the log, {self._log_end}"
            self._findings.add_unit("dangling-unit", queue, unit, what)
        else:
            return False
        return True

    def _is_lost(self, physical_offset: int) -> bool:
        at = bisect_right(self._lost, (physical_offset, OFFSET_MAX)) - 1
        return at >= 0 and physical_offset < self._lost[at][1]

    def _what_is_at(self, physical_offset: int) -> str:
        message = self._store.commit_log.message_at(physical_offset)
        if message is not None:
            what = "the message" if queue_destinations(message) else "a prepared or rollback record"
            return f"{what} of {message.topic}/{message.queue_id} with queue offset {message.queue_offset}"
        return "no record"


class _Passed:
    """The last valid physical offset of a queue, and whether no unit was in use."""

    def __init__(self) -> None:
        self.previous = -1
        self.in_front = True

    def are_expired(self, units: Rows, log_start: int) -> bool:
        """Pass over a block of expired units in log order, or return False."""
        offsets = units["physicalOffset"]
        are_used = (offsets >= 0) & (offsets < log_start) & (units["size"] > 0) & (units["size"] < PRE_BLANK_SIZE)
        if not are_used.all() or offsets[0] <= self.previous or not bool((offsets[1:] > offsets[:-1]).all()):
            return False
        self.previous, self.in_front = int(offsets[-1]), False
        return True
