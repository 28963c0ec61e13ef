"""The messages that a salvaged log has of each queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.format.sys_flag import TransactionType
from rmqctl.kernels import group_scan, scan
from rmqctl.kernels.group_scan import BY_QUEUE, GroupTable
from rmqctl.kernels.warm_up import runs_plain
from rmqctl.kernels.warm_up import warm_up as warm_up_kernels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqctl.format.columns import Bytes, Rows

Queues = dict[tuple[bytes, int], tuple[int, int, int]]  # topic and queueId: messages, lowest and highest queue offset
_SLOTS = 1024  # queues in one buffer; more of them are counted in several steps
_IN_NO_QUEUE = int(TransactionType.PREPARED)  # the bit that prepared and rollback records have


def warm_up(size: int) -> None:
    """Compile or load the kernels of the scan.

    Not if `size`, the bytes of the sources, is small.
    """
    warm_up_kernels(scan, group_scan, size=size)


class QueueCounter:
    """Counts the messages of each queue. Only one thread at a time may use it."""

    def __init__(self) -> None:
        self._table = GroupTable(BY_QUEUE, 0, _SLOTS)

    def count(self, buffer: Bytes, rows: Rows) -> Queues:
        """Return the queues of records.

        `rows` (RECORD_COLUMNS) describe the records in `buffer`.
        """
        is_left_out = rows["sys_flag"] & _IN_NO_QUEUE
        rows = rows[is_left_out == 0] if is_left_out.any() else rows
        found: Queues = {}
        if runs_plain(group_scan):
            names = ["position", "size", "properties_length", "topic_length", "queue_id", "queue_offset"]
            for position, size, behind, length, queue_id, offset in rows[names].tolist():
                end = position + size - behind - 2
                found = joined(found, {(bytes(buffer[end - length : end]), queue_id): (1, offset, offset)})
            return found
        names = ["topic", "queue_id", "messages", "min_queue_offset", "max_queue_offset"]
        for groups in [*self._table.add(buffer, rows), self._table.taken()]:
            for topic, queue_id, *counts in groups[names].tolist():
                key = self._table.topics.texts[topic], queue_id
                found = joined(found, {key: (counts[0], counts[1], counts[2])})
        return found


def joined(queues: Queues, others: Mapping[tuple[bytes, int], tuple[int, int, int]]) -> Queues:
    """Add the counts of others to `queues`, and return it."""
    for key, (messages, first, last) in others.items():
        before = queues.get(key, (0, first, last))
        queues[key] = before[0] + messages, min(before[1], first), max(before[2], last)
    return queues
