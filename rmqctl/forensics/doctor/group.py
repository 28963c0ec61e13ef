"""Findings with one cause."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqctl.forensics.doctor.causes import RANK

if TYPE_CHECKING:
    from rmqctl.forensics.finding import Finding
    from rmqctl.store.config.topics import QueueKey


@dataclass
class Group:
    """Findings with one cause."""

    code: str
    findings: list[Finding] = field(default_factory=list)  # show the cause itself
    consequences: list[Finding] = field(default_factory=list)  # follow from the cause
    named: dict[str, None] = field(default_factory=dict)  # files or queues that the cause is about
    # physical offsets [begin, end) that the cause makes unreadable
    ranges: list[tuple[int, int]] = field(default_factory=list)

    @property
    def subjects(self) -> list[str]:
        """The files or queues that the cause is about, in the order of findings."""
        return list(self.named)

    @property
    def physical_offset(self) -> int:
        """The first offset of the log that the cause is about, or 0."""
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


class DamagedRanges:
    """Parts [begin, end) of the log that do not overlap, each with its cause.

    A store can have many thousand damaged records, and many thousand findings that point to them: unreadable parts are
    sorted, and found by bisection. Of two causes for the same bytes, the more important one gets them. Offsets are
    physical.
    """

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._groups: list[Group] = []

    def add(self, begin: int, end: int, group: Group) -> None:
        """Add an unreadable part of the log, with its cause."""
        first, last = bisect_right(self._ends, begin), bisect_left(self._begins, end)
        known = list(zip(self._begins[first:last], self._ends[first:last], self._groups[first:last], strict=True))
        parts: list[tuple[int, int, Group]] = []

        def put(start: int, stop: int, owner: Group) -> None:
            if start < stop:
                parts.append((start, stop, owner))

        reached = begin
        for start, stop, owner in known:
            put(start, min(begin, stop), owner)
            put(reached, start, group)
            put(max(start, begin), min(stop, end), group if RANK[group.code] < RANK[owner.code] else owner)
            put(end, stop, owner)
            reached = max(reached, min(stop, end))
        put(reached, end, group)
        self._begins[first:last] = [part[0] for part in parts]
        self._ends[first:last] = [part[1] for part in parts]
        self._groups[first:last] = [part[2] for part in parts]

    def at(self, offset: int) -> Group | None:
        """Return the cause that makes an offset unreadable, or None."""
        place = bisect_right(self._begins, offset) - 1
        return self._groups[place] if place >= 0 and offset < self._ends[place] else None

    def near(self, begin: int, end: int) -> Group | None:
        """Return the most important cause that overlaps or touches [begin, end).

        A part that ends at `begin`, or begins at `end`, touches.
        """
        first, last = bisect_left(self._ends, begin), bisect_right(self._begins, end)
        return min(self._groups[first:last], key=lambda group: RANK[group.code], default=None)
