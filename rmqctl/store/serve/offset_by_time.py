"""The search for a queue offset by time (ConsumeQueue.getOffsetInQueueByTime).

4.x searches the first queue file that was modified at the given time or later, or else the last file, for the message
whose store time is nearest; of two equally near ones, for the earlier. In a copy of the store, 4.x can find another
one, because the copied files can have other modification times.

5.x searches the first queue file whose last message was stored at the given time or later, for the first such message.
Without one, the queue offset is that of the file's end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.format.cq_unit import CQ_UNIT
from rmqctl.store.read.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from rmqctl.format.cq_unit import CqUnit
    from rmqctl.format.profile import Profile
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.serve.logic_queue import LogicQueue
    from rmqctl.store.serve.readable_log import ReadableLog


def offset_in_queue_by_time(queue: LogicQueue, log: ReadableLog, profile: Profile, timestamp: int) -> int:
    """Return the queue offset for a time (ms since 1970), or 0 if none is found.

    Raises OSError and Unreadable.
    """
    if not isinstance(queue.queue, ConsumeQueue):
        return _of_batches(queue.queue, log, timestamp)
    files = queue.queue.queue.files
    if not files or not queue.max_offset:
        return 0
    search = _Search(queue.queue, queue, log)
    if profile.finds_offset_by_store_time:
        found = search.lower_bound(search.file_by_store_time(files, timestamp), timestamp)
        return min(max(found, queue.min_offset), queue.max_offset)
    return search.nearest(_file_by_modification(files, timestamp), timestamp)


def _file_by_modification(files: list[MappedFile], timestamp: int) -> MappedFile:
    """Follow MappedFileQueue.getMappedFileByTime."""
    return next((file for file in files if file.last_modified_timestamp >= timestamp), files[-1])


def _of_batches(queue: UnitQueue, log: ReadableLog, timestamp: int) -> int:
    """Return the queue offset of the first batch stored at `timestamp` or later.

    If the last batch was stored at `timestamp` or earlier, it is that of the last batch. 5.x searches only one queue
    file, and may return a later batch with the same store time.
    """

    def stored(unit: CqUnit) -> int:
        return log.store_timestamp(unit.physical_offset, unit.size)

    found = queue.last()
    if found is not None and stored(found) > timestamp:
        found = queue.first_where(lambda unit: stored(unit) >= timestamp)
    return found.queue_offset if found is not None else 0


class _Search:
    """A bisection over the units of one queue file."""

    def __init__(self, units: ConsumeQueue, queue: LogicQueue, log: ReadableLog) -> None:
        self._units = units
        self._queue = queue
        self._log = log

    def file_by_store_time(self, files: list[MappedFile], timestamp: int) -> MappedFile:
        """Follow 5.x (MappedFileQueue.getConsumeQueueMappedFileByTime)."""
        for file in files[:-1]:
            if self._time(file.end // CQ_UNIT.size - 1) >= max(timestamp, 0):
                return file
        return files[-1]

    def lower_bound(self, file: MappedFile, timestamp: int) -> int:
        """Return the offset of a file's first message stored at `timestamp` or later.

        If all were stored before, it is the queue offset after the file's last unit in use. It is 0 if the file has no
        units, or if the search reaches a message that is not in the log.
        """
        first, low, end = self._range(file)
        if first == end:
            return 0
        if self._time(end - 1) < timestamp:
            return end
        if self._time(low) > timestamp:
            return first
        high, found = end - 1, end
        while high >= low:
            middle = (low + high) // 2
            if self._physical_offset(middle) < self._log.min_offset:
                low = middle + 1
                continue
            stored = self._time(middle)
            if stored < 0:
                return 0
            if stored >= timestamp:
                high, found = middle - 1, middle
            else:
                low = middle + 1
        return found

    def nearest(self, file: MappedFile, timestamp: int) -> int:
        """Return the queue offset of the message in `file` nearest to `timestamp`.

        Of several stored exactly then, it is that of any. It is 0 if the file has no units, or if the search reaches a
        message that is not in the log.
        """
        first, low, end = self._range(file)
        if first == end:
            return 0
        high = end - 1
        left: tuple[int, int] | None = None
        right: tuple[int, int] | None = None
        while high >= low:
            middle = (low + high) // 2
            if self._physical_offset(middle) < self._log.min_offset:
                low = middle + 1
                continue
            stored = self._time(middle)
            if stored < 0:
                return 0
            if stored == timestamp:
                return middle
            if stored > timestamp:
                high, right = middle - 1, (stored, middle)
            else:
                low, left = middle + 1, (stored, middle)
        if left is None:
            return right[1] if right is not None else max(first - 1, 0)  # the broker's -1 bytes
        if right is None or timestamp - left[0] <= right[0] - timestamp:
            return left[1]
        return right[1]

    def _range(self, file: MappedFile) -> tuple[int, int, int]:
        """Return the queue offsets (first unit, first valid unit, end) of one file.

        A valid unit is at or after the min offset of the queue. The end is after the last unit in use.
        """
        first = file.file_from_offset // CQ_UNIT.size
        end = max(min(file.end // CQ_UNIT.size, self._queue.max_offset), first)
        return first, max(self._queue.min_offset, first), end

    def _physical_offset(self, queue_offset: int) -> int:
        unit = self._units.find(queue_offset)
        return -1 if unit is None else unit.physical_offset

    def _time(self, queue_offset: int) -> int:
        unit = self._units.find(queue_offset)
        return -1 if unit is None else self._log.store_timestamp(unit.physical_offset, unit.size)
