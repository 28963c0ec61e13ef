"""Messages of the log whose units are not at their QUEUEOFFSETs.

Brokers serve a message where its unit is. If a queue leads to each of its messages, only the numbers in the records are
wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.forensics.audit.units.queue_findings import FINDINGS_MAX
from rmqctl.forensics.finding import Finding
from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import EXT_ADDRESS_MAX

if TYPE_CHECKING:
    from rmqctl.forensics.audit.units.unit_audit import QueueCursor
    from rmqctl.format.columns import Numbers
    from rmqctl.format.message import Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_rules import DispatchTarget
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class _ServedRun(NamedTuple):
    """Messages with units from `place` on; the first record says `number` instead."""

    place: int
    size: int
    number: int
    physical_offset: int


class ServedRuns:
    """Collects messages of `store` whose units are not at their QUEUEOFFSETs."""

    def __init__(self, store: ReadOnlyStore) -> None:
        self._store = store
        self._runs: dict[QueueKey, list[_ServedRun]] = {}

    def note_message(self, cursor: QueueCursor, target: DispatchTarget, message: Message) -> None:
        """Note a message if it has a unit at another place. Raises OSError."""
        fields = np.array([[message.physical_offset], [message.size], [target.tags_code]])
        self.note(cursor, target, *fields)

    def note(
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
        if not served:
            return
        runs = self._runs.setdefault((target.topic, target.queue_id), [])
        last = runs[-1] if runs else None
        if last and (last.place + last.size, last.number + last.size) == (slot, target.queue_offset):
            runs[-1] = last._replace(size=last.size + served)
        else:
            runs.append(_ServedRun(slot, served, target.queue_offset, int(offsets[0])))

    def accepted(self, cursor: QueueCursor, missed: int) -> list[Finding]:
        """Confirm the units of a queue that leads to each of its messages.

        `missed` messages are not at their places. Returns the wrong QUEUEOFFSETs, or nothing if messages have no unit
        at all.
        """
        queue = cursor.queue
        runs = self._runs.get((queue.topic, queue.queue_id), [])
        if not runs or sum(run.size for run in runs) < missed:
            return []
        for run in runs:
            cursor.confirm_run(run.place, run.place + run.size)
        findings = []
        for place, size, number, at in runs[:FINDINGS_MAX]:
            more = f", and {size - 1} after it likewise" if size > 1 else ""
            what = f"the record says queue offset {number}; its queue serves it at {place}{more}"
            findings.append(bad_number(self._store, queue, place, at, what, size))
        findings[-1].count += sum(run.size for run in runs[FINDINGS_MAX:])
        return findings


def bad_number(
    store: ReadOnlyStore, queue: UnitQueue, queue_offset: int, physical_offset: int, what: str, count: int = 1
) -> Finding:
    """Return the finding on messages whose records say a wrong QUEUEOFFSET."""
    file, path = store.commit_log.queue.find(physical_offset), store.commit_log.path_of(physical_offset)
    file_offset = physical_offset - file.file_from_offset if file else None
    finding = Finding("bad-queue-offset", path, physical_offset, what, file_offset, count=count)
    finding.topic, finding.queue_id, finding.queue_offset = queue.topic, queue.queue_id, queue_offset
    return finding
