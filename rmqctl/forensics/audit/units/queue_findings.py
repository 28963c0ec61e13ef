"""The findings on the places of queues, in runs and up to a limit."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rmqctl.forensics.finding import Finding
from rmqctl.format.cq_unit import CQ_UNIT
from rmqctl.store.config.store_path import BATCHCONSUMEQUEUE, CONSUMEQUEUE
from rmqctl.store.dispatch.dispatch_rules import DispatchTarget
from rmqctl.store.read.consume_queue import BatchConsumeQueue, ConsumeQueue

if TYPE_CHECKING:
    from rmqctl.format.cq_unit import CqUnit
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore

FINDINGS_MAX = 1000  # with one code in one queue: a file of garbage gives one for each unit
MISSED = ("missing-unit", "unit-mismatch")


class QueueFindings:
    """Collects the findings on the queues of `store`.

    `missed` counts, for each queue, the messages of the log that have no unit in the queue.
    """

    def __init__(self, store: ReadOnlyStore) -> None:
        self.missed: Counter[QueueKey] = Counter()
        self._store = store
        self._of_queue: dict[QueueKey, dict[str, list[Finding]]] = {}

    def all(self) -> list[Finding]:
        """Return the findings of all queues, queue by queue."""
        return [finding for by_code in self._of_queue.values() for found in by_code.values() for finding in found]

    def of(self, key: QueueKey) -> dict[str, list[Finding]]:
        """Return the findings on a queue, by their codes."""
        return self._of_queue.get(key, {})

    def accept_missed(self, key: QueueKey) -> None:
        """Drop what was found on messages of a queue that have no unit at their place."""
        for code in MISSED:
            self.of(key).pop(code, None)
        del self.missed[key]

    def begin_anew(self, key: QueueKey) -> int:
        """Drop all findings on a queue, and return how many messages had no unit."""
        by_code = self._of_queue.pop(key, {})
        return sum(finding.count for code in MISSED for finding in by_code.get(code, []))

    def add_unit(self, code: str, queue: UnitQueue, unit: CqUnit, detail: str) -> None:
        """Add a finding for a unit."""
        self.add(code, DispatchTarget(queue.topic, queue.queue_id, unit.queue_offset, 0), unit.physical_offset, detail)

    def add_missed(self, code: str, target: DispatchTarget, physical_offset: int, detail: str, count: int = 1) -> None:
        """Add a finding on `count` messages that have no unit in their queue."""
        self.missed[target.topic, target.queue_id] += count
        self.add(code, target, physical_offset, detail, count)

    def add(self, code: str, target: DispatchTarget, physical_offset: int, detail: str, count: int = 1) -> None:
        """Add a finding for `count` successive places of a queue.

        Places that directly follow the last finding of the code are added to it. After FINDINGS_MAX findings of one
        code in a queue, the last one counts all later places.
        """
        key = (target.topic, target.queue_id)
        same = self._of_queue.setdefault(key, {}).setdefault(code, [])
        last = same[-1] if same else None
        if last and ((last.queue_offset or 0) + last.count == target.queue_offset or len(same) >= FINDINGS_MAX):
            last.count += count
            return
        if len(same) == FINDINGS_MAX - 1:
            detail += "; this finding counts all later ones of its kind in the queue"
        path, file_offset = self._place(key, target.queue_offset)
        finding = Finding(code, path, physical_offset, detail, file_offset, count=count)
        finding.topic, finding.queue_id, finding.queue_offset = *key, target.queue_offset
        same.append(finding)

    def _place(self, key: QueueKey, queue_offset: int) -> tuple[str, int | None]:
        # Return the file of a unit and the position there, or (folder of the queue, None).
        queue = self._store.queues.get(key)
        at = queue_offset * CQ_UNIT.size
        file = queue.queue.find(at) if isinstance(queue, ConsumeQueue) else None
        if file is None:
            folder = BATCHCONSUMEQUEUE if isinstance(queue, BatchConsumeQueue) else CONSUMEQUEUE
            return f"{folder}/{key[0]}/{key[1]}", None
        return file.name, at - file.file_from_offset
