"""Messages that someone waits for, by the file of the log that has them: no broker asks before it deletes a file.

Three kinds: not consumed yet by a group that consumes the topic (consumerOffset.json); scheduled and not delivered (delayOffset.json);
half messages without a commit or rollback, behind what the broker has checked. Of a queue only the units that wait are read.
Whether timer messages (5.x) were delivered, nothing that is read here says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqctl.format.columns import UNITS
from rmqctl.store.consume_queue import ConsumeQueue
from rmqctl.store.expiry_plan import Waiting
from rmqctl.store.read_only_store import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from rmqctl.store.stored_offsets import consumer_offsets, delay_offsets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.consume_queue import UnitQueue
    from rmqctl.store.read_only_store import QueueKey, ReadOnlyStore

TRANS_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_GROUP = "CID_RMQ_SYS_TRANS"


class Outstanding:
    """What waits in each of `files`, the oldest ones of the log; `problems` says of which queues that cannot be read."""

    def __init__(self, store: ReadOnlyStore, files: Sequence[MappedFile]) -> None:
        self._store = store
        self._borders = np.array([file.file_from_offset for file in files] + [file.end for file in files[-1:]], dtype=np.int64)
        self.problems: list[str] = []
        self.slowest: dict[str, int] = {}
        """Messages in the files by the group that is farthest behind."""
        self._scheduled = self._nothing()
        self._half = self._nothing()
        self._unconsumed = self._nothing()
        self._timers = self._nothing()
        if files:
            self._find()

    def of(self, number: int) -> Waiting:
        """What waits in the file with this number."""
        return Waiting(int(self._unconsumed[number]), int(self._scheduled[number]), int(self._half[number]))

    def timers(self, number: int) -> int:
        """How many timer messages the file with this number has, delivered or not."""
        return int(self._timers[number])

    def _find(self) -> None:
        consumed = self._consumed()
        delivered = {(found.topic, found.queue_id): found.offset for found in delay_offsets(self._store)}
        for key, queue in self._store.queues.items():
            try:
                if key in consumed:
                    group, offset = consumed[key]
                    self._unconsumed += self._slower(group, self._behind(queue, offset))
                if key[0] == TIMER_TOPIC:
                    self._timers += self._behind(queue, 0)
                elif key[0] == SCHEDULE_TOPIC:
                    self._scheduled += self._behind(queue, delivered.get(key, 0))
                elif key[0] == TRANS_HALF_TOPIC:
                    self._half += self._undecided(key, queue)
            except OSError as error:
                self.problems.append(f"queue {key[0]} {key[1]}: {error.strerror}")

    def _slower(self, group: str, counts: Any) -> Any:
        count = int(counts.sum())
        if count:
            self.slowest[group] = self.slowest.get(group, 0) + count
        return counts

    def _consumed(self) -> dict[QueueKey, tuple[str, int]]:
        """Of each queue the group that is farthest behind, and how far it is."""
        found: dict[QueueKey, tuple[str, int]] = {}
        for known in consumer_offsets(self._store):
            key = known.topic, known.queue_id
            if known.owner != TRANS_GROUP and (key not in found or known.offset < found[key][1]):
                found[key] = known.owner, known.offset
        return found

    def _behind(self, queue: UnitQueue, offset: int) -> Any:
        """How many messages of a queue from `offset` on each file has."""
        counts = self._nothing()
        for places, sizes in self._units_from(queue, offset):
            numbers = np.searchsorted(self._borders, places, side="right") - 1
            inside = (numbers >= 0) & (numbers < len(counts))
            np.add.at(counts, numbers[inside], sizes[inside])
        return counts

    def _units_from(self, queue: UnitQueue, offset: int) -> Iterator[tuple[Any, Any]]:
        """(physical offsets, messages that each unit stands for) from `offset` on, as far as the files go."""
        first = self._first(queue, offset)
        if first is None:
            return
        if not isinstance(queue, ConsumeQueue):
            units = list(queue.units(max(offset, first), queue.max_offset))
            places = np.array([unit.physical_offset for unit in units], dtype=np.int64)
            left = [min(unit.batch_size, unit.queue_offset + unit.batch_size - offset) for unit in units]
            yield places, np.array(left, dtype=np.int64)
            return
        for _, data in queue.blocks(first, queue.max_offset):
            units_here = np.frombuffer(data, UNITS)
            places = units_here["physicalOffset"].astype(np.int64)
            used = (units_here["size"] > 0) & (places >= self._borders[0])
            yield places[used], np.ones(int(used.sum()), dtype=np.int64)
            if len(places) and places[-1] >= self._borders[-1]:
                return

    def _first(self, queue: UnitQueue, offset: int) -> int | None:
        """The queue offset to begin at: `offset`, or the first message that the log still has; None: nothing waits in the files."""
        if not queue.queue.files:
            return None
        unit = queue.find(offset)
        if unit is None or unit.is_pre_blank or unit.physical_offset < self._borders[0]:
            unit = queue.first_where(lambda unit: unit.physical_offset >= int(self._borders[0]))
        if unit is None or unit.physical_offset >= self._borders[-1] or unit.queue_offset + unit.batch_size <= offset:
            return None
        return unit.queue_offset

    def _undecided(self, key: QueueKey, queue: UnitQueue) -> Any:
        """Half messages from where the broker's check is on that no op message decides."""
        counts = self._nothing()
        checked = self._checked()
        first = self._first(queue, checked.get(key, 0))
        if first is None:
            return counts
        decided = self._decided((TRANS_OP_HALF_TOPIC, key[1]), checked)
        for unit in queue.units(first, queue.max_offset):
            number = int(np.searchsorted(self._borders, unit.physical_offset, side="right")) - 1
            if 0 <= number < len(counts) and unit.queue_offset not in decided:
                counts[number] += 1
        return counts

    def _checked(self) -> dict[QueueKey, int]:
        """How far the check of transactions is."""
        return {(known.topic, known.queue_id): known.offset for known in consumer_offsets(self._store) if known.owner == TRANS_GROUP}

    def _decided(self, key: QueueKey, checked: dict[QueueKey, int]) -> set[int]:
        """Queue offsets of half messages: the bodies of op messages have one (4.x), or several with commas between them (5.x)."""
        queue = self._store.queues.get(key)
        decided: set[int] = set()
        if queue is None:
            return decided
        for unit in queue.units(checked.get(key, 0), queue.max_offset):
            message = self._store.commit_log.message_at(unit.physical_offset)
            words = bytes(message.body).split(b",") if message is not None else []
            decided.update(int(word) for word in words if word.isdigit())
        return decided

    def _nothing(self) -> Any:
        return np.zeros(max(len(self._borders) - 1, 0), dtype=np.int64)
