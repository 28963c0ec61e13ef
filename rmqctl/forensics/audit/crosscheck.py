"""Check that messages of the log have units, and that units have messages.

In one pass over the log, `on_messages` confirms the unit of each message. Then `finish` checks all units that no
message confirmed. Many messages are compared at once. A single message or unit is examined only if the comparison of a
batch shows a difference.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.forensics.audit.unit_audit import QueueCursor, UnitAudit
from rmqctl.forensics.finding import Finding
from rmqctl.forensics.queue_files import queue_file_findings
from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import CQ_UNIT, EXT_ADDRESS_MAX, PRE_BLANK_SIZE, CqUnit, is_ext_address
from rmqctl.kernels.cq_unit_compare import (
    ABSENT,
    ASK,
    ASK_AGAIN,
    CONFIRMED,
    ELSEWHERE,
    IGNORED,
    MISSING,
    NOT_ASKED,
    ODD,
    PLAIN,
)
from rmqctl.kernels.dispatch_scan import DELAYED
from rmqctl.logfile.mapped_file_queue import OFFSET_MAX
from rmqctl.logfile.record_reader import RecordReader
from rmqctl.store.config.store_path import BATCHCONSUMEQUEUE, CONSUMEQUEUE
from rmqctl.store.config.topics import SCHEDULE_TOPIC
from rmqctl.store.dispatch.dispatch_rules import DispatchTarget, batch_size, queue_destinations, right_tags_code
from rmqctl.store.dispatch.light_queues import gets_no_unit, is_left_out_topic
from rmqctl.store.read.commit_log import message_of
from rmqctl.store.read.consume_queue import BatchConsumeQueue, ConsumeQueue
from rmqctl.store.read.known_topics import KnownTopics
from rmqctl.store.read.version_guess import signs_of_5

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqctl.forensics.audit.part_audit import CheckedRun
    from rmqctl.format.columns import Flags, Numbers, Rows
    from rmqctl.format.message import Damage, Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore

FINDINGS_MAX = 1000  # with one code in one queue: a file of garbage gives one for each unit
_UNUSED = "an unused unit between used ones"


class QueueCrosscheck:
    """Collects differences between log and queues in `findings`.

    `missed` counts, for each queue, the messages of the log that have no unit in the queue. `expired_units` counts the
    units that point before the log's start. `spanning_units` counts the expired units in queues whose last unit points
    into the log. `new_at` returns the message that a planned repair will write at a physical offset, or None.
    """

    def __init__(
        self,
        store: ReadOnlyStore,
        builder: DispatchRequestBuilder,
        new_at: Callable[[int], Message | None] = lambda _: None,
    ) -> None:
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.missed: Counter[QueueKey] = Counter()
        self.expired_units = 0
        self.spanning_units = 0
        self._store = store
        self._builder = builder
        self._new_at = new_at
        self._cursors: dict[QueueKey, QueueCursor] = {}
        self._unreadable: set[QueueKey] = set()
        self._lost: list[tuple[int, int]] = []
        self._known_topics = KnownTopics(store)
        self._topics_with_queues = {topic for topic, _ in store.queues}
        self._deleted_topics: dict[str, int] = {}
        self._of_queue: dict[QueueKey, dict[str, list[Finding]]] = {}
        # of messages whose unit is not at their QUEUEOFFSET: its place, how many follow alike, the first one, and where
        self._served: dict[QueueKey, list[tuple[int, int, DispatchTarget, int]]] = {}
        self._reader: RecordReader | None = None
        self._superseded: dict[QueueKey, int] = {}
        self._left_out: dict[QueueKey, int] = {}
        self.beside_number: list[tuple[QueueKey, int, int]] = []  # queue, number and physical offset: of light queues
        for key, queue in store.queues.items():
            if isinstance(queue, ConsumeQueue):
                try:
                    self._cursors[key] = QueueCursor(queue)
                except OSError as error:
                    self._give_up(key, error)
        self._units = UnitAudit(self._cursors, self._kind_of, self._give_up)

    @cached_property
    def _leaves_topics_out(self) -> bool:
        """Return whether the broker may leave topics out of light queues.

        Later versions of 5.x do.
        """
        return bool(self._store.path.version_signs() or signs_of_5(self._store))  # the index is read only if needed

    def on_messages(self, messages: Rows, message: Message | None = None) -> None:
        """Process messages of the log, which must be in log order.

        `messages` has rows of DISPATCH_COLUMNS. If the only row has damaged content and right lengths, `message` is
        this message.
        """
        self._units.know(self._builder.keys)
        verdicts = self._units.verdicts(messages)
        for rows in _runs(messages, verdicts):
            self._judge(messages[rows], int(verdicts[rows[0]]), message)

    def on_checked(self, run: CheckedRun) -> None:
        """Process messages that `PartAudit` compared, which must be in log order."""
        self._units.know(self._builder.keys)
        for message in run.first:
            self._units.is_seen(int(message["queue"]), int(message["physical_offset"]))
        self.on_messages(run.rest)
        count = Counter(run.confirmed["queue"].tolist())
        for number, start, end in run.confirmed.tolist():
            cursor = self._cursors.get(self._builder.keys[number])
            if cursor is not None:
                cursor.confirm_part(start, end, is_only_run=count[number] == 1)

    def _kind_of(self, key: QueueKey) -> int:
        """Return how the messages of a queue are compared with the units."""
        if key in self._cursors:
            return PLAIN
        if key in self._unreadable or self._store.is_unread(*key):
            return IGNORED
        return ODD if isinstance(self._store.queues.get(key), BatchConsumeQueue) else ABSENT

    def _judge(self, rows: Rows, verdict: int, message: Message | None) -> None:
        """Process successive messages of one queue that have the same verdict."""
        row = rows[0]
        key = self._builder.keys[row["queue"]]
        if key in self._unreadable and verdict not in (ASK, ASK_AGAIN):
            return
        at = int(row["physical_offset"])
        scheduled = key[0] == SCHEDULE_TOPIC and bool(row["traits"] & DELAYED)
        target = DispatchTarget(key[0], key[1], int(row["queue_offset"]), int(row["tags_code"]), scheduled)
        if verdict in (ASK, ASK_AGAIN):
            asked = message or self._new_at(at) or self._message_at(at)
            if asked is not None:
                self._see_message(asked, again=verdict == ASK_AGAIN)
            return
        if verdict == MISSING and key not in self._cursors and self._is_deleted_topic(key[0]):
            self._deleted_topics[key[0]] = self._deleted_topics.get(key[0], 0) + len(rows)
            return
        cursor = self._cursors.get(key)
        try:
            unit = cursor.unit(target.queue_offset) if cursor else None
            if cursor is not None and verdict in (MISSING, ELSEWHERE):
                self._note_served(cursor, target, rows["physical_offset"], rows["size"], rows["tags_code"])
        except OSError as error:
            self._give_up(key, error)
            return
        if unit is None or verdict == MISSING:
            self._add_missed("missing-unit", target, at, "the message has no unit in its queue", len(rows))
        elif verdict == ELSEWHERE:
            what = f"the unit points to {unit.physical_offset}, the message is at {at}"
            self._add_missed("unit-mismatch", target, at, what, len(rows))
        else:
            self._add("unit-tags-code", target, at, _wrong_tags_code(target, unit.tags_code), len(rows))

    def _note_served_alone(self, cursor: QueueCursor, target: DispatchTarget, message: Message) -> None:
        fields = np.array([[message.physical_offset], [message.size], [target.tags_code]])
        self._note_served(cursor, target, *fields)

    def _note_served(
        self, cursor: QueueCursor, target: DispatchTarget, offsets: Numbers, sizes: Numbers, tags: Numbers
    ) -> None:
        """Note which messages of a run have a unit at another place. Raises OSError."""
        if (first := cursor.first_reaching(int(offsets[0]))) is None:
            return
        slot, served = first.queue_offset, 0
        for start, data in cursor.queue.blocks(slot, slot + len(offsets)):
            if start != slot + served:  # files of the queue may overlap
                break
            units = np.frombuffer(data, UNITS)[: len(offsets) - served]
            part = slice(served, served + len(units))
            same = (units["physicalOffset"] == offsets[part]) & (units["size"] == sizes[part])
            if not target.scheduled:
                same &= (units["tagsCode"] == tags[part]) | (units["tagsCode"] <= EXT_ADDRESS_MAX)
            served += len(units) if same.all() else int(same.argmin())
            if not same.all():
                break
        if served:
            runs = self._served.setdefault((target.topic, target.queue_id), [])
            last, count, begun, at = runs[-1] if runs else (0, 0, target, 0)
            if count and (last + count, begun.queue_offset + count) == (slot, target.queue_offset):
                runs[-1] = (last, count + served, begun, at)
            else:
                runs.append((slot, served, target, int(offsets[0])))

    def _accept_served(self, key: QueueKey, cursor: QueueCursor) -> None:
        """Report wrong QUEUEOFFSETs, if the queue leads to each of its messages."""
        served = self._served.get(key, [])
        if not served or sum(count for _, count, _, _ in served) < self.missed[key]:
            return
        for code in ("missing-unit", "unit-mismatch"):
            self._of_queue.get(key, {}).pop(code, None)
        del self.missed[key]
        for slot, count, _, _ in served:
            cursor.confirm_run(slot, slot + count)
        for slot, count, target, at in served[:FINDINGS_MAX]:
            more = f", and {count - 1} after it likewise" if count > 1 else ""
            what = f"the record says queue offset {target.queue_offset}; its queue serves it at {slot}{more}"
            self._add_bad_number(target, slot, at, what, count)
        self.findings[-1].count += sum(count for _, count, _, _ in served[FINDINGS_MAX:])

    def _add_bad_number(
        self, target: DispatchTarget, queue_offset: int, physical_offset: int, what: str, count: int = 1
    ) -> None:
        log = self._store.commit_log.queue.find(physical_offset)
        file_offset = physical_offset - log.file_from_offset if log else None
        finding = Finding(
            "bad-queue-offset",
            self._store.commit_log.path_of(physical_offset),
            physical_offset,
            what,
            file_offset,
            count=count,
        )
        finding.topic, finding.queue_id, finding.queue_offset = target.topic, target.queue_id, queue_offset
        self.findings.append(finding)

    def _message_at(self, physical_offset: int) -> Message | None:
        """Return the message at an offset, or None if the message cannot be read.

        One reader is enough for all calls, because callers ask for messages in log order.
        """
        file = self._store.commit_log.queue.find(physical_offset)
        if file is None:
            return None
        if self._reader is None or self._reader.file is not file:
            self._reader = RecordReader(file)
        try:
            return message_of(self._reader.at(physical_offset - file.file_from_offset))
        except OSError:  # the scan reports the error
            return None

    def _see_message(self, message: Message, *, again: bool) -> None:
        """Process a single message, and its units in all of its queues.

        `again` is set if the log has an earlier message of the same queue.
        """
        for number, target in enumerate(queue_destinations(message)):
            key = (target.topic, target.queue_id)
            if key in self._unreadable or self._store.is_unread(*key):
                continue
            queue = self._store.queues.get(key)
            if queue is None and self._is_deleted_topic(target.topic):
                self._deleted_topics[target.topic] = self._deleted_topics.get(target.topic, 0) + 1
                continue
            try:
                if isinstance(queue, BatchConsumeQueue):
                    self._see_batch(queue, message)
                elif number:
                    self._see_light_unit(target, message)
                else:
                    self._see_unit(target, message, again=again)
            except OSError as error:
                self._give_up(key, error)

    def lost(self, damage: Damage) -> None:
        """Remember that a range of the log has no records.

        If a unit points into the lost range, the message is lost, but the unit is not wrong.
        """
        self._lost.append((damage.physical_offset, damage.end))

    def finish(self, log_end: int) -> None:
        """Check the units that no message confirmed.

        `log_end` is the end of the last good record (physical offset).
        """
        self._units.finish()
        for key, cursor in list(self._cursors.items()):
            try:
                self._accept_served(key, cursor)
                self._finish_queue(cursor, log_end)
            except OSError as error:
                self._give_up(key, error)
        for key, queue in self._store.queues.items():
            if isinstance(queue, BatchConsumeQueue) and key not in self._unreadable:
                try:
                    self._finish_batch_queue(queue, log_end)
                except OSError as error:
                    self._give_up(key, error)
        self.findings += queue_file_findings(self._store)
        for by_code in self._of_queue.values():
            for findings in by_code.values():
                self.findings += findings
        for (topic, queue_id), count in sorted(item for item in self._superseded.items() if item[1]):
            self.notes.append(
                f"{count} messages of {topic}/{queue_id} are from before the topic was deleted and created again"
            )
        for (topic, queue_id), count in sorted(self._left_out.items()):
            what = "the broker gave them no unit, because the queue already had their queue offset when they came"
            self.notes.append(f"{count} messages are not in {topic}/{queue_id}: {what}")
        for topic, count in sorted(self._deleted_topics.items()):
            self.notes.append(
                f"{count} messages of topic {topic!r}, which neither topics.json nor a group's offset names, have no "
                "queue: deleted topic"
            )

    def _give_up(self, key: QueueKey, error: OSError) -> None:
        """Add a finding for a queue that cannot be read, and ignore the queue afterwards."""
        self._cursors.pop(key, None)
        self._unreadable.add(key)
        detail = f"the queue cannot be read: {error.strerror}"
        path = f"{CONSUMEQUEUE}/{key[0]}/{key[1]}"
        self.findings.append(Finding("unreadable", path, None, detail, topic=key[0], queue_id=key[1]))

    def _see_unit(self, target: DispatchTarget, message: Message, *, again: bool) -> None:
        key = (target.topic, target.queue_id)
        cursor = self._cursors.get(key)
        unit = cursor.unit(target.queue_offset) if cursor else None
        if again and target.queue_offset == 0 and unit is not None and unit.physical_offset == message.physical_offset:
            self._begin_anew(key)
        if cursor is None or unit is None:
            if cursor is not None:
                self._note_served_alone(cursor, target, message)
            self._add_missed("missing-unit", target, message.physical_offset, "the message has no unit in its queue")
            return
        if unit.physical_offset != message.physical_offset:
            self._note_served_alone(cursor, target, message)
            what = f"the unit points to {unit.physical_offset}, the message is at {message.physical_offset}"
            self._add_missed("unit-mismatch", target, message.physical_offset, what)
            return
        cursor.confirm(target.queue_offset)
        if unit.size != message.size:
            self._add(
                "unit-size",
                target,
                message.physical_offset,
                f"the unit's size is {unit.size}, the record has {message.size}",
            )
        self._check_tags_code(target, message, unit)

    def _see_light_unit(self, target: DispatchTarget, message: Message) -> None:
        """Check a message's unit in a light queue (LMQ).

        The queue offset of the unit may differ from the queue offset in the message (`light_queues`).
        """
        key, at = (target.topic, target.queue_id), message.physical_offset
        again = self._is_seen(key, at)
        cursor = self._cursors.get(key)
        unit = cursor.unit(target.queue_offset) if cursor else None
        if cursor is not None and (unit is None or unit.physical_offset != at):
            if unit is not None and len(self.beside_number) < FINDINGS_MAX:
                self.beside_number.append((key, target.queue_offset, at))
            found = cursor.first_reaching(at)
            end_then = cursor.max_offset if found is None else found.queue_offset
            if found is not None and found.physical_offset == at:
                target = target._replace(queue_offset=found.queue_offset)
            elif is_left_out_topic(message.topic):
                if self._leaves_topics_out or target.queue_offset < end_then:
                    return
            elif gets_no_unit(message.topic, target.queue_offset, end_then):
                self._left_out[key] = self._left_out.get(key, 0) + 1
                return
        self._see_unit(target, message, again=again)

    def _is_seen(self, key: QueueKey, physical_offset: int) -> bool:
        """Return whether the log has a message of a queue before `physical_offset`."""
        number = self._builder.number(key[0].encode("utf-8", "replace"), key[1])
        self._units.know(self._builder.keys)
        return self._units.is_seen(number, physical_offset)

    def _begin_anew(self, key: QueueKey) -> None:
        """Record that a queue begins again at 0, after its topic was deleted."""
        by_code = self._of_queue.pop(key, {})
        gone = sum(finding.count for code in ("missing-unit", "unit-mismatch") for finding in by_code.get(code, []))
        self._superseded[key] = self._superseded.get(key, 0) + gone

    def _check_tags_code(self, target: DispatchTarget, message: Message, unit: CqUnit) -> None:
        code: int | None = unit.tags_code
        if is_ext_address(unit.tags_code):
            extension = self._store.extensions.get((target.topic, target.queue_id))
            if extension is None and self._store.is_extension_unread(target.topic, target.queue_id):
                return
            code = extension.tags_code(unit.tags_code) if extension else None
            if code is None:
                what = f"the address {unit.tags_code} leads to no unit of the extension"
                self._add("ext-missing", target, message.physical_offset, what)
                return
        if code is not None and not right_tags_code(target, message.store_timestamp, code):
            self._add("unit-tags-code", target, message.physical_offset, _wrong_tags_code(target, code))

    def _see_batch(self, queue: BatchConsumeQueue, message: Message) -> None:
        unit = queue.find(message.queue_offset)
        target = DispatchTarget(queue.topic, queue.queue_id, message.queue_offset, 0)
        if unit is None or unit.physical_offset != message.physical_offset:
            shown = queue.first_where(lambda unit: unit.physical_offset >= message.physical_offset)
            if shown is not None and (shown.physical_offset, shown.size) == (message.physical_offset, message.size):
                what = f"the record says queue offset {message.queue_offset}; its queue says {shown.queue_offset}"
                self._add_bad_number(target, shown.queue_offset, message.physical_offset, what)
                return
        if unit is None:
            self._add_missed("missing-unit", target, message.physical_offset, "the batch has no unit in its queue")
        elif unit.physical_offset != message.physical_offset or unit.size != message.size:
            what = f"the batch's unit points to {unit.physical_offset}, {unit.size} bytes"
            self._add_missed("unit-mismatch", target, message.physical_offset, what)
        elif unit.batch_size != batch_size(message):
            what = f"the unit stands for {unit.batch_size} messages, the batch has {batch_size(message)}"
            self._add("unit-mismatch", target, message.physical_offset, what)

    def _finish_queue(self, cursor: QueueCursor, log_end: int) -> None:
        queue, confirmed = cursor.queue, cursor.confirmed()
        if confirmed == [(cursor.first, cursor.data_end)]:
            queue.queue.close()
            return
        rest = _Unconfirmed(self._store.commit_log.min_offset, log_end)
        behind, expired_before = 0, self.expired_units
        for start, end in confirmed:
            self._finish_slots(cursor, rest, behind, start)
            first, last = queue.find(start), queue.find(end - 1)
            if first is not None and first.physical_offset <= rest.previous:
                self._order_of_confirmed(queue, rest.previous, start, end)
            rest.in_front = False
            rest.previous = max(rest.previous, last.physical_offset if last else -1)
            behind = end
        self._finish_slots(cursor, rest, behind, cursor.data_end)
        self._count_spanning(queue, expired_before)
        queue.queue.close()

    def _count_spanning(self, queue: UnitQueue, expired_before: int) -> None:
        """Count the expired units of a queue whose last unit points into the log.

        The function ignores a queue whose messages have all expired. A broker keeps the last units of a queue to know
        the next queue offset.
        """
        expired = self.expired_units - expired_before
        last = queue.last() if expired else None
        if last is not None and last.physical_offset >= self._store.commit_log.min_offset:
            self.spanning_units += expired

    def _order_of_confirmed(self, queue: ConsumeQueue, previous: int, start: int, end: int) -> None:
        for slot in queue.units(start, end):
            if slot.physical_offset > previous:
                return
            self._add_unit("unit-order", queue, slot, f"physicalOffset {slot.physical_offset} after {previous}")

    def _finish_slots(self, cursor: QueueCursor, rest: _Unconfirmed, start: int, end: int) -> None:
        """Check the unconfirmed units at the queue offsets [start, end)."""
        for at, count, data in cursor.queue.parts(start, end):
            if not data:
                self._finish_hole(cursor, at, count)
                continue
            units = np.frombuffer(data, UNITS)
            if at >= cursor.max_offset and not units.view(np.uint8).any():
                continue
            if rest.are_expired(units):
                self.expired_units += len(units)
                continue
            left = np.flatnonzero(~self._counted(cursor, rest, at, units))
            for number, unit in zip(left.tolist(), units[left].tolist(), strict=True):
                self._unconfirmed_slot(cursor, rest, CqUnit(at + number, *unit))

    def _finish_hole(self, cursor: QueueCursor, start: int, count: int) -> None:
        """Check `count` slots in a hole of a file, as zeros on the disk are checked."""
        count = min(count, cursor.max_offset - start)
        if count > 0:
            target = DispatchTarget(cursor.queue.topic, cursor.queue.queue_id, start, 0)
            self._add("unit-hole", target, 0, _UNUSED, count)

    def _counted(self, cursor: QueueCursor, rest: _Unconfirmed, at: int, units: Rows) -> Flags:
        """Count faulty units whose code already has FINDINGS_MAX findings.

        The units begin at queue offset `at`. The result has one bool for each unit: True if the unit was counted.
        """
        by_code = self._of_queue.get((cursor.queue.topic, cursor.queue.queue_id), {})
        counted = np.zeros(len(units), np.bool_)
        if rest.in_front or all(len(found) < FINDINGS_MAX for found in by_code.values()):
            return counted
        offsets, sizes = units["physicalOffset"], units["size"]
        is_unused = (offsets == 0) & (sizes == 0) & (units["tagsCode"] == 0)
        is_none = (offsets < 0) | (sizes <= 0)
        is_inside = np.arange(at, at + len(units)) < cursor.max_offset
        behind = offsets >= max(rest.log_end, self._lost[-1][1] if self._lost else 0)
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

    def _unconfirmed_slot(self, cursor: QueueCursor, rest: _Unconfirmed, slot: CqUnit) -> None:
        queue = cursor.queue
        if slot.physical_offset == slot.size == slot.tags_code == 0:
            if slot.queue_offset < cursor.max_offset:
                self._add_unit("unit-hole", queue, slot, _UNUSED)
        elif slot.physical_offset < 0 or slot.size <= 0:
            code = "unit-hole" if slot.queue_offset < cursor.max_offset else "unit-behind-end"
            self._add_unit(code, queue, slot, f"not a unit: physicalOffset {slot.physical_offset}, size {slot.size}")
        elif not (slot.is_pre_blank and rest.in_front):
            rest.in_front = False
            if slot.physical_offset <= rest.previous:
                self._add_unit(
                    "unit-order", queue, slot, f"physicalOffset {slot.physical_offset} after {rest.previous}"
                )
            self._unconfirmed(queue, slot, rest.log_start, rest.log_end)
            if slot.physical_offset < rest.log_start:
                rest.previous = max(rest.previous, slot.physical_offset)  # other unconfirmed units may be wrong

    def _finish_batch_queue(self, queue: BatchConsumeQueue, log_end: int) -> None:
        """Check the batches of a queue.

        Batches must follow one another without a gap, in the order of the log, and must point into the log.
        """
        previous: CqUnit | None = None
        expired_before = self.expired_units
        for unit in queue.units(0, OFFSET_MAX):
            expected = previous.queue_offset + previous.batch_size if previous else unit.queue_offset
            if unit.queue_offset != expected:
                self._add_unit(
                    "unit-order",
                    queue,
                    unit,
                    f"the batch begins at {unit.queue_offset}, the one before ends at {expected}",
                )
            if previous is not None and unit.physical_offset <= previous.physical_offset:
                self._add_unit(
                    "unit-order", queue, unit, f"physicalOffset {unit.physical_offset} after {previous.physical_offset}"
                )
            if unit.physical_offset < self._store.commit_log.min_offset:
                self.expired_units += 1
            elif self._is_lost(unit.physical_offset):
                self._add_unit(
                    "unit-lost-message", queue, unit, "the unit points at damaged or missing bytes of the log"
                )
            elif unit.physical_offset >= log_end:
                self._add_unit("dangling-unit", queue, unit, f"the unit points after the end of the log, {log_end}")
            previous = unit
        self._count_spanning(queue, expired_before)
        queue.queue.close()

    def _unconfirmed(self, queue: ConsumeQueue, unit: CqUnit, log_start: int, log_end: int) -> None:
        at = unit.physical_offset
        if at < log_start:
            self.expired_units += 1
        elif self._is_lost(at):
            self._add_unit("unit-lost-message", queue, unit, "the unit points at damaged or missing bytes of the log")
        elif at >= log_end:
            self._add_unit("dangling-unit", queue, unit, f"the unit points after the end of the log, {log_end}")
        else:
            self._add_unit("unit-mismatch", queue, unit, f"at {at} is {self._what_is_at(at)}")

    def _is_lost(self, physical_offset: int) -> bool:
        at = bisect_right(self._lost, (physical_offset, OFFSET_MAX)) - 1
        return at >= 0 and physical_offset < self._lost[at][1]

    def _what_is_at(self, physical_offset: int) -> str:
        message = self._store.commit_log.message_at(physical_offset)
        if message is not None:
            what = "the message" if queue_destinations(message) else "a prepared or rollback record"
            return f"{what} of {message.topic}/{message.queue_id} with queue offset {message.queue_offset}"
        return "no record"

    def _is_deleted_topic(self, topic: str) -> bool:
        """Return whether a topic was deleted.

        A deleted topic has no queue, is not in topics.json, and has no offset of a group.
        """
        return topic not in self._known_topics and topic not in self._topics_with_queues

    def _add_unit(self, code: str, queue: UnitQueue, unit: CqUnit, detail: str) -> None:
        self._add(code, DispatchTarget(queue.topic, queue.queue_id, unit.queue_offset, 0), unit.physical_offset, detail)

    def _add_missed(self, code: str, target: DispatchTarget, physical_offset: int, detail: str, count: int = 1) -> None:
        """Add a finding on `count` messages that have no unit in their queue."""
        self.missed[target.topic, target.queue_id] += count
        self._add(code, target, physical_offset, detail, count)

    def _add(self, code: str, target: DispatchTarget, physical_offset: int, detail: str, count: int = 1) -> None:
        """Add a finding for `count` successive places of a queue.

        Places that directly follow the last finding of the code are added to this finding. A queue gets at most
        FINDINGS_MAX findings of one code. After FINDINGS_MAX findings, the last finding counts all later places.
        """
        key = (target.topic, target.queue_id)
        same = self._of_queue.setdefault(key, {}).setdefault(code, [])
        if same and same[-1].queue_offset is not None and same[-1].queue_offset + same[-1].count == target.queue_offset:
            same[-1].count += count
            return
        if len(same) >= FINDINGS_MAX:
            same[-1].count += count
            return
        if len(same) == FINDINGS_MAX - 1:
            detail += "; this finding counts all later ones of its kind in the queue"
        path, file_offset = self._place(key, target.queue_offset)
        finding = Finding(code, path, physical_offset, detail, file_offset, count=count)
        finding.topic, finding.queue_id, finding.queue_offset = key[0], key[1], target.queue_offset
        same.append(finding)

    def _place(self, key: QueueKey, queue_offset: int) -> tuple[str, int | None]:
        """Return the file of a unit, and the unit's position in the file.

        If no file has the unit, the result is (folder of the queue, None).
        """
        queue = self._store.queues.get(key)
        at = queue_offset * CQ_UNIT.size
        file = queue.queue.find(at) if isinstance(queue, ConsumeQueue) else None
        if file is None:
            folder = BATCHCONSUMEQUEUE if isinstance(queue, BatchConsumeQueue) else CONSUMEQUEUE
            return f"{folder}/{key[0]}/{key[1]}", None
        return file.name, at - file.file_from_offset


class _Unconfirmed:
    """State for the check of units that no message confirmed.

    `previous` is the last valid physical offset in the units that were already checked.
    """

    def __init__(self, log_start: int, log_end: int) -> None:
        self.log_start = log_start
        self.log_end = log_end
        self.previous = -1
        self.in_front = True

    def are_expired(self, units: Rows) -> bool:
        """Return whether all units of a block are expired and in log order.

        The messages of expired units are before the log's start. If the result is True, the function stores the last
        physical offset of the block.
        """
        offsets = units["physicalOffset"]
        used = bool(
            ((offsets >= 0) & (offsets < self.log_start) & (units["size"] > 0) & (units["size"] < PRE_BLANK_SIZE)).all()
        )
        if not used or offsets[0] <= self.previous or not bool((offsets[1:] > offsets[:-1]).all()):
            return False
        self.previous, self.in_front = int(offsets[-1]), False
        return True


def _runs(messages: Rows, verdicts: Numbers) -> Iterator[Numbers]:
    """Yield the rows of the messages that need a closer examination.

    Each item has successive messages of one queue with the same verdict. Items are in log order.
    """
    odd = np.flatnonzero((verdicts != CONFIRMED) & (verdicts != NOT_ASKED))
    if not len(odd):
        return
    odd = odd[np.argsort(messages["queue"][odd], kind="stable")]
    queues, offsets, said = messages["queue"][odd], messages["queue_offset"][odd], verdicts[odd]
    goes_on = (
        (queues[1:] == queues[:-1])
        & (offsets[1:] == offsets[:-1] + 1)
        & (said[1:] == said[:-1])
        & ~np.isin(said[1:], (ASK, ASK_AGAIN))
    )
    runs = np.split(odd, np.flatnonzero(~goes_on) + 1)
    yield from sorted(runs, key=lambda rows: int(rows[0]))


def _wrong_tags_code(target: DispatchTarget, code: int) -> str:
    return f"the tags code is {code}, not {'a delivery time' if target.scheduled else target.tags_code}"
