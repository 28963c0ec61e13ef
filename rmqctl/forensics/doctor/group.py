"""Findings with one cause."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.forensics.finding import Finding
    from rmqctl.store.config.topics import QueueKey


@dataclass
class Group:
    """Findings with one cause.

    `findings` show the cause itself, and `consequences` follow from the cause. The keys of `named` are the files or
    queues that the cause is about. `ranges` are the physical offsets [begin, end) that the cause makes unreadable.
    """

    code: str
    findings: list[Finding] = field(default_factory=list)
    consequences: list[Finding] = field(default_factory=list)
    named: dict[str, None] = field(default_factory=dict)
    ranges: list[tuple[int, int]] = field(default_factory=list)

    @property
    def subjects(self) -> list[str]:
        """Return the files or queues that the cause is about, in the order of findings."""
        return list(self.named)

    @property
    def physical_offset(self) -> int:
        """Return the first offset of the log that the cause is about, or 0."""
        offsets = [finding.physical_offset for finding in self.findings if finding.physical_offset is not None]
        return min([*offsets, *(begin for begin, _ in self.ranges)], default=0)

    @property
    def queues(self) -> set[QueueKey]:
        """Return the queues in `findings`, without the queues in `consequences`."""
        return {
            (found.topic, found.queue_id)
            for found in self.findings
            if found.topic is not None and found.queue_id is not None
        }

    def add(self, finding: Finding, subject: str) -> None:
        """Add a finding about a file or queue."""
        self.findings.append(finding)
        if subject:
            self.named[subject] = None
