"""The records to which the units of a queue point."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.forensics.trace.stage import Record
from rmqctl.format.cq_unit import is_ext_address
from rmqctl.format.message import Damage
from rmqctl.store.read.commit_log import message_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqctl.forensics.trace.log_scan import LogScan
    from rmqctl.format.cq_unit import CqUnit
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consume_queue import UnitQueue

RECORD_SIZE_MAX = 1024 * 1024  # of an op message or a POP message; a damaged unit may claim any size


def record_at(scan: LogScan, physical_offset: int, *, indexed: bool | None = None) -> Record | None:
    """Return the record at a physical offset, whole or damaged, or None."""
    item = scan.store.commit_log.at(physical_offset)
    message = message_of(item)
    if message is None:
        return None
    return Record(scan.number, message, item.code if isinstance(item, Damage) else None, indexed)


def by_queue(
    scan: LogScan,
    key: QueueKey,
    after: int,
    may_be_meant: Callable[[bytes], bool] | None = None,
    codes: frozenset[int] | None = None,
) -> Iterator[Record]:
    """Yield the messages of a queue that are stored after a physical offset.

    With `codes`, only units with one of these tagsCodes are read. Records for whose bytes `may_be_meant` returns False
    are skipped.
    """
    queue = scan.store.queue(*key)
    first = None if queue is None else first_from(queue, after)
    if queue is None or first is None:
        return
    log = scan.store.commit_log
    for unit in queue.units(first.queue_offset, queue.max_offset):
        if codes is not None and unit.tags_code not in codes and not is_ext_address(unit.tags_code):
            continue
        if may_be_meant is not None:
            file = log.queue.find(unit.physical_offset)
            size = min(unit.size, RECORD_SIZE_MAX)
            if file is None or not may_be_meant(file.read(unit.physical_offset - file.file_from_offset, size)):
                continue
        record = record_at(scan, unit.physical_offset)
        if record is not None and (record.message.topic, record.message.queue_id) == key:
            yield record


def first_from(queue: UnitQueue, physical_offset: int) -> CqUnit | None:
    """Return the first unit of a queue that points to a physical offset or later."""
    return queue.first_where(lambda unit: unit.physical_offset >= physical_offset)
