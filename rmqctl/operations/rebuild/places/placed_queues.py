"""Queues whose messages do not simply follow one another.

`rmqctl.operations.rebuild.places.place` has the rule. A first pass over the log finds these queues (`QueueBuilder`), a
second pass collects their messages here, in a temporary file. `build` places the messages of one queue after the other,
and fills the places that stay empty between them:

- with the existing unit, if it leads between the two messages: to damage, or to a record that a flipped bit keeps from
  its queue (`strays.py`);
- else with the unit of the next message. A broker would end the queue at an empty place, and a unit that leads nowhere
  makes it skip the rest of the file. Consumers must always be able to handle a repeated message.

Places before the first message are filled where lost messages explain them, or existing units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqctl.format.columns import UNITS, row_type
from rmqctl.format.cq_unit import CQ_UNIT, PLACES_MAX
from rmqctl.format.message import MIN_SIZE
from rmqctl.kernels.dispatch_scan import DELAYED, IS_PLACEHOLDER, MULTI_DISPATCH
from rmqctl.logfile.memory.mapped_memory import Spool
from rmqctl.operations.rebuild.built_queue import QueueCounts, blocks_of, is_unit, without_addresses
from rmqctl.operations.rebuild.places.place import Room, Run, in_order, place
from rmqctl.store.config.topics import SCHEDULE_TOPIC
from rmqctl.store.dispatch.units import have_units
from rmqctl.store.read.consume_queue import ConsumeQueue
from rmqctl.store.read.store_file_sizes import geometry_of_store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from rmqctl.format.columns import Flags, Numbers, Row, Rows
    from rmqctl.format.message import Blank, Damage
    from rmqctl.operations.rebuild.built_queue import BuiltQueue
    from rmqctl.operations.rebuild.repaired_log import RepairedLog
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns
    from rmqctl.store.read.file_scan import RecordRun

BLOCK = 16384  # units
NO_NUMBER, DROPPED = -(2**32), -(2**33)
# a message of the queue, in log order; `kind` is 0 for the queue's own messages, else LIGHT or EXCLUDED
MESSAGES = row_type("i8 physical_offset queue_offset tags_code store_timestamp", "i4 size traits kind")
LIGHT, EXCLUDED = 1, 2  # named in INNER_MULTI_DISPATCH; the same, of a topic that later versions leave out


class PlacedQueues:
    """Collects the messages of the queues `keys`, and builds these queues.

    With `leaves_topics_out`, the broker may leave topics out of light queues. Methods raise OSError.
    """

    def __init__(self, log: RepairedLog, keys: Collection[QueueKey], *, leaves_topics_out: bool) -> None:
        self._log = log
        self._before = log.store
        self._units_a_file = max(geometry_of_store(log.store).consumequeue_file_size // CQ_UNIT.size, 1)
        self._keys = log.builder.keys
        self._portions: dict[QueueKey, list[slice]] = {key: [] for key in keys}
        self._spool = Spool()
        self._is_wanted = np.zeros(0, np.bool_)
        self._leaves_topics_out = leaves_topics_out

    @property
    def keys(self) -> Collection[QueueKey]:
        """The queues whose messages are collected."""
        return self._portions.keys()

    def put(self, item: Blank | Damage | RecordRun) -> None:
        """Collect the messages of the next item of the log."""
        for described in self._log.described(item):
            self._put(described)

    def _put(self, described: DispatchColumns) -> None:
        added = [key in self._portions for key in self._keys[len(self._is_wanted) :]]
        self._is_wanted = np.concatenate((self._is_wanted, np.array(added, np.bool_)))
        rows = described.messages[have_units(described.messages)]
        own = rows[self._is_wanted[rows["queue"]]]
        own = own[np.argsort(own["queue"], kind="stable")]
        for part in np.split(own, np.flatnonzero(np.diff(own["queue"])) + 1) if len(own) else ():
            self._keep(part)
        for at in rows["physical_offset"][rows["traits"] & MULTI_DISPATCH != 0].tolist():
            for row, is_left_out in self._log.light_rows(at, lambda number: self._keys[number] in self._portions):
                self._keep(row, EXCLUDED if is_left_out else LIGHT)

    def build(self, open_queue: Callable[[QueueCounts], BuiltQueue]) -> Iterator[BuiltQueue]:
        """Yield the built queues; `open_queue` returns the receiver of a queue's units."""
        for key, rows in self._spool.gathered(self._portions).items():
            messages = np.frombuffer(rows, MESSAGES)
            if messages["kind"].any():  # they were kept behind the queue's own messages of the same batch
                messages = messages[np.argsort(messages["physical_offset"], kind="stable")]
            if queue := self._build(key, messages, open_queue):
                yield queue

    def _keep(self, rows: Rows, kind: int = 0) -> None:
        topic, queue_id = key = self._keys[rows[0]["queue"]]
        messages = np.zeros(len(rows), MESSAGES)
        for name in ("physical_offset", "queue_offset", "tags_code", "store_timestamp", "size", "traits"):
            messages[name] = rows[name]
        messages["kind"] = kind
        if topic == SCHEDULE_TOPIC:
            delayed = messages["traits"] & DELAYED != 0
            messages["tags_code"][delayed] = messages["store_timestamp"][delayed] + self._log.delay_of(queue_id)
        self._portions[key].append(self._spool.put(messages.tobytes()))

    def _build(
        self, key: QueueKey, messages: Rows, open_queue: Callable[[QueueCounts], BuiltQueue]
    ) -> BuiltQueue | None:
        numbers, dropped = messages["queue_offset"], messages[:0]
        if messages["kind"].any():
            numbers = self._light_numbers(messages, in_order(self._units(key, messages)[0]))
            dropped = messages[(numbers == DROPPED) & (messages["kind"] != EXCLUDED)]
            messages, numbers = messages[numbers != DROPPED], numbers[numbers != DROPPED]
        numbers = np.where((numbers >= 0) & (numbers < PLACES_MAX), numbers, NO_NUMBER)

        def room(before: int, message: int) -> Room:
            start, end = _end_of(messages[before]), int(messages[message]["physical_offset"])
            end = max(start, end)  # files of the log may overlap
            return Room((end - start) // MIN_SIZE, self._log.lost.between(start, end) // MIN_SIZE)

        units, into_damage = self._units(key, messages)
        placed = place(_runs(numbers), units, into_damage, room)
        if not placed:
            return None
        front = self._front(key, placed[0], messages)
        queue = open_queue(QueueCounts(*key, min_offset=front, max_offset=front))
        self._count(queue.counts, messages, numbers, placed)
        queue.counts.count_duplicates(dropped)
        behind, offsets = self._log.range.start, np.sort(messages["physical_offset"])
        for run in placed:
            self._fill(queue, messages[run.message], run.place, behind, offsets)
            for at in range(run.message, run.message_end, BLOCK):
                part = messages[at : min(at + BLOCK, run.message_end)]
                queue.put(_units_of(part), part["store_timestamp"])
            behind = _end_of(messages[run.message_end - 1])
        return queue

    def _units(self, key: QueueKey, messages: Rows) -> tuple[list[Run], list[range]]:
        order = np.argsort(messages["physical_offset"], kind="stable")  # files of the log may overlap
        offsets = messages["physical_offset"][order]
        runs: list[Run] = []
        into_damage: list[range] = []
        before = self._before.queues.get(key)
        for slot, units in blocks_of(before, 0, PLACES_MAX):
            used, leads = is_unit(units), _lead_to(units, offsets)
            places = np.flatnonzero(leads)
            runs += _runs(slot + places, order[offsets.searchsorted(units["physicalOffset"][places])])
            lost = np.flatnonzero(used & ~leads & self._log.lost.are_in(units["physicalOffset"]))
            into_damage += (range(run.place, run.end) for run in _runs(slot + lost))
        return runs, into_damage

    def _light_numbers(self, messages: Rows, units: Sequence[Run]) -> Numbers:
        """Return the places that dispatch gives a light queue's messages.

        A message with a higher number than the queue's next goes to the queue's end, unless lost messages explain the
        number. DROPPED are messages that dispatch leaves out.
        """
        numbers = messages["queue_offset"].copy()
        places = _places(units, len(messages))
        last_served = units[-1].message_end if units else 0
        if len(numbers) > 2 and places[0] < 0 < numbers[1] == numbers[2] - 1:
            numbers[0] = numbers[1] - 1  # one damaged number moves no other message
        end = behind = 0
        for at, message in enumerate(messages):
            number, is_left_out = int(numbers[at]), message["kind"] == EXCLUDED
            lost = self._log.lost.between(behind, int(message["physical_offset"])) // MIN_SIZE
            if places[at] >= 0:
                number = int(places[at])
            elif message["kind"] and (
                (is_left_out and self._leaves_topics_out and (at < last_served or not behind))
                or (number < end and (number > 0 or is_left_out))  # as `gets_no_unit`
            ):
                numbers[at] = DROPPED
                continue
            elif message["kind"] and (number == 0 or (behind and number - end > lost)):
                number = end
            numbers[at], end, behind = number, max(end, number + 1), _end_of(message)
        return numbers

    def _front(self, key: QueueKey, first: Run, messages: Rows) -> int:
        """Return the place at which a queue begins.

        It is before the first message's place if lost messages, or units that lead between the log's begin and the
        message, explain the places before. If the log begins at physical offset 0, no queue file begins with
        pre-blanks: a pre-blank leads to physical offset 0, so a broker would begin there, and skip the queue file.
        """
        before, begin = self._before.queues.get(key), self._log.range.start
        behind, front = int(messages[first.message]["physical_offset"]), first.place if begin else 0
        if begin and isinstance(before, ConsumeQueue):
            front = min(before.min_offset(begin), first.place)
        known = sum(
            int(np.count_nonzero(_lie_between(old, begin, behind) | (old["physicalOffset"] == behind)))
            for _, old in blocks_of(before, front, first.place)
        )
        places, lost = first.place - front, self._log.lost.between(begin, behind)
        confirmed = (not begin and first.length > 1) or (places - known) * MIN_SIZE <= lost
        if confirmed and places * MIN_SIZE <= behind - begin:
            return front
        return first.place if begin else first.place - first.place % self._units_a_file

    def _fill(self, queue: BuiltQueue, message: Row, end: int, behind: int, offsets: Numbers) -> None:
        """Fill the places up to `end`, before a message.

        Before these places, the queue's messages end at the physical offset `behind`. `offsets` has all its messages.
        """
        counts = queue.counts
        key, at_message = counts.key, int(message["physical_offset"])
        for at in range(counts.max_offset, end, BLOCK):
            units = np.repeat(_units_of(np.array([message])), min(BLOCK, end - at))
            for slot, old in blocks_of(self._before.queues.get(key), at, at + len(units)):
                kept = _lie_between(old, behind, at_message) & ~_lead_to(old, offsets)
                found = without_addresses(old[kept], self._before.extensions.get(key), unknown=0)
                units[slot - at :][: len(old)][kept] = found
                counts.kept += int(np.count_nonzero(kept))
                counts.strays += int(np.count_nonzero(~self._log.lost.are_in(old["physicalOffset"][kept])))
            counts.repeated += int(np.count_nonzero(units["physicalOffset"] == at_message))
            queue.put(units, np.full(len(units), message["store_timestamp"]))

    def _count(self, counts: QueueCounts, messages: Rows, numbers: Numbers, placed: Sequence[Run]) -> None:
        # messages before a new begin of the queue are counted apart
        places = _places(placed, len(messages))
        unplaced = places < 0
        misnumbered = ~unplaced & (messages["queue_offset"] != places) & (messages["kind"] == 0)
        counts.misnumbered = int(np.count_nonzero(misnumbered))
        begins = np.flatnonzero((numbers[:-1] == 0) & (numbers[1:] == 1) & ~unplaced[:-1])
        if len(begins) and begins[-1] > 0:
            earlier = messages[: begins[-1]][unplaced[: begins[-1]]]
            counts.anew = int(np.count_nonzero(numbers[1:] == 0))
            if not isinstance(self._before.queues.get(counts.key), ConsumeQueue):
                counts.earlier, counts.earlier_bytes = len(earlier), int(earlier["size"].sum(dtype=np.int64))
            unplaced[: begins[-1]] = False
        counts.count_duplicates(messages[unplaced & (messages["traits"] & IS_PLACEHOLDER == 0)])


def _places(runs: Sequence[Run], count: int) -> Numbers:
    """Return the place of each of `count` messages, or -1 if no run has it."""
    places = np.full(count, -1)
    for run in runs:
        places[run.message : run.message_end] = np.arange(run.place, run.end)
    return places


def _runs(places: Numbers, messages: Numbers | None = None) -> list[Run]:
    """Return the runs of places and messages (None: all) that both increase by one."""
    messages = np.arange(len(places)) if messages is None else messages
    if not len(places):
        return []
    breaks = np.flatnonzero((np.diff(places) != 1) | (np.diff(messages) != 1)) + 1
    starts = np.concatenate(([0], breaks))
    counts = np.diff(np.concatenate((starts, [len(places)])))
    return [Run(*run) for run in zip(places[starts].tolist(), messages[starts].tolist(), counts.tolist(), strict=True)]


def _units_of(messages: Rows) -> Rows:
    units = np.empty(len(messages), UNITS)
    units["physicalOffset"], units["size"] = messages["physical_offset"], messages["size"]
    units["tagsCode"] = messages["tags_code"]
    return units


def _lie_between(units: Rows, start: int, end: int) -> Flags:
    offsets = units["physicalOffset"]
    found: Flags = is_unit(units) & (offsets >= start) & (offsets.astype(np.int64) + units["size"] <= end)
    return found


def _lead_to(units: Rows, offsets: Numbers) -> Flags:
    """Return which units lead to one of the physical offsets, which ascend."""
    if not len(offsets):
        return np.zeros(len(units), np.bool_)
    found = np.minimum(offsets.searchsorted(units["physicalOffset"]), len(offsets) - 1)
    leads: Flags = is_unit(units) & (offsets[found] == units["physicalOffset"])
    return leads


def _end_of(message: Row) -> int:
    return int(message["physical_offset"]) + int(message["size"])
