"""The log that a repair keeps, compared with the queues and the index."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rmqctl.errors import Unreadable, read_hint
from rmqctl.forensics.audit import client_audit
from rmqctl.forensics.audit.crosscheck import QueueCrosscheck
from rmqctl.forensics.audit.index_audit import IndexAudit
from rmqctl.forensics.audit.index_findings import IndexFindings
from rmqctl.forensics.audit.part_audit import RunSummary, summary_of
from rmqctl.store.dispatch.queue_offset_ranges import QueueSpans
from rmqctl.store.read.commit_log import FILE_OVERLAP

if TYPE_CHECKING:
    from rmqctl.forensics.finding import Finding
    from rmqctl.format.message import Damage
    from rmqctl.operations.placeholder.planner import Placeholders
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns, DispatchRequestBuilder
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class KeptLog:
    """Takes the messages, placeholders and damage that stay in the log, in log order."""

    def __init__(self, store: ReadOnlyStore, builder: DispatchRequestBuilder, placeholders: Placeholders) -> None:
        self.queues = QueueCrosscheck(store, builder, placeholders.blocks.message_at)  # the queues against the log
        # the index against the log, unless the store has none, or it is rebuilt anyway
        self._index = IndexAudit(store, builder) if builder.with_keys else None
        self.index_findings: list[Finding] = []  # after `finish`
        self.spans = QueueSpans(builder, placeholders.message_at)
        self.stored = RunSummary(0, 0, 0, 0)  # of the messages
        self.last_at = 0  # physical offset of the last message
        self.rejected: Counter[str] = Counter()  # messages that clients reject, by the code of the finding
        self._store = store
        self._blocks = placeholders.blocks
        self._damages: list[Damage] = []

    def take(self, described: DispatchColumns) -> None:
        """Take messages."""
        self.rejected += client_audit.count_rejected(described.messages)
        self.queues.on_messages(described.messages)
        self._count(described)

    def _count(self, described: DispatchColumns) -> None:
        messages = described.messages
        if self._index is not None:
            self._index.on_messages(described)
        self.spans.on_messages(messages)
        self.stored, self.last_at = self.stored.with_next(summary_of(messages)), int(messages[-1]["physical_offset"])

    def take_damage(self, damage: Damage) -> None:
        """Take a damaged place that stays; a unit may lead to the message in it."""
        self._damages.append(damage)
        described = self.queues.damage(damage)
        if described is not None:
            self._count(described)

    def finish(self, end: int) -> None:
        """Compare the units that no message has confirmed.

        `end` is the physical offset at which the log ends. Raises Unreadable if a queue cannot be read.
        """
        self.queues.finish(end, damage_end=end)
        if self._index is not None:
            self.index_findings = IndexFindings(self._store, [self._index.finish()]).findings
        for finding in self.queues.findings:
            if finding.code == "unreadable":
                raise Unreadable(finding.detail, path=finding.path, hint=read_hint(finding.detail))

    def damages(self, end: int) -> list[Damage]:
        """Return the damage before the offset `end` that the repair does not change."""
        # the repair corrects lengths, and a scan reports overlaps last
        found = [damage for damage in self._damages if damage.code not in (FILE_OVERLAP, "file-length")]
        found += [damage for damage in self._store.commit_log.queue.anomalies if damage.code == FILE_OVERLAP]
        return [damage for damage in found if damage.physical_offset < end and self._is_left(damage)]

    def whole_from(self, end: int) -> int:
        """Return the end of the last damage before the offset `end` that stays."""
        stays = (damage.end for damage in self._damages if damage.physical_offset < end and self._is_left(damage))
        return max(stays, default=0)

    def gaps(self, end: int) -> list[Damage]:
        """Return the missing files before the physical offset `end`."""
        return [damage for damage in self._damages if damage.code == "file-gap" and damage.physical_offset < end]

    def _is_left(self, damage: Damage) -> bool:
        return self._blocks.of_damage(damage.physical_offset) is None
