"""Records that a flipped bit makes name another queue of the store.

Two queues then seem to be wrong: the record's own queue, whose unit leads to the record, and the queue that the record
names, which has no unit for it. A rebuild would take the message out of its own queue, and would put it into the named
queue, in the place of another message. Brokers serve the message from its own queue. Therefore `recover` changes
neither queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.forensics.doctor.queue_clues import misnamed_records
from rmqctl.operations.rebuild.strays import Stray, one_bit_off

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmqctl.forensics.finding import Finding
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class MisnamedRecords:
    """The misnamed records that explain findings on queues of `store`.

    `of_queue` has the findings of each queue. `records` are the misnamed records, and `queues` the queues for which
    they explain all findings. Raises OSError.
    """

    def __init__(self, store: ReadOnlyStore, of_queue: Mapping[QueueKey, list[Finding]]) -> None:
        self._store = store
        self.records = [*self._misnamed(misnamed_records(of_queue))]
        explained = {(record.physical_offset, key) for record in self.records for key in (record.said, record.of)}
        self.queues = {
            key
            for key, findings in of_queue.items()
            if all((finding.physical_offset, key) in explained for finding in findings)
        }

    def _misnamed(self, places: Mapping[int, list[tuple[QueueKey, Finding]]]) -> Iterator[Stray]:
        for at, found in places.items():
            slots = {finding.queue_offset for _, finding in found}
            if len(found) != 2 or len(slots) != 1 or not {key for key, _ in found} <= self._store.queues.keys():
                continue
            own = [key for key, finding in found if self._leads(key, finding.queue_offset, at)]
            named = [key for key, _ in found if key not in own]
            if len(own) == 1 and named[0] in one_bit_off(own[0]):
                yield Stray(named[0], own[0], at)

    def _leads(self, key: QueueKey, queue_offset: int | None, physical_offset: int) -> bool:
        """Return whether the unit at a queue offset points to a physical offset."""
        unit = self._store.unit(*key, queue_offset) if queue_offset is not None else None
        return unit is not None and unit.physical_offset == physical_offset
