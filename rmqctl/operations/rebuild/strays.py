"""Strays: records that a flipped bit keeps from their queue.

The existing queue has a unit for a stray, with its position, size and queue offset. But the record names another topic
or queueId, or its SYSFLAG makes it a prepared or rollback record, for which brokers write no units. Brokers serve
strays to consumers, because they look only at the unit. Therefore a rebuild keeps these units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.format.columns import UNITS
from rmqctl.format.sys_flag import TRANSACTION_MASK
from rmqctl.operations.rebuild.built_queue import without_addresses
from rmqctl.store.dispatch.dispatch_rules import queue_destinations
from rmqctl.store.read.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from rmqctl.format.cq_unit import CqUnit
    from rmqctl.format.message import Message
    from rmqctl.operations.rebuild.built_queue import BuiltQueue, QueueCounts
    from rmqctl.operations.rebuild.repaired_log import RepairedLog
    from rmqctl.store.config.topics import QueueKey


class Stray(NamedTuple):
    """A record with one damaged bit in its topic or queueId."""

    said: QueueKey  # the queue that the record names
    of: QueueKey  # the queue whose unit points to the record
    physical_offset: int

    def __str__(self) -> str:
        said, of = (f"{topic}/{queue_id}" for topic, queue_id in (self.said, self.of))
        return (
            f"the record at {self.physical_offset} says that it is of queue {said}, one bit off {of}, which leads to "
            "it: its topic or queueId is damaged. It stays where it is"
        )


class Strays:
    """Finds the strays to which existing units of `log.store` lead.

    Methods raise OSError.
    """

    def __init__(self, log: RepairedLog) -> None:
        self._log = log
        self._before = log.store

    def keep(self, queue: BuiltQueue) -> None:
        """Keep the existing units that lead to strays behind a built queue's end.

        Brokers serve them.
        """
        counts = queue.counts
        before = self._before.queues.get(counts.key)
        while isinstance(before, ConsumeQueue):
            unit = before.find(counts.max_offset)
            stray = self._at(counts.key, unit) if unit is not None and unit.physical_offset >= counts.end else None
            if unit is None or stray is None:
                break
            units = np.array([(unit.physical_offset, unit.size, unit.tags_code)], UNITS)
            units = without_addresses(units, self._before.extensions.get(counts.key), unknown=0)
            queue.put(units, np.array([stray.store_timestamp], np.int64))
            counts.kept += 1
            counts.strays += 1

    def made(self, counts: QueueCounts, stays: Callable[[QueueKey], bool]) -> Stray | None:
        """Return the stray that alone makes a queue, or None if other records do, too.

        A unit of another queue leads to it. That queue must stay: `stays` returns True for it, or it has this unit
        alone.
        """
        queues, last = self._before.queues, counts.max_offset - 1
        if counts.key in queues or counts.units - counts.repeated - counts.kept != 1 or not queues:
            return None
        for key in one_bit_off(counts.key):
            unit = self._before.unit(*key, last) if key in queues else None
            if unit is None or unit.physical_offset + unit.size != counts.end:
                continue
            if stays(key) or self._is_lone(key, unit):
                return Stray(counts.key, key, unit.physical_offset)
        return None

    def fills(self, key: QueueKey, unit: CqUnit, made: Collection[QueueKey]) -> bool:
        """Return whether `unit` is its queue's only one, and leads to a stray.

        False if the queue that the record names is in `made`.
        """
        stray = self._at(key, unit) if self._is_lone(key, unit) else None
        return stray is not None and (stray.topic, stray.queue_id) not in made

    def _is_lone(self, key: QueueKey, unit: CqUnit) -> bool:
        queue = self._before.queues[key]
        return queue.min_offset(self._log.range.start) == unit.queue_offset == queue.max_offset - 1

    def _at(self, key: QueueKey, unit: CqUnit) -> Message | None:
        # if the store has the queue that the record names, the record is no stray: the unit may be wrong
        ends_in_log = unit.physical_offset + unit.size <= self._log.range.stop
        record = self._log.message_at(unit.physical_offset) if ends_in_log else None
        if record is None or record.size != unit.size:
            return None
        if not queue_destinations(record):
            as_stored = record._replace(sys_flag=record.sys_flag & ~TRANSACTION_MASK)
            is_stray = (*key, unit.queue_offset) in {target[:3] for target in queue_destinations(as_stored)}
        else:
            said = record.topic, record.queue_id
            is_stray = record.queue_offset == unit.queue_offset and said in one_bit_off(key)
            is_stray = is_stray and self._before.queue(*said) is None
        return record if is_stray else None


def one_bit_off(key: QueueKey) -> Iterator[QueueKey]:
    """Yield the queues whose topic or queueId differs from `key` in one bit."""
    topic, queue_id = key
    yield from ((topic, queue_id ^ 1 << bit) for bit in range(31))
    raw = topic.encode()
    for at in range(len(raw)):
        for bit in range(8):
            flipped = raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :]
            yield flipped.decode("utf-8", "replace"), queue_id
