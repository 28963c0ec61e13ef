"""The output of a plan of `erase`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.cli.output.render import print_line_of_text, print_table
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.operations.erase.plan import ErasePlan

ROWS_SHOWN = 50
NAMED = 5


def print_plan(plan: ErasePlan) -> None:
    """Print how many records are erased, where, and what else is overwritten."""
    if not plan.copies and not plan.zeros:
        left = "; what an interrupted change left is removed" if plan.has_leftovers else ""
        journals = f"; journals with the bytes are overwritten: {', '.join(plan.journals)}" if plan.journals else ""
        print_line_of_text(f"nothing to erase in the log: no record was found{left}{journals}")
        return
    topics = len({copy.message.topic for copy in plan.copies})
    also = f", {counted(len(plan.zeros), 'range')} where no record is" if plan.zeros else ""
    index = ", and the index is written anew" if plan.rebuilds_index else ""
    index += "; the next start fills the queues in RocksDB anew" if plan.refills_queues else ""
    print_line_of_text(f"{counted(len(plan.copies), 'record')} of {counted(topics, 'topic')} to erase{also}{index}")
    if not plan.copies:
        return
    print()
    rows = [
        [copy.message.physical_offset, copy.message.topic, copy.message.queue_id, copy.message.queue_offset, copy.path]
        for copy in plan.copies
    ]
    print_table(["PHYSICALOFFSET", "TOPIC", "QUEUE", "OFFSET", "FILE"], rows[:ROWS_SHOWN])
    if len(rows) > ROWS_SHOWN:
        print(f"and {counted(len(rows) - ROWS_SHOWN, 'more record')}")


def remarks_of(plan: ErasePlan, *, keeps_undo: bool) -> Iterator[str]:
    """Yield what stays, and why."""
    yield from plan.notes
    if plan.copies:
        yield "consumers that read these places get a message with an empty body of JSON and blanks"
        yield "`rmqctl undo` takes it back" if keeps_undo else "nothing brings them back: --keep-undo keeps the bytes"
    for one in plan.remains[:NAMED]:
        where = f"the record at {one.physical_offset}" if one.physical_offset is not None else f"byte {one.position}"
        yield f"not complete: {one.path} has a {one.what} of them, {where}, which stays"
    if plan.remains_count > NAMED:
        yield f"not complete: {counted(plan.remains_count - NAMED, 'more place')}"
    if plan.journals:
        yield f"what these changes could undo is gone then: {', '.join(plan.journals)}"
