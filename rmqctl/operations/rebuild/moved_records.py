"""Records that a flipped bit makes name another queue of the store.

Two queues then seem to be wrong: the record's own queue, whose unit leads to the record, and the queue that the record
names, which has no unit for it. A rebuild would take the message out of its own queue, and would put it into the named
queue, in the place of another message. Brokers serve the message from its own queue. Therefore `recover` changes
neither queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.forensics.doctor.queue_clues import moved_records
from rmqctl.operations.rebuild.strays import one_bit_off

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmqctl.forensics.finding import Finding
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class MovedRecord(NamedTuple):
    """A record that names the queue `said`, but has its unit in the queue `of`."""

    said: QueueKey
    of: QueueKey
    physical_offset: int


class MovedRecords:
    """The moved records that explain findings on queues of `store`.

    `of_queue` has the findings of each queue. `records` are the moved records. `queues` are the queues for which they
    explain all findings. Raises OSError.
    """

    def __init__(self, store: ReadOnlyStore, of_queue: Mapping[QueueKey, list[Finding]]) -> None:
        self._store = store
        candidates = {id(finding) for finding in moved_records(of_queue)}
        self._places: dict[int, list[tuple[QueueKey, Finding]]] = {}
        for key, findings in of_queue.items():
            for finding in findings:
                if id(finding) in candidates and finding.physical_offset is not None:
                    self._places.setdefault(finding.physical_offset, []).append((key, finding))
        self.records = list(self._moved())
        explained = {(record.physical_offset, key) for record in self.records for key in (record.said, record.of)}
        self.queues = {
            key
            for key, findings in of_queue.items()
            if all((finding.physical_offset, key) in explained for finding in findings)
        }

    def notes(self) -> Iterator[str]:
        """Yield a note on each moved record."""
        for record in self.records:
            said, of = (f"{topic}/{queue_id}" for topic, queue_id in (record.said, record.of))
            yield (
                f"the record at {record.physical_offset} says that it is of queue {said}, one bit off {of}, which "
                "leads to it: its topic or queueId is damaged. It stays where it is"
            )

    def _moved(self) -> Iterator[MovedRecord]:
        for at, found in self._places.items():
            slots = {finding.queue_offset for _, finding in found}
            if len(found) != 2 or len(slots) != 1 or not {key for key, _ in found} <= self._store.queues.keys():
                continue
            own = [key for key, finding in found if self._leads(key, finding.queue_offset, at)]
            named = [key for key, _ in found if key not in own]
            if len(own) == 1 and named[0] in one_bit_off(own[0]):
                yield MovedRecord(named[0], own[0], at)

    def _leads(self, key: QueueKey, queue_offset: int | None, physical_offset: int) -> bool:
        """Return whether the unit at a queue offset points to a physical offset."""
        unit = self._store.unit(*key, queue_offset) if queue_offset is not None else None
        return unit is not None and unit.physical_offset == physical_offset
