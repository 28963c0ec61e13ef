"""A consume queue with the offsets and tags that a broker gives to consumers.

Its first offset is the one that a broker reports after a start.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from rmqctl.format.cq_unit import CQ_UNIT, is_ext_address
from rmqctl.store.read.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.cq_unit import CqUnit
    from rmqctl.format.profile import Profile
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.consume_queue_ext import ConsumeQueueExt
    from rmqctl.store.serve.readable_log import ReadableLog


class LogicQueue:
    """The units of the consume queue `queue` before the queue offset `max_offset`.

    They point to records in `log`. Offsets are in units. Methods raise OSError and Unreadable.
    """

    def __init__(
        self,
        queue: UnitQueue,
        max_offset: int,
        log: ReadableLog,
        profile: Profile,
        extension: ConsumeQueueExt | None = None,
    ) -> None:
        self.queue = queue
        self.max_offset = max_offset
        self._log = log
        self._profile = profile
        self._extension = extension

    @cached_property
    def min_offset(self) -> int:
        """Return the queue's first offset, which a broker reports after a start."""
        return self.queue.correct_min_offset(
            self._log.min_offset, self.max_offset, expired_begins_at_end=self._profile.expired_queue_begins_at_end
        )

    def iterate_from(self, queue_offset: int, end: int) -> Iterator[CqUnit] | None:
        """Return the units of one queue file at the queue offsets [queue_offset, end).

        None if no queue file contains `queue_offset`. Of a queue with an extension, the tagsCodes are read from the
        extension.
        """
        units = self.queue.iterate_from(queue_offset, min(end, self.max_offset))
        return None if units is None else map(self._resolved, units)

    def roll_next_file(self, queue_offset: int) -> int:
        """Return the queue offset at which the next queue file begins.

        For a batch consume queue, this is 0, as in 5.x.
        """
        if not isinstance(self.queue, ConsumeQueue):
            return 0
        per_file = self.queue.queue.file_size // CQ_UNIT.size
        return queue_offset + per_file - queue_offset % per_file

    def _resolved(self, unit: CqUnit) -> CqUnit:
        if self._extension is None or not is_ext_address(unit.tags_code):
            return unit
        tags_code = self._extension.tags_code(unit.tags_code)
        return unit if tags_code is None else unit._replace(tags_code=tags_code)
