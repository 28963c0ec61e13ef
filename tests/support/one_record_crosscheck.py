"""Log against queues, one message and one unit at a time: the second opinion on `rmqctl.forensics.audit.crosscheck`.

What that does for whole batches of messages and for runs of units is done here for each: every message goes the way
that only odd ones go there, what was confirmed is a set, and every slot is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.forensics.audit.crosscheck import QueueCrosscheck
from rmqctl.forensics.audit.units.unconfirmed_units import UnconfirmedUnits
from rmqctl.forensics.audit.units.unit_audit import QueueCursor
from rmqctl.format.cq_unit import CQ_UNIT, CqUnit
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.dispatch.dispatch_rules import queue_destinations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.message import Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consume_queue import ConsumeQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class _SetCursor(QueueCursor):
    """Which units of a queue a message confirmed, one by one."""

    def __init__(self, queue: ConsumeQueue) -> None:
        super().__init__(queue)
        self.confirmed_offsets: set[int] = set()

    def confirm(self, queue_offset: int) -> None:
        self.confirmed_offsets.add(queue_offset)


class OneRecordCrosscheck(QueueCrosscheck):
    """Takes messages by `see_message` only."""

    def __init__(self, store: ReadOnlyStore) -> None:
        super().__init__(store, DispatchRequestBuilder(with_keys=False))
        self._cursors = {key: _SetCursor(cursor.queue) for key, cursor in self._cursors.items()}
        self._seen: set[QueueKey] = set()

    def see_message(self, message: Message) -> None:
        """A message of the log, in log order; also one with damaged content whose frame is whole."""
        if queue_destinations(message):
            self._see_message(message, again=self._is_seen((message.topic, message.queue_id), message.physical_offset))

    def _is_seen(self, key: QueueKey, physical_offset: int) -> bool:
        del physical_offset  # they come in its order
        seen = key in self._seen
        self._seen.add(key)
        return seen

    def _unconfirmed(self, log_end: int) -> UnconfirmedUnits:
        return _OneByOne(self._store, self.by_queue, self._lost, log_end)


class _OneByOne(UnconfirmedUnits):
    """Checks every slot."""

    def finish_queue(self, cursor: QueueCursor) -> None:
        assert isinstance(cursor, _SetCursor)
        queue, confirmed = cursor.queue, cursor.confirmed_offsets
        previous = -1
        in_front = True
        for slot in _slots(queue, cursor.max_offset):
            if slot.physical_offset == slot.size == slot.tags_code == 0:
                if slot.queue_offset < cursor.max_offset:
                    self._findings.add_unit("unit-hole", queue, slot, "an unused unit between used ones")
            elif slot.physical_offset < 0 or slot.size <= 0:
                code = "unit-hole" if slot.queue_offset < cursor.max_offset else "unit-behind-end"
                self._findings.add_unit(
                    code, queue, slot, f"not a unit: physicalOffset {slot.physical_offset}, size {slot.size}"
                )
            elif not (slot.is_pre_blank and in_front):
                in_front = False
                if slot.physical_offset <= previous:
                    self._findings.add_unit(
                        "unit-order", queue, slot, f"physicalOffset {slot.physical_offset} after {previous}"
                    )
                if slot.queue_offset not in confirmed and not self._leads_to_no_record(queue, slot):
                    at = slot.physical_offset
                    self._findings.add_unit("unit-mismatch", queue, slot, f"at {at} is {self._what_is_at(at)}")
                if slot.queue_offset in confirmed or slot.physical_offset < self._log_start:
                    previous = max(previous, slot.physical_offset)  # what no message confirms is no measure
        queue.queue.close()


def _slots(queue: ConsumeQueue, used_end: int) -> Iterator[CqUnit]:
    """Every slot of every file as it stands; from `used_end` on blocks of zeros are left out."""
    for slot, count, part in queue.parts(0, queue.slots_end):
        data = part or bytes(count * CQ_UNIT.size)
        if slot < used_end or any(data):
            for at, fields in enumerate(CQ_UNIT.struct.iter_unpack(data), slot):
                yield CqUnit(at, *fields)
