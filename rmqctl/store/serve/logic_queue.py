"""A consume queue in the state after a broker has loaded the store.

The class gives the begin and the end of the queue, and its units with their tags.
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
    """The units of `queue` below `max_offset`, which point to `log`.

    Offsets are in units. Methods raise OSError and Unreadable.
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
        """Return the first offset of the queue.

        A broker reports this offset right after it has loaded the store.
        """
        return self.queue.correct_min_offset(
            self._log.min_offset, self.max_offset, expired_begins_at_end=self._profile.expired_queue_begins_at_end
        )

    def iterate_from(self, queue_offset: int, end: int) -> Iterator[CqUnit] | None:
        """Return the units of [queue_offset, end) that are in one file.

        This is the file that has the unit of `queue_offset`. The tags of the units are read from the extension. The
        result is None if no file has this unit.
        """
        units = self.queue.iterate_from(queue_offset, min(end, self.max_offset))
        return None if units is None else map(self._resolved, units)

    def roll_next_file(self, queue_offset: int) -> int:
        """Return the first queue offset of the next file.

        For a batch consume queue, the result is 0, as in 5.x.
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
