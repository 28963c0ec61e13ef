"""Log against queues, one message and one unit at a time: the second opinion on `rmqctl.forensics.crosscheck`.

One pass over the log confirms units as it goes (`see`); a second over each queue's slots looks at those that no message
confirmed (`finish`). Memory: a bit a unit, and a small block of each queue.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING

from rmqctl.forensics.finding import Finding
from rmqctl.format.cq_unit import BATCH_CQ_UNIT, CQ_UNIT, CqUnit, is_ext_address
from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.logfile.mapped_file_queue import OFFSET_MAX
from rmqctl.store.config import table
from rmqctl.store.consume_queue import BatchConsumeQueue, ConsumeQueue
from rmqctl.store.destinations import Destination, batch_size, queue_destinations, right_tags_code
from rmqctl.store.store_path import BATCHCONSUMEQUEUE, CONSUMEQUEUE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.damage import Damage
    from rmqctl.format.message import Message
    from rmqctl.store.consume_queue import UnitQueue
    from rmqctl.store.read_only_store import QueueKey, ReadOnlyStore

UNITS_PER_BLOCK = 256
FILES_FOR_A_MAJORITY = 3


class _QueueCursor:
    """Units of one queue by offset, a block of bytes at a time, and which of them a message confirmed."""

    def __init__(self, queue: ConsumeQueue) -> None:
        self.queue = queue
        self.max_offset = queue.end_by_scan()
        self._first = queue.first_offset
        self._confirmed = bytearray((max(self.max_offset - self._first, 0) + 7) // 8)
        self._block = b""
        self._block_start = 0

    def unit(self, queue_offset: int) -> CqUnit | None:
        if not self._first <= queue_offset < self.max_offset:
            return None
        at = queue_offset - self._block_start
        if not 0 <= at < len(self._block) // CQ_UNIT.size:
            self._block_start, self._block = next(
                self.queue.blocks(queue_offset, min(queue_offset + UNITS_PER_BLOCK, self.max_offset)), (queue_offset, b"")
            )
            at = queue_offset - self._block_start
            if not 0 <= at < len(self._block) // CQ_UNIT.size:
                return None
        physical_offset, size, tags_code = CQ_UNIT.struct.unpack_from(self._block, at * CQ_UNIT.size)
        return CqUnit(queue_offset, physical_offset, size, tags_code) if physical_offset >= 0 and size > 0 else None

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
            key = (destination.topic, destination.queue_id)
            if key in self._unreadable or destination.topic in self._store.unreadable_folders:
                continue
            queue = self._store.queues.get(key)
            if queue is None and self._is_deleted_topic(destination.topic):
                self._deleted_topics[destination.topic] = self._deleted_topics.get(destination.topic, 0) + 1
                continue
            try:
                if isinstance(queue, BatchConsumeQueue):
                    self._see_batch(queue, message)
                else:
                    self._see_unit(destination, message)
            except OSError as error:
                self._give_up(key, error)

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
        for key, queue in self._store.queues.items():
            if isinstance(queue, BatchConsumeQueue) and key not in self._unreadable:
                try:
                    self._finish_batch_queue(queue, log_end)
                except OSError as error:
                    self._give_up(key, error)
        self._check_files()
        for by_code in self._of_queue.values():
            for findings in by_code.values():
                self.findings += findings
        for (topic, queue_id), count in sorted(item for item in self._superseded.items() if item[1]):
            self.notes.append(f"{count} messages of {topic}/{queue_id} are from before the topic was deleted and created again")
        for topic, count in sorted(self._deleted_topics.items()):
            self.notes.append(f"{count} messages of topic {topic!r}, which topics.json does not list, have no queue: deleted topic")

    def _give_up(self, key: QueueKey, error: OSError) -> None:
        """A queue that cannot be read is one finding, and is asked no more."""
        self._cursors.pop(key, None)
        self._unreadable.add(key)
        detail = f"the queue cannot be read: {error.strerror}"
        path = f"{CONSUMEQUEUE}/{key[0]}/{key[1]}"
        self.findings.append(Finding("unreadable", path, None, detail, topic=key[0], queue_id=key[1]))

    def _see_unit(self, destination: Destination, message: Message) -> None:
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
        if is_ext_address(unit.tags_code):
            extension = self._store.extensions.get((destination.topic, destination.queue_id))
            code = extension.tags_code(unit.tags_code) if extension else None
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
        elif unit.batch_size != batch_size(message):
            what = f"the unit stands for {unit.batch_size} messages, the batch has {batch_size(message)}"
            self._add("unit-mismatch", destination, message.physical_offset, what)

    def _finish_queue(self, cursor: _QueueCursor, log_end: int) -> None:
        queue = cursor.queue
        log_start = self._store.commit_log.min_offset
        previous = -1
        in_front = True
        for slot in _slots(queue, cursor.max_offset):
            if slot.physical_offset == slot.size == slot.tags_code == 0:
                if slot.queue_offset < cursor.max_offset:
                    self._add_unit("unit-hole", queue, slot, "an unused unit between used ones")
            elif slot.physical_offset < 0 or slot.size <= 0:
                code = "unit-hole" if slot.queue_offset < cursor.max_offset else "unit-behind-end"
                self._add_unit(code, queue, slot, f"not a unit: physicalOffset {slot.physical_offset}, size {slot.size}")
            elif slot.is_pre_blank and in_front:
                continue
            else:
                in_front = False
                if slot.physical_offset <= previous:
                    self._add_unit("unit-order", queue, slot, f"physicalOffset {slot.physical_offset} after {previous}")
                if not cursor.is_confirmed(slot.queue_offset):
                    self._unconfirmed(queue, slot, log_start, log_end)
                if cursor.is_confirmed(slot.queue_offset) or slot.physical_offset < log_start:
                    previous = max(previous, slot.physical_offset)  # what no message confirms is no measure
        queue.queue.close()

    def _finish_batch_queue(self, queue: BatchConsumeQueue, log_end: int) -> None:
        """Batches follow one another without a gap, in the order of the log, and point into it."""
        previous: CqUnit | None = None
        for unit in queue.units(0, OFFSET_MAX):
            expected = previous.queue_offset + previous.batch_size if previous else unit.queue_offset
            if unit.queue_offset != expected:
                self._add_unit("unit-order", queue, unit, f"the batch begins at {unit.queue_offset}, the one before ends at {expected}")
            if previous is not None and unit.physical_offset <= previous.physical_offset:
                self._add_unit("unit-order", queue, unit, f"physicalOffset {unit.physical_offset} after {previous.physical_offset}")
            if unit.physical_offset < self._store.commit_log.min_offset:
                self.expired_units += 1
            elif self._is_lost(unit.physical_offset):
                self._add_unit("unit-lost-message", queue, unit, "the unit points at damaged or missing bytes of the log")
            elif unit.physical_offset >= log_end:
                self._add_unit("dangling-unit", queue, unit, f"the unit points behind the end of the log, {log_end}")
            previous = unit
        queue.queue.close()

    def _check_files(self) -> None:
        """The files of each queue and of its extension: lengths, gaps between them, names that are no multiple of a unit."""
        plain = [queue.queue for queue in self._store.queues.values() if isinstance(queue, ConsumeQueue)]
        usual = _majority([file.size for files in plain for file in files.files])
        for key, queue in self._store.queues.items():
            extension = self._store.extensions.get(key)
            unit_size = BATCH_CQ_UNIT.size if isinstance(queue, BatchConsumeQueue) else CQ_UNIT.size
            problems = {damage.path: (damage.code, damage.detail) for damage in queue.queue.anomalies}
            for file in queue.queue.files:
                if file.file_from_offset % unit_size or file.size % unit_size:
                    problems.setdefault(file.name, ("file-length", f"{file.size} bytes; name and length must be multiples of {unit_size}"))
                elif isinstance(queue, ConsumeQueue) and usual is not None and file.size != usual:
                    problems.setdefault(file.name, ("file-length", f"{file.size} bytes, most queue files have {usual}: no broker loads it"))
            problems |= {damage.path: (damage.code, damage.detail) for damage in (extension.queue.anomalies if extension else [])}
            self.findings += [Finding(code, path, None, what, topic=key[0], queue_id=key[1]) for path, (code, what) in problems.items()]

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
            folder = BATCHCONSUMEQUEUE if isinstance(queue, BatchConsumeQueue) else CONSUMEQUEUE
            return f"{folder}/{key[0]}/{key[1]}", None
        return file.name, at - file.file_from_offset


def _slots(queue: ConsumeQueue, used_end: int) -> Iterator[CqUnit]:
    """Every slot of every file as it stands; from `used_end` on blocks of zeros are left out."""
    for slot, data in queue.blocks(0, queue.slots_end):
        if slot < used_end or any(data):
            for at, fields in enumerate(CQ_UNIT.struct.iter_unpack(data), slot):
                yield CqUnit(at, *fields)


def _majority(sizes: list[int]) -> int | None:
    """The size that more than half of the files have, of at least three; None when there is none."""
    size, count = Counter(sizes).most_common(1)[0] if sizes else (0, 0)
    return size if len(sizes) >= FILES_FOR_A_MAJORITY and count * 2 > len(sizes) else None
