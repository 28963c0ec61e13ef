"""Find messages of compacted topics that only compaction/ still has.

A broker's look-ups by key do not find them (it asks the log), but consumers get them (5.1 and later).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.forensics.trace.stage import STORED, Record, Stage
from rmqctl.format.message import Message
from rmqctl.store.compaction.compaction_log import compaction_queues, records, slots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqctl.store.read.read_only_store import ReadOnlyStore


def compacted_stages(
    store: ReadOnlyStore, number: int, topic: str | None, is_asked: Callable[[Record], bool]
) -> Iterator[Stage]:
    """Yield a stage for each record that is asked for, of one topic or all.

    Its physical offset is a place in compactionLog. Raises OSError.
    """
    for queue in compaction_queues(store) if store.conf.compaction_enabled else ():
        for name, file in queue.log.items() if topic in (None, queue.topic) else ():
            items = (Record(number, item, path=file.name) for item in records(file) if isinstance(item, Message))
            found = list(filter(is_asked, items))
            served = {unit.physical_offset for _, unit in slots(queue.units[name])} if name in queue.units else set()
            for record in found:
                is_served = record.message.physical_offset in served
                yield Stage(STORED, record, queue.topic, queue.queue_id, record.message.queue_offset, is_served)
        queue.close()
