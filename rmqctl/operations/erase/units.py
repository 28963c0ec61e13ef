"""The units of an erased message, which lose the hash of its tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.format.cq_unit import BATCH_CQ_UNIT, CQ_EXT_UNIT, CQ_UNIT, ext_offset, is_ext_address
from rmqctl.store.config.store_path import Layout
from rmqctl.store.dispatch.dispatch_rules import queue_destinations
from rmqctl.store.journal.changes import Write
from rmqctl.store.read.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.message import Message
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore


def unit_writes(store: ReadOnlyStore, message: Message) -> Iterator[Write]:
    """Yield the changes that take the hash of TAGS out of a message's units.

    Raises OSError.
    """
    is_in_database = store.path.layout is Layout.ROCKSDB
    for target in () if is_in_database else queue_destinations(message):
        queue = None if target.scheduled else store.queue(target.topic, target.queue_id)
        for file, position in _units_of(queue, target.queue_offset, message) if queue is not None else ():
            layout = CQ_UNIT if isinstance(queue, ConsumeQueue) else BATCH_CQ_UNIT
            at = position + layout.offset("tagsCode")
            code = int.from_bytes(file.read(at, 8), "big", signed=True)
            if is_ext_address(code):
                yield from _ext_write(store, (target.topic, target.queue_id), code)
            elif code:
                yield Write(file.name, at, bytes(8))


def _ext_write(store: ReadOnlyStore, key: QueueKey, address: int) -> Iterator[Write]:
    extension = store.extensions.get(key)
    file = None if extension is None else extension.queue.find(ext_offset(address))
    if extension is not None and file is not None and extension.tags_code(address):
        position = ext_offset(address) - file.file_from_offset
        yield Write(file.name, position + CQ_EXT_UNIT.offset("tagsCode"), bytes(8))


def _units_of(queue: UnitQueue, queue_offset: int, message: Message) -> Iterator[tuple[MappedFile, int]]:
    """Yield the file and the position of each unit that leads to a message."""
    if isinstance(queue, ConsumeQueue):
        unit = queue.find(queue_offset)
        if unit is None or unit.physical_offset != message.physical_offset:
            unit = queue.first_where(lambda unit: unit.physical_offset >= message.physical_offset)
        file = None if unit is None else queue.queue.find(unit.queue_offset * CQ_UNIT.size)
        if unit is not None and file is not None and unit.physical_offset == message.physical_offset:
            yield file, unit.queue_offset * CQ_UNIT.size - file.file_from_offset
        return
    begin = message.physical_offset.to_bytes(8, "big") + message.size.to_bytes(4, "big")
    for file in queue.queue.files:
        data = file.read(0, file.size)
        yield from ((file, at) for at in range(0, len(data), BATCH_CQ_UNIT.size) if data.startswith(begin, at))
