"""Check that messages of the log have units, and that units have messages.

In one pass over the log, `on_messages` confirms the unit of each message; then `finish` checks all units that no
message confirmed. Many messages are compared at once, and a single one only if its batch shows a difference.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.forensics.audit.units.queue_findings import FINDINGS_MAX, QueueFindings
from rmqctl.forensics.audit.units.served_runs import ServedRuns, bad_number
from rmqctl.forensics.audit.units.unconfirmed_units import UnconfirmedUnits
from rmqctl.forensics.audit.units.unit_audit import QueueCursor, UnitAudit
from rmqctl.forensics.finding import Finding
from rmqctl.format.cq_unit import CqUnit, is_ext_address
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
    from rmqctl.format.columns import Numbers, Rows
    from rmqctl.format.message import Damage, Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns, DispatchRequestBuilder
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore

FILES_FOR_A_MAJORITY = 3


class QueueCrosscheck:
    """Collects differences between log and queues in `findings`.

    `by_queue` has those of single queues until `finish`, and counts missed messages. `expired_units` counts the units
    that point before the log's start, `spanning_units` those of them in queues whose last unit points into the log.
    `new_at` returns the message that a planned repair will write at a physical offset, or None.
    """

    def __init__(
        self,
        store: ReadOnlyStore,
        builder: DispatchRequestBuilder,
        new_at: Callable[[int], Message | None] = lambda _: None,
    ) -> None:
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.by_queue = QueueFindings(store)
        self.expired_units = 0
        self.spanning_units = 0
        self._store = store
        self._builder = builder
        self._log_messages = _LogMessages(store, new_at)
        self._cursors: dict[QueueKey, QueueCursor] = {}
        self._unreadable: set[QueueKey] = set()
        self._lost: list[tuple[int, int]] = []
        self._served = ServedRuns(store)
        self._without_units = _WithoutUnits(store)
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
        """Whether light queues may lack topics, as in later versions of 5.x."""
        return bool(self._store.path.version_signs() or signs_of_5(self._store))  # the index is read only if needed

    def on_messages(self, messages: Rows, message: Message | None = None) -> None:
        """Process messages of the log, in log order: rows of DISPATCH_COLUMNS.

        `message` is given for a single row with damaged content and right lengths.
        """
        self._units.know(self._builder.keys)
        verdicts = self._units.verdicts(messages)
        for rows in _runs(messages, verdicts):
            self._judge(messages[rows], int(verdicts[rows[0]]), message)

    def on_checked(self, run: CheckedRun) -> None:
        """Process messages that `PartAudit` compared, in log order."""
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
        if key in self._cursors:
            return PLAIN
        if key in self._unreadable or self._store.is_unread(*key):
            return IGNORED
        return ODD if isinstance(self._store.queues.get(key), BatchConsumeQueue) else ABSENT

    def _judge(self, rows: Rows, verdict: int, message: Message | None) -> None:
        row = rows[0]
        key = self._builder.keys[row["queue"]]
        if key in self._unreadable and verdict not in (ASK, ASK_AGAIN):
            return
        at = int(row["physical_offset"])
        scheduled = key[0] == SCHEDULE_TOPIC and bool(row["traits"] & DELAYED)
        target = DispatchTarget(key[0], key[1], int(row["queue_offset"]), int(row["tags_code"]), scheduled)
        if verdict in (ASK, ASK_AGAIN):
            asked = message or self._log_messages.at(at)
            if asked is not None:
                self._see_message(asked, again=verdict == ASK_AGAIN)
            return
        if verdict == MISSING and key not in self._cursors and self._without_units.is_deleted_topic(key[0]):
            self._without_units.of_deleted_topics[key[0]] += len(rows)
            return
        cursor = self._cursors.get(key)
        try:
            unit = cursor.unit(target.queue_offset) if cursor else None
            if cursor is not None and verdict in (MISSING, ELSEWHERE):
                self._served.note(cursor, target, rows["physical_offset"], rows["size"], rows["tags_code"])
        except OSError as error:
            self._give_up(key, error)
            return
        if unit is None or verdict in (MISSING, ELSEWHERE):
            self._add_missed(target, unit if verdict == ELSEWHERE else None, at, len(rows))
        else:
            self.by_queue.add("unit-tags-code", target, at, _wrong_tags_code(target, unit.tags_code), len(rows))

    def _see_message(self, message: Message, *, again: bool) -> None:
        # `again` is set if the log has an earlier message of the same queue
        for number, target in enumerate(queue_destinations(message)):
            key = (target.topic, target.queue_id)
            if key in self._unreadable or self._store.is_unread(*key):
                continue
            queue = self._store.queues.get(key)
            if queue is None and self._without_units.is_deleted_topic(target.topic):
                self._without_units.of_deleted_topics[target.topic] += 1
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

    def damage(self, damage: Damage) -> DispatchColumns | None:
        """Process a damaged place of the log, and return the message in it.

        A message with right lengths, in its place, has a unit. If a unit points to other damage, the message is lost,
        but the unit is not wrong.
        """
        message = self._store.message_in_its_place(damage)
        if message is None:
            self._lost.append((damage.physical_offset, damage.end))
            return None
        described = self._builder.of(message)
        self.on_messages(described.messages, message)
        return described

    def finish(self, log_end: int, damage_end: int = OFFSET_MAX) -> None:
        """Check the units that no message confirmed.

        `log_end` is the end of the last good record. Damage from `damage_end` on does not count.
        """
        self._lost = [lost for lost in self._lost if lost[0] < damage_end]
        self._units.finish()
        rest = self._unconfirmed(log_end)
        for key, cursor in list(self._cursors.items()):
            try:
                if accepted := self._served.accepted(cursor, self.by_queue.missed[key]):
                    self.by_queue.accept_missed(key)
                    self.findings += accepted
                rest.finish_queue(cursor)
            except OSError as error:
                self._give_up(key, error)
        for key, queue in self._store.queues.items():
            if isinstance(queue, BatchConsumeQueue) and key not in self._unreadable:
                try:
                    rest.finish_batch_queue(queue)
                except OSError as error:
                    self._give_up(key, error)
        self.expired_units, self.spanning_units = rest.expired, rest.spanning
        self.findings += [*queue_file_findings(self._store), *self.by_queue.all()]
        self.notes += self._without_units.notes()

    def _unconfirmed(self, log_end: int) -> UnconfirmedUnits:
        return UnconfirmedUnits(self._store, self.by_queue, self._lost, log_end)

    def _give_up(self, key: QueueKey, error: OSError) -> None:
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
            self._without_units.superseded[key] += self.by_queue.begin_anew(key)
        if cursor is None or unit is None or unit.physical_offset != message.physical_offset:
            if cursor is not None:
                self._served.note_message(cursor, target, message)
            self._add_missed(target, unit, message.physical_offset)
            return
        cursor.confirm(target.queue_offset)
        if unit.size != message.size:
            what = f"the unit's size is {unit.size}, the record has {message.size}"
            self.by_queue.add("unit-size", target, message.physical_offset, what)
        self._check_tags_code(target, message, unit)

    def _add_missed(self, target: DispatchTarget, unit: CqUnit | None, at: int, count: int = 1) -> None:
        if unit is None:
            self.by_queue.add_missed("missing-unit", target, at, "the message has no unit in its queue", count)
        else:
            what = f"the unit points to {unit.physical_offset}, the message is at {at}"
            self.by_queue.add_missed("unit-mismatch", target, at, what, count)

    def _see_light_unit(self, target: DispatchTarget, message: Message) -> None:
        # the unit's queue offset may differ from that in the message (`light_queues`).
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
                self._without_units.left_out[key] += 1
                return
        self._see_unit(target, message, again=again)

    def _is_seen(self, key: QueueKey, physical_offset: int) -> bool:
        number = self._builder.number(key[0].encode("utf-8", "replace"), key[1])
        self._units.know(self._builder.keys)
        return self._units.is_seen(number, physical_offset)

    def _check_tags_code(self, target: DispatchTarget, message: Message, unit: CqUnit) -> None:
        code: int | None = unit.tags_code
        if is_ext_address(unit.tags_code):
            extension = self._store.extensions.get((target.topic, target.queue_id))
            if extension is None and self._store.is_extension_unread(target.topic, target.queue_id):
                return
            code = extension.tags_code(unit.tags_code) if extension else None
            if code is None:
                what = f"the address {unit.tags_code} leads to no unit of the extension"
                self.by_queue.add("ext-missing", target, message.physical_offset, what)
                return
        if code is not None and not right_tags_code(target, message.store_timestamp, code):
            self.by_queue.add("unit-tags-code", target, message.physical_offset, _wrong_tags_code(target, code))

    def _see_batch(self, queue: BatchConsumeQueue, message: Message) -> None:
        unit = queue.find(message.queue_offset)
        target = DispatchTarget(queue.topic, queue.queue_id, message.queue_offset, 0)
        if unit is None or unit.physical_offset != message.physical_offset:
            shown = queue.first_where(lambda unit: unit.physical_offset >= message.physical_offset)
            if shown is not None and (shown.physical_offset, shown.size) == (message.physical_offset, message.size):
                what = f"the record says queue offset {message.queue_offset}; its queue says {shown.queue_offset}"
                self.findings.append(bad_number(self._store, queue, shown.queue_offset, message.physical_offset, what))
                return
        if unit is None:
            what = "the batch has no unit in its queue"
            self.by_queue.add_missed("missing-unit", target, message.physical_offset, what)
        elif unit.physical_offset != message.physical_offset or unit.size != message.size:
            what = f"the batch's unit points to {unit.physical_offset}, {unit.size} bytes"
            self.by_queue.add_missed("unit-mismatch", target, message.physical_offset, what)
        elif unit.batch_size != batch_size(message):
            what = f"the unit stands for {unit.batch_size} messages, the batch has {batch_size(message)}"
            self.by_queue.add("unit-mismatch", target, message.physical_offset, what)


class _LogMessages:
    """Reads single messages, in log order: one open reader is enough."""

    def __init__(self, store: ReadOnlyStore, new_at: Callable[[int], Message | None]) -> None:
        self._log = store.commit_log.queue
        self._new_at = new_at
        self._reader: RecordReader | None = None

    def at(self, physical_offset: int) -> Message | None:
        """Return the message that is or will be at an offset, if it can be read."""
        new, file = self._new_at(physical_offset), self._log.find(physical_offset)
        if new is not None or file is None:
            return new
        if self._reader is None or self._reader.file is not file:
            self._reader = RecordReader(file)
        try:
            return message_of(self._reader.at(physical_offset - file.file_from_offset))
        except OSError:  # the scan reports the error
            return None


class _WithoutUnits:
    """Counts messages that need no unit, as those of deleted topics."""

    def __init__(self, store: ReadOnlyStore) -> None:
        self._known_topics = KnownTopics(store)
        self._topics_with_queues = {topic for topic, _ in store.queues}
        self.of_deleted_topics: Counter[str] = Counter()
        self.superseded: Counter[QueueKey] = Counter()
        self.left_out: Counter[QueueKey] = Counter()

    def is_deleted_topic(self, topic: str) -> bool:
        return topic not in self._known_topics and topic not in self._topics_with_queues

    def notes(self) -> Iterator[str]:
        for (topic, queue_id), count in sorted(item for item in self.superseded.items() if item[1]):
            yield f"{count} messages of {topic}/{queue_id} are from before the topic was deleted and created again"
        for (topic, queue_id), count in sorted(self.left_out.items()):
            what = "the broker gave them no unit, because the queue already had their queue offset when they came"
            yield f"{count} messages are not in {topic}/{queue_id}: {what}"
        for topic, count in sorted(self.of_deleted_topics.items()):
            yield (
                f"{count} messages of topic {topic!r}, which neither topics.json nor a group's offset names, have no "
                "queue: deleted topic"
            )


def _runs(messages: Rows, verdicts: Numbers) -> Iterator[Numbers]:
    # in log order, the rows of successive messages of one queue with one verdict that need a closer look
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


def queue_file_findings(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield findings about the files of queues and extensions.

    These are wrong file lengths, gaps between files, and names that are no multiple of a unit's size.
    """
    yield from _queues_in_both_folders(store)
    extensions = store.extensions
    usual = _usual_size(store)
    for key, queue in store.queues.items():
        problems = _file_problems(queue, usual)
        extension = extensions.get(key)
        for damage in extension.queue.anomalies if extension else ():
            problems[damage.path] = damage.code, damage.detail
        for path, (code, what) in problems.items():
            yield Finding(code, path, None, what, topic=key[0], queue_id=key[1])


def _queues_in_both_folders(store: ReadOnlyStore) -> Iterator[Finding]:
    for topic, queue_id in store.conflicting_queues:
        what = f"the topic has other queues in {CONSUMEQUEUE}/"
        if isinstance(store.queues[topic, queue_id], ConsumeQueue):
            what = f"the same queue is in {CONSUMEQUEUE}/, and only that one was checked"
        path = f"{BATCHCONSUMEQUEUE}/{topic}/{queue_id}"
        yield Finding("queue-in-both-folders", path, None, what, topic=topic, queue_id=queue_id)


def _file_problems(queue: UnitQueue, usual: int | None) -> dict[str, tuple[str, str]]:
    """Return (code, detail) by the path of a queue's file.

    `usual` is the size in bytes that most files of consume queues have, or None if no size has a majority.
    """
    is_batch, unit_size = isinstance(queue, BatchConsumeQueue), queue.unit_size
    problems = {damage.path: (damage.code, damage.detail) for damage in queue.queue.anomalies}
    for file in queue.queue.files:
        if file.file_from_offset % unit_size or file.size % unit_size:
            what = f"{file.size} bytes; name and length must be multiples of {unit_size}"
        elif not is_batch and usual is not None and file.size != usual:
            what = f"{file.size} bytes, most queue files have {usual}: no broker loads it"
        else:
            continue
        problems.setdefault(file.name, ("file-length", what))
    return problems


def _usual_size(store: ReadOnlyStore) -> int | None:
    # the size of more than half of the consume queues' files; None also with fewer than three
    plain = [queue.queue for queue in store.queues.values() if isinstance(queue, ConsumeQueue)]
    sizes = [file.size_on_disk for files in plain for file in files.files]
    size, count = Counter(sizes).most_common(1)[0] if sizes else (0, 0)
    return size if len(sizes) >= FILES_FOR_A_MAJORITY and count * 2 > len(sizes) else None
