"""Read a split of a log in a Spark task, and compare it with queues and index."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.errors import Unreadable
from rmqctl.forensics.audit.index_audit import examine
from rmqctl.forensics.audit.part_audit import check_part
from rmqctl.kernels import cq_unit_compare, dispatch_scan, index_match, scan
from rmqctl.logfile.column_reader import ColumnReader
from rmqctl.spark.scan.split import opened
from rmqctl.spark.scan.task_kernels import warm_up_once
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.parallel_scan import Part, scan_part

if TYPE_CHECKING:
    from rmqctl.forensics.audit.index_findings import IndexPart
    from rmqctl.spark.scan.split import Split
    from rmqctl.spark.scan.store_tasks import StoreTask


class Found(NamedTuple):
    """The result of a task: a part of the log, and the queues of the messages."""

    part: Part
    # (topic, queueId), by the number in the dispatch columns of `part`; empty without such columns
    queues: list[tuple[bytes, int]]
    in_index: IndexPart | None = None  # the comparison with the index, if the part was compared


class Reading(NamedTuple):
    """The settings for reading splits.

    With `store`, the record runs of the result have a `CheckedRun` in place of dispatch columns.
    """

    described: bool  # the result has dispatch columns
    with_keys: bool  # these include the hashes of the keys
    with_tags: bool  # and with `with_keys` the hash of TAGS
    # compare the part with its queues, and with the index if the dispatch columns include hashes
    store: StoreTask | None = None


def read_split(split: Split, reading: Reading, position: int | None = None) -> Found:
    """Read a split.

    The part begins at the first record of the split, or at `position` in the file, where a message, blank or damage
    must begin. Raises Unreadable if the file does not exist, or if the driver's host has a different file.
    """
    audits = (cq_unit_compare, index_match) if reading.store is not None else ()
    warm_up_once(scan, *((dispatch_scan, *audits) if reading.described else ()))
    builder = (
        DispatchRequestBuilder(with_keys=reading.with_keys, with_tags=reading.with_tags) if reading.described else None
    )
    with opened(split) as file:
        start = split.start if position is None else position
        exact = position is not None or split.start == 0
        part = scan_part(file, start, split.stop, ColumnReader(), builder.take if builder else None, exact=exact)
    if builder is None:
        return Found(part, [])
    if reading.store is None:
        return Found(part, builder.queues)
    return _compared(part, split.file_from_offset, builder, reading.store)


def _compared(part: Part, file_from_offset: int, builder: DispatchRequestBuilder, task: StoreTask) -> Found:
    index = None
    with task.opened() as store:
        if builder.with_keys and part.first is not None:
            with suppress(Unreadable):  # the driver lists the same folder
                offsets = file_from_offset + part.first, file_from_offset + part.position
                index = examine(store, builder, part.items, offsets)
        checked = check_part(store, builder.keys, part.items)
    return Found(part._replace(items=checked), builder.queues, index)
