"""Steps that cut the log, a queue or the index at a new end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.operations.plan import RebuildIndex, Step
from rmqctl.store.config.store_path import CONSUMEQUEUE
from rmqctl.store.journal.changes import Delete, Resize, Zero

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.logfile.mapped_file_queue import MappedFileQueue
    from rmqctl.store.read.consume_queue import ConsumeQueue
    from rmqctl.store.read.index.index_service import IndexService


def log_steps(files: MappedFileQueue, end: int, *, keep_tail: bool = False) -> Iterator[Step]:
    """Yield the steps that end the log at the physical offset `end`.

    The steps delete the log files after `end`, and give the other log files their full length. Without `keep_tail`, all
    bytes after `end` in the last log file become zero.
    """
    for file in files.files:
        if file.file_from_offset > end or (file.size == 0 and file is files.files[-1]):
            yield Step(Delete(file.name), f"it lies after the log's end, {end}")
            continue
        if file.size_on_disk != files.file_size:
            yield Step(Resize(file.name, files.file_size), f"it has {file.size_on_disk} bytes: no broker loads it")
        if file.end > end and not keep_tail:
            yield from _tail_step(file, end, files.file_size)


def _tail_step(file: MappedFile, end: int, file_size: int) -> Iterator[Step]:
    """Yield the step that sets `file` to zero after the physical offset `end`."""
    position = end - file.file_from_offset
    data_end = min(file.data_end(position), file_size)
    if data_end > position:
        yield Step(Zero(file.name, position, data_end), f"{data_end - position} bytes after the log's end, {end}")


def cut_steps(queue: ConsumeQueue, queue_offset: int, why: str) -> Iterator[Step]:
    """Yield the steps that end a queue at `queue_offset`.

    If no unit of the queue remains, the whole queue is deleted.
    """
    position = queue_offset * queue.unit_size
    first = queue.queue.files[0].file_from_offset if queue.queue.files else 0
    if position <= first:
        yield Step(Delete(f"{CONSUMEQUEUE}/{queue.topic}/{queue.queue_id}"), why)
        return
    for file in queue.queue.files:
        if file.file_from_offset >= position:
            yield Step(Delete(file.name), why)
        elif file.end > position:
            start = position - file.file_from_offset
            end = -(-file.data_end(start) // queue.unit_size) * queue.unit_size
            yield Step(Zero(file.name, start, min(max(end, start + queue.unit_size), file.size)), why)


def index_steps(index: IndexService, end: int) -> Iterator[Step]:
    """Yield a rebuild of the index, if the index points after the log's end."""
    headers = [file.header() for file in index.files]
    if any(header is not None and header.index_count > 1 and header.end_phy_offset >= end for header in headers):
        yield Step(RebuildIndex(), f"it leads after the log's end, {end}")
