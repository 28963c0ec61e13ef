"""Count, for each log file, the messages that are still needed.

A broker deletes log files without regard to them. They are of four kinds:

- `unconsumed`: a group that reads the topic has not consumed the message (`consumer_groups.py`). If the group has no
  offset for the queue, all messages of the queue count. A message that was popped and not acknowledged (5.x) is before
  the group's offset, so the oldest POP checkpoint that the broker has not processed counts as this offset.
- `scheduled`: the delayed message is not delivered yet (delayOffset.json).
- `half`: the half message has no commit or rollback, and no broker has checked it.
- `dead`: the message is in a %DLQ% topic that no group reads. An operator may send a dead letter again.

If subscriptionGroup.json lists a group with unknown topics, all messages of topics without a group count as unconsumed.
`missing_queues.py` finds messages whose queue has no folder. The files of a store do not show whether timer messages
(5.x) were delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqctl.format.body import op_message
from rmqctl.format.columns import UNITS
from rmqctl.operations.clean.plan_types import PendingCounts
from rmqctl.store.config.topics import (
    DLQ_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_GROUP,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    is_broker_topic,
)
from rmqctl.store.read.consume_queue import ConsumeQueue
from rmqctl.store.read.consumers.consumer_groups import ConsumerGroups
from rmqctl.store.read.consumers.consumer_offsets import consumer_offsets, delay_offsets
from rmqctl.store.read.consumers.pop_checkpoints import popped_offsets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from rmqctl.format.columns import Numbers
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore

    Counts = npt.NDArray[np.int64]  # numbers of messages, one for each log file

COUNTED_APART = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC})


class Outstanding:
    """The messages that are still needed, counted for each log file.

    `files` are the oldest files of the log. `problems` says why some messages cannot be counted.
    """

    def __init__(self, store: ReadOnlyStore, files: Sequence[MappedFile]) -> None:
        self._store = store
        self._groups = ConsumerGroups(store)
        self._popped: dict[QueueKey, dict[str, int]] = {}
        self._borders = np.array(
            [file.file_from_offset for file in files] + [file.end for file in files[-1:]], dtype=np.int64
        )
        self.problems: list[str] = []
        self.slowest: dict[str, int] = {}
        """Unconsumed messages in the files, by group. Only the slowest group of a queue counts."""
        self.dead_letters: dict[str, int] = {}
        """Dead letters in the files, by the %DLQ% topic. Only topics that no group reads count."""
        self._scheduled = self._nothing()
        self._half = self._nothing()
        self._unconsumed = self._nothing()
        self._dead = self._nothing()
        self._timers = self._nothing()
        if files:
            self._find()

    def of(self, number: int) -> PendingCounts:
        """Return how many messages of each kind are still needed in a log file.

        `number` is its position in `files`.
        """
        return PendingCounts(
            int(self._unconsumed[number]),
            int(self._scheduled[number]),
            int(self._half[number]),
            int(self._dead[number]),
        )

    def timers(self, number: int) -> int:
        """Return how many timer messages a log file has, also delivered ones.

        `number` is its position in `files`.
        """
        return int(self._timers[number])

    @property
    def groups_without_topic(self) -> Sequence[str]:
        """The groups in subscriptionGroup.json whose topics are unknown."""
        return self._groups.without_topic

    def has_no_reader(self, topic: str) -> bool:
        """Return whether no known group reads a topic."""
        return topic not in COUNTED_APART and not self._groups.groups_of(topic)

    def _find(self) -> None:
        self._popped = popped_offsets(self._store, self.problems)
        delivered = {(found.topic, found.queue_id): found.offset for found in delay_offsets(self._store)}
        reached = -1
        for key, queue in self._store.queues.items():
            try:
                if key[0] == TIMER_TOPIC:
                    self._timers += self._behind(queue, 0)
                elif key[0] == SCHEDULE_TOPIC:
                    self._scheduled += self._behind(queue, delivered.get(key, 0))
                elif key[0] == TRANS_HALF_TOPIC:
                    self._half += self._undecided(key, queue)
                elif key[0].startswith(DLQ_PREFIX) and self.has_no_reader(key[0]):
                    self._dead += _noted(self._behind(queue, 0), key[0], self.dead_letters)
                else:
                    self._unconsumed += self._behind_slowest(key, queue)
                last = queue.last()
                reached = max(reached, last.physical_offset if last is not None else 0)
            except OSError as error:
                self.problems.append(f"queue {key[0]} {key[1]}: {error.strerror}")
        self._check_dispatched(reached)

    def _check_dispatched(self, reached: int) -> None:
        """Report a problem if the log continues after the last unit of all queues.

        `reached` is the highest physical offset to which a queue's last unit points. Messages after it are in no queue,
        and so are not counted: an operator may have deleted the queues before a rebuild.
        """
        lost = self._borders[:-1][self._borders[:-1] > reached]
        if len(lost) and not self.problems:
            self.problems.append(
                f"no queue leads to a message from offset {lost[0]} on: `rmqctl rebuild STORE queues` rebuilds the "
                "queues"
            )

    def _behind_slowest(self, key: QueueKey, queue: UnitQueue) -> Counts:
        readers = self._readers(key)
        if not readers:
            return self._nothing()
        group = min(readers, key=readers.__getitem__)
        return _noted(self._behind(queue, readers[group]), group, self.slowest)

    def _readers(self, key: QueueKey) -> dict[str, int]:
        if key[0] in COUNTED_APART:
            return {}
        readers = {known.group: known.offset or 0 for known in self._groups.progress(key)}
        for group, offset in self._popped.get(key, {}).items():
            readers[group] = min(offset, readers.get(group, offset))
        if not readers and not is_broker_topic(key[0]):
            readers = dict.fromkeys(self._groups.without_topic, 0)
        return readers

    def _behind(self, queue: UnitQueue, offset: int) -> Counts:
        counts = self._nothing()
        for places, sizes in self._units_from(queue, offset):
            numbers = np.searchsorted(self._borders, places, side="right") - 1
            inside = (numbers >= 0) & (numbers < len(counts))
            np.add.at(counts, numbers[inside], sizes[inside])
        return counts

    def _units_from(self, queue: UnitQueue, offset: int) -> Iterator[tuple[Numbers, Numbers]]:
        """Yield (physical offsets of units, number of messages of each) from `offset` on.

        Units after the end of the log files may be left out.
        """
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
        """Return the queue offset of the first message to count in a queue.

        It is at or after `offset`, and in the log files; None if there is none.
        """
        if not queue.queue.files:
            return None
        unit = queue.find(offset)
        if unit is None or unit.is_pre_blank or unit.physical_offset < self._borders[0]:
            unit = queue.first_where(lambda unit: unit.physical_offset >= int(self._borders[0]))
        if unit is None or unit.physical_offset >= self._borders[-1] or unit.queue_offset + unit.batch_size <= offset:
            return None
        return unit.queue_offset

    def _undecided(self, key: QueueKey, queue: UnitQueue) -> Counts:
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
        return {
            (known.topic, known.queue_id): known.offset
            for known in consumer_offsets(self._store)
            if known.owner == TRANS_GROUP
        }

    def _decided(self, key: QueueKey, checked: dict[QueueKey, int]) -> set[int]:
        queue = self._store.queues.get(key)
        decided: set[int] = set()
        strange: int | None = None
        if queue is None:
            return decided
        for unit in queue.units(checked.get(key, 0), queue.max_offset):
            message = self._store.commit_log.message_at(unit.physical_offset)
            if message is None:
                continue
            body = op_message.decode(bytes(message.body))
            decided.update(body.half_offsets)
            if strange is None and not body.is_whole:
                strange = unit.queue_offset
        if strange is not None:
            self.problems.append(
                f"queue {key[0]} {key[1]}: the op message at queue offset {strange} names what is no queue offset"
            )
        return decided

    def _nothing(self) -> Counts:
        return np.zeros(max(len(self._borders) - 1, 0), dtype=np.int64)


def _noted(counts: Counts, name: str, totals: dict[str, int]) -> Counts:
    count = int(counts.sum())
    if count:
        totals[name] = totals.get(name, 0) + count
    return counts
