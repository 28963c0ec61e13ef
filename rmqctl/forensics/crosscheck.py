"""Log against queues: every message has its unit, and every unit its message.

One pass over the log confirms units as it goes (`see`); a second over each queue's slots looks at those that no message
confirmed (`finish`). Memory: a bit a unit, and a small block of each queue.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from rmqctl.forensics.destinations import Destination, queue_destinations, right_tags_code
from rmqctl.forensics.finding import Finding
from rmqctl.format.cq_unit import CQ_UNIT, CqUnit, is_ext_address
from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.logfile.mapped_file_queue import OFFSET_MAX
from rmqctl.store.config import table
from rmqctl.store.consume_queue import BatchConsumeQueue, ConsumeQueue
from rmqctl.store.store_path import CONSUMEQUEUE

if TYPE_CHECKING:
    from rmqctl.format.damage import Damage
    from rmqctl.format.message import Message
    from rmqctl.store.consume_queue import UnitQueue
    from rmqctl.store.read_only_store import QueueKey, ReadOnlyStore

UNITS_PER_BLOCK = 256


class _QueueCursor:
    """Units of one queue by offset, a block at a time, and which of them a message confirmed."""

    def __init__(self, queue: ConsumeQueue) -> None:
        self.queue = queue
        self.max_offset = queue.max_offset
        self._first = queue.first_offset
        self._confirmed = bytearray((max(self.max_offset - self._first, 0) + 7) // 8)
        self._block: dict[int, CqUnit] = {}
        self._block_number = -1

    def unit(self, queue_offset: int) -> CqUnit | None:
        if not self._first <= queue_offset < self.max_offset:
            return None
        number = queue_offset // UNITS_PER_BLOCK
        if number != self._block_number:
            start = number * UNITS_PER_BLOCK
            self._block = {unit.queue_offset: unit for unit in self.queue.units(start, min(start + UNITS_PER_BLOCK, self.max_offset))}
            self._block_number = number
        return self._block.get(queue_offset)

    def confirm(self, queue_offset: int) -> None:
        at = queue_offset - self._first
        self._confirmed[at >> 3] |= 1 << (at & 7)

    def is_confirmed(self, queue_offset: int) -> bool:
        at = queue_offset - self._first
        return at >> 3 < len(self._confirmed) and bool(self._confirmed[at >> 3] & 1 << (at & 7))


class QueueCrosscheck:
    """Collects what is wrong between log and queues in `findings`, and what is merely worth knowing in `notes`."""

    def __init__(self, store: ReadOnlyStore) -> None:
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.expired_units = 0
        self._store = store
        self._cursors: dict[QueueKey, _QueueCursor] = {}
        self._unreadable: set[QueueKey] = set()
        self._lost: list[tuple[int, int]] = []
        self._known_topics = frozenset(table(store.config("topics.json"), "topicConfigTable"))
        self._topics_with_queues = {topic for topic, _ in store.queues}
        self._deleted_topics: dict[str, int] = {}
        self._of_queue: dict[QueueKey, dict[str, list[Finding]]] = {}
        self._last_seen: dict[QueueKey, int] = {}
        self._superseded: dict[QueueKey, int] = {}
        for key, queue in store.queues.items():
            if isinstance(queue, ConsumeQueue):
                try:
                    self._cursors[key] = _QueueCursor(queue)
                except OSError as error:
                    self._give_up(key, error)

    def see(self, message: Message) -> None:
        """A message of the log, in log order; also one with damaged content whose frame is whole."""
        for destination in queue_destinations(message):
            queue = self._store.queues.get((destination.topic, destination.queue_id))
            if isinstance(queue, BatchConsumeQueue):
                self._see_batch(queue, message)
                continue
            if queue is None and self._is_deleted_topic(destination.topic):
                self._deleted_topics[destination.topic] = self._deleted_topics.get(destination.topic, 0) + 1
                continue
            try:
                self._see_unit(destination, message)
            except OSError as error:
                self._give_up((destination.topic, destination.queue_id), error)

    def lost(self, damage: Damage) -> None:
        """A range of the log that holds no record any more: units that point there are lost messages, not wrong ones."""
        self._lost.append((damage.physical_offset, damage.end))

    def finish(self, log_end: int) -> None:
        """Look at the units that no message confirmed; `log_end` is the end of the last good record (physical offset)."""
        for key, cursor in list(self._cursors.items()):
            try:
                self._finish_queue(cursor, log_end)
            except OSError as error:
                self._give_up(key, error)
        for by_code in self._of_queue.values():
            for findings in by_code.values():
                self.findings += findings
        for (topic, queue_id), count in sorted(self._superseded.items()):
            self.notes.append(f"{count} messages of {topic}/{queue_id} are from before the topic was deleted and created again")
        for topic, count in sorted(self._deleted_topics.items()):
            self.notes.append(f"{count} messages of topic {topic!r}, which topics.json does not list, have no queue: deleted topic")
        if self.expired_units:
            self.notes.append(f"{self.expired_units} queue units point before the log's first file (expired messages)")

    def _give_up(self, key: QueueKey, error: OSError) -> None:
        """A queue that cannot be read is one finding, and is asked no more."""
        self._cursors.pop(key, None)
        self._unreadable.add(key)
        detail = f"the queue cannot be read: {error.strerror}"
        path = f"{CONSUMEQUEUE}/{key[0]}/{key[1]}"
        self.findings.append(Finding("unreadable", path, None, detail, topic=key[0], queue_id=key[1]))

    def _see_unit(self, destination: Destination, message: Message) -> None:
        if (destination.topic, destination.queue_id) in self._unreadable:
            return
        key = (destination.topic, destination.queue_id)
        cursor = self._cursors.get(key)
        unit = cursor.unit(destination.queue_offset) if cursor else None
        if (
            destination.queue_offset == 0
            and unit is not None
            and unit.physical_offset == message.physical_offset
            and key in self._last_seen
        ):
            self._begin_anew(key)
        self._last_seen[key] = destination.queue_offset
        if cursor is None or unit is None:
            self._add("missing-unit", destination, message.physical_offset, "the message has no unit in its queue")
            return
        if unit.physical_offset != message.physical_offset:
            what = f"the unit points to {unit.physical_offset}, the message is at {message.physical_offset}"
            self._add("unit-mismatch", destination, message.physical_offset, what)
            return
        cursor.confirm(destination.queue_offset)
        if unit.size != message.size:
            self._add("unit-size", destination, message.physical_offset, f"the unit's size is {unit.size}, the record has {message.size}")
        self._check_tags_code(destination, message, unit)

    def _begin_anew(self, key: QueueKey) -> None:
        """The queue starts at 0 again, and its unit 0 says so, too: the messages before are of a topic that was deleted."""
        by_code = self._of_queue.pop(key, {})
        gone = sum(finding.count for code in ("missing-unit", "unit-mismatch") for finding in by_code.get(code, []))
        self._superseded[key] = self._superseded.get(key, 0) + gone

    def _check_tags_code(self, destination: Destination, message: Message, unit: CqUnit) -> None:
        code: int | None = unit.tags_code
        extension = self._store.extensions.get((destination.topic, destination.queue_id))
        if extension is not None and is_ext_address(unit.tags_code):
            code = extension.tags_code(unit.tags_code)
            if code is None:
                what = f"the address {unit.tags_code} leads to no unit of the extension"
                self._add("ext-missing", destination, message.physical_offset, what)
                return
        if code is not None and not right_tags_code(destination, message.store_timestamp, code):
            wanted = "a delivery time" if destination.scheduled else str(destination.tags_code)
            self._add("unit-tags-code", destination, message.physical_offset, f"the tags code is {code}, not {wanted}")

    def _see_batch(self, queue: BatchConsumeQueue, message: Message) -> None:
        unit = queue.find(message.queue_offset)
        destination = Destination(queue.topic, queue.queue_id, message.queue_offset, 0)
        if unit is None:
            self._add("missing-unit", destination, message.physical_offset, "the batch has no unit in its queue")
        elif unit.physical_offset != message.physical_offset or unit.size != message.size:
            what = f"the batch's unit points to {unit.physical_offset}, {unit.size} bytes"
            self._add("unit-mismatch", destination, message.physical_offset, what)

    def _finish_queue(self, cursor: _QueueCursor, log_end: int) -> None:
        queue = cursor.queue
        log_start = self._store.commit_log.min_offset
        previous = -1
        for slot in queue.slots():
            if slot.physical_offset == slot.size == slot.tags_code == 0:
                if slot.queue_offset < cursor.max_offset:
                    self._add_unit("unit-hole", queue, slot, "an unused unit between used ones")
            elif slot.physical_offset < 0 or slot.size <= 0:
                code = "unit-hole" if slot.queue_offset < cursor.max_offset else "unit-behind-end"
                self._add_unit(code, queue, slot, f"not a unit: physicalOffset {slot.physical_offset}, size {slot.size}")
            elif slot.is_pre_blank and previous < 0:
                continue
            else:
                if slot.physical_offset <= previous:
                    self._add_unit("unit-order", queue, slot, f"physicalOffset {slot.physical_offset} after {previous}")
                previous = max(previous, slot.physical_offset)
                if not cursor.is_confirmed(slot.queue_offset):
                    self._unconfirmed(queue, slot, log_start, log_end)
        queue.queue.close()

    def _unconfirmed(self, queue: ConsumeQueue, unit: CqUnit, log_start: int, log_end: int) -> None:
        at = unit.physical_offset
        if at < log_start:
            self.expired_units += 1
        elif self._is_lost(at):
            self._add_unit("unit-lost-message", queue, unit, "the unit points at damaged or missing bytes of the log")
        elif at >= log_end:
            self._add_unit("dangling-unit", queue, unit, f"the unit points behind the end of the log, {log_end}")
        else:
            self._add_unit("unit-mismatch", queue, unit, f"at {at} is {self._what_is_at(at)}")

    def _is_lost(self, physical_offset: int) -> bool:
        at = bisect_right(self._lost, (physical_offset, OFFSET_MAX)) - 1
        return at >= 0 and physical_offset < self._lost[at][1]

    def _what_is_at(self, physical_offset: int) -> str:
        message = self._store.commit_log.message_at(physical_offset)
        if message is not None:
            return f"the message of {message.topic}/{message.queue_id} with queue offset {message.queue_offset}"
        return "no record"

    def _is_deleted_topic(self, topic: str) -> bool:
        """Whether a topic without any queue was deleted: topics.json is there and does not list it."""
        listed = topic in self._known_topics or topic in self._topics_with_queues
        return bool(self._known_topics) and not listed and not topic.startswith(LMQ_PREFIX)

    def _add_unit(self, code: str, queue: UnitQueue, unit: CqUnit, detail: str) -> None:
        self._add(code, Destination(queue.topic, queue.queue_id, unit.queue_offset, 0), unit.physical_offset, detail)

    def _add(self, code: str, destination: Destination, physical_offset: int, detail: str) -> None:
        """Add a finding, or count it with the one before it in the same queue when it is its neighbour."""
        key = (destination.topic, destination.queue_id)
        same = self._of_queue.setdefault(key, {}).setdefault(code, [])
        if same and same[-1].queue_offset is not None and same[-1].queue_offset + same[-1].count == destination.queue_offset:
            same[-1].count += 1
            return
        path, file_offset = self._place(key, destination.queue_offset)
        finding = Finding(code, path, physical_offset, detail, file_offset)
        finding.topic, finding.queue_id, finding.queue_offset = key[0], key[1], destination.queue_offset
        same.append(finding)

    def _place(self, key: QueueKey, queue_offset: int) -> tuple[str, int | None]:
        """The file of a unit and the unit's place in it; the queue's folder (in words only) where there is no such file."""
        queue = self._store.queues.get(key)
        at = queue_offset * CQ_UNIT.size
        file = queue.queue.find(at) if isinstance(queue, ConsumeQueue) else None
        if file is None:
            return f"{CONSUMEQUEUE}/{key[0]}/{key[1]}", None
        return file.name, at - file.file_from_offset
