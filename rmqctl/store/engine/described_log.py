"""The dispatch requests of records that were described at their put.

Dispatch does not read these parts of the log again.
"""

from __future__ import annotations

import threading
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.store.dispatch.dispatch_requests import joined

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns

# bytes: a gap between two described parts costs dispatch a scan of its own, so small parts after a gap are not kept
PART_SIZE_MIN = 256 * 1024
KEPT_MAX = 256 * 1024 * 1024  # bytes of the log whose parts are kept, for a caller that seldom dispatches


class DescribedPart(NamedTuple):
    """The dispatch requests of all records in [start, end) of the log."""

    start: int
    end: int
    described: DispatchColumns


class DescribedLog:
    """The described parts of the log that are not dispatched yet, for any thread."""

    def __init__(self) -> None:
        self._parts: list[DescribedPart] = []
        self._lock = threading.Lock()

    def wants(self, start: int, end: int, dispatched_to: int) -> bool:
        """Return whether the records of [start, end) are worth describing.

        `dispatched_to` is the physical offset up to which the log is dispatched.
        """
        with self._lock:
            last = self._parts[-1].end if self._parts else dispatched_to
        return end - dispatched_to <= KEPT_MAX and (start == last or end - start >= PART_SIZE_MIN)

    def add(self, part: DescribedPart) -> None:
        """Keep a part until it is taken."""
        with self._lock:
            self._parts.append(part)

    def take(self, start: int, end: int) -> Iterator[DescribedPart]:
        """Remove the parts up to `end`, and yield the parts of [start, end) in log order.

        Parts without a gap between them are yielded as one.
        """
        with self._lock:
            taken = sorted((part for part in self._parts if part.end <= end), key=lambda part: part.start)
            self._parts = [part for part in self._parts if part.end > end]
        taken = [part for part in taken if part.start >= start]
        gaps = 0
        numbered = []
        for number, part in enumerate(taken):
            gaps += number > 0 and part.start != taken[number - 1].end
            numbered.append((gaps, part))
        for _, group in groupby(numbered, key=lambda one: one[0]):
            parts = [part for _, part in group]
            yield DescribedPart(parts[0].start, parts[-1].end, joined([part.described for part in parts]))
