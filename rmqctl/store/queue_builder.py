"""Consume queues made anew from the log: whole stretches of messages become units in windows of their queues.

As a broker's dispatch, but for what the log cannot tell any more:

| a message's queue offset is | it gets |
|---|---|
| the next of its queue | that place |
| 0, and its queue has units | place 0: the topic was deleted and made again (1) |
| lower than the next | no place: as a broker ('build consume queue repeatedly') |
| higher, which something explains | its place; those before it are filled (2) |
| higher for no reason | the next place: as a broker ('[BUG]logic queue order maybe wrong') |

(1) Not where the queue that is there reaches beyond this message and begins with another: then this number is damaged.
(2) What the queue that is there has in between explains it, or damage of the log that is large enough. Places keep the unit that
the queue that is there has, or lead to this message once more.

A place whose message is lost never stays empty: a broker takes the first empty place for the queue's end, and a unit that leads
nowhere makes it leave out what lies behind in the same file. A message that is consumed twice is what consumers are ready for.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np

from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import CQ_UNIT, DELAY_UNIT_MS, is_ext_address
from rmqctl.format.dispatch_scan import DISPATCH_COLUMNS, MULTI_DISPATCH
from rmqctl.format.message import MIN_SIZE
from rmqctl.format.sys_flag import TRANSACTION_MASK, TransactionType
from rmqctl.format.unit_place import DONE, LEFT_OUT, MULTI, PLACE_STATES, PLAIN, UNKNOWN, place
from rmqctl.store.built_queue import BuiltQueue, QueueCounts, is_unit
from rmqctl.store.consume_queue import ConsumeQueue
from rmqctl.store.destinations import queue_destinations
from rmqctl.store.read_only_store import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.format.message import Message
    from rmqctl.store.consume_queue import UnitQueue
    from rmqctl.store.dispatch_columns import Describer, DispatchColumns
    from rmqctl.store.read_only_store import QueueKey, ReadOnlyStore

WINDOW_MAX, WINDOW_MIN = 16384, 16  # units
WINDOWS_FIRST = 16
POOL_SIZE = 64 * 1024 * 1024  # bytes of windows, as long as they need not be smaller than the least
FOLDER_NAME_MAX = 255  # bytes


class QueueBuilder:
    """Makes the queues that `is_wanted`; `open_queue` gives what their units go to, and is asked again where a queue begins anew.

    `before` is the store that is there, `delay_of` the delay in ms of each of SCHEDULE_TOPIC_XXXX's queues, `message_at` gives the message
    at a physical offset, by default that of the log. Memory: 64 MiB of
    windows, more only beyond 150,000 queues. Methods raise OSError.
    """

    def __init__(
        self,
        before: ReadOnlyStore,
        describer: Describer,
        is_wanted: Callable[[QueueKey], bool],
        open_queue: Callable[[QueueCounts], BuiltQueue],
        delay_of: Callable[[int], int],
        message_at: Callable[[int], Message | None] | None = None,
    ) -> None:
        self.queues: dict[QueueKey, BuiltQueue] = {}
        self.left_out: dict[str, int] = {}
        self._before = before
        self._describer = describer
        self._is_wanted = is_wanted
        self._open_queue = open_queue
        self._delay_of = delay_of
        self._message_at = message_at or before.commit_log.message_at
        self._keys: list[QueueKey] = []
        self._states = np.zeros(0, PLACE_STATES)
        self._rows_used = 0
        self._lost_from: list[int] = []
        self._lost_bytes = [0]  # in all ranges before the one of the same number
        self._make_windows(WINDOWS_FIRST, WINDOW_MAX)

    def put(self, described: DispatchColumns) -> None:
        """Messages of the log, in log order."""
        for row in described.messages[described.messages["sys_flag"] & TRANSACTION_MASK == TransactionType.ROLLBACK]:
            self.lose(int(row["physical_offset"]), int(row["size"]))  # of no queue: it may be what `recover --keep-going` filled a gap with
        self._place(described.messages)
        self._count_left_out(described.messages)

    def lose(self, physical_offset: int, size: int) -> None:
        """A range of the log that holds no record any more."""
        self._lost_from.append(physical_offset)
        self._lost_bytes.append(self._lost_bytes[-1] + size)

    @property
    def lost(self) -> list[tuple[int, int]]:
        """(physical offset, size) of the ranges that were told to `lose`."""
        return [(at, behind - before) for at, before, behind in zip(self._lost_from, self._lost_bytes, self._lost_bytes[1:], strict=False)]

    def is_lost(self, physical_offset: int) -> bool:
        """Whether an offset of the log lies in a range that holds no record any more."""
        at = bisect_right(self._lost_from, physical_offset) - 1
        return at >= 0 and physical_offset < self._lost_from[at] + self._lost_bytes[at + 1] - self._lost_bytes[at]

    def flush(self) -> None:
        """Hand out what is in windows."""
        for number in np.flatnonzero(self._states["fill"]).tolist():
            self._flush(number)

    def go_on_with(self, queue: BuiltQueue) -> None:
        """A queue that was begun before."""
        number = self._describer.number(queue.counts.topic.encode(), queue.counts.queue_id)
        self._know_queues()
        self._begin(number, queue)

    def _place(self, messages: Any) -> None:
        self._know_queues()
        row = 0
        while row < len(messages):
            row, why = place(messages, row, self._states, self._units, self._times, self._window)
            if why == MULTI:
                self._place_multi_dispatch(int(messages[row - 1]["physical_offset"]))
            elif why != DONE and self._settle(messages[row : row + 1]):
                row += 1

    def _place_multi_dispatch(self, physical_offset: int) -> None:
        """The units of LMQ that a message has besides its own."""
        message = self._message_at(physical_offset)
        for destination in queue_destinations(message)[1:] if message is not None else ():
            row = np.zeros(1, DISPATCH_COLUMNS)
            row["queue"] = self._describer.number(destination.topic.encode("utf-8", "replace"), destination.queue_id)
            row["queue_offset"], row["tags_code"] = destination.queue_offset, destination.tags_code
            row["physical_offset"], row["size"] = physical_offset, message.size if message is not None else 0
            row["store_timestamp"] = message.store_timestamp if message is not None else 0
            self._place(row)

    def _settle(self, row: Any) -> bool:
        """What `place` could not: whether the message of this one row is done with."""
        message = row[0]
        number, offset = int(message["queue"]), int(message["queue_offset"])
        state = self._states[number]
        key = self._keys[number]
        if state["kind"] == UNKNOWN:
            return not self._begin_with(number, offset) and state["kind"] != LEFT_OUT  # of a left out queue `place` goes on
        if offset == state["next"]:
            self._flush(number)
            return False
        self._flush(number)
        queue = self.queues[key]
        if offset == 0 and self._begins_anew(queue, int(message["physical_offset"])):
            anew = QueueCounts(*key, anew=queue.counts.anew + 1)
            queue.finish()
            self._begin(number, self._open_queue(anew))
        elif offset < state["next"]:
            queue.counts.again += 1
            if message["marks"] & MULTI_DISPATCH:
                self._place_multi_dispatch(int(message["physical_offset"]))
            return True
        elif self._fill(queue, message):
            state["next"] = offset
        else:
            queue.counts.misnumbered += 1
            corrected = row.copy()
            corrected["queue_offset"] = state["next"]
            self._place(corrected)
            return True
        return False

    def _begin_with(self, number: int, offset: int) -> bool:
        """Begin a queue with a place; False: it is none of those that are made, or that is no place."""
        key = self._keys[number]
        if offset < 0:
            return False
        if not _is_folder_name(key) or not self._is_wanted(key):
            self._states[number]["kind"] = LEFT_OUT
            return False
        self._begin(number, self._open_queue(QueueCounts(*key, min_offset=offset, max_offset=offset)))
        return True

    def _begin(self, number: int, queue: BuiltQueue) -> None:
        key = queue.counts.key
        state = self._states[number]
        if state["kind"] == UNKNOWN:
            if self._rows_used == len(self._times) // self._window:
                self.flush()
                rows = 2 * self._rows_used
                too_large = rows * self._window * (CQ_UNIT.size + 8) > POOL_SIZE
                self._make_windows(rows, max(self._window // 2, WINDOW_MIN) if too_large else self._window)
            state["row"] = self._rows_used
            self._rows_used += 1
        state["kind"], state["next"], state["fill"] = PLAIN, queue.counts.max_offset, 0
        state["delay"] = self._delay_of(key[1]) if key[0] == SCHEDULE_TOPIC else -1
        self.queues[key] = queue

    def _begins_anew(self, queue: BuiltQueue, physical_offset: int) -> bool:
        """Whether a message with queue offset 0 begins its queue anew; what is in a queue that reaches beyond it, can tell."""
        before = self._before.queues.get(queue.counts.key)
        if not isinstance(before, ConsumeQueue):
            return True
        first, last = before.find(0), before.last()
        return first is None or last is None or last.physical_offset < physical_offset or first.physical_offset == physical_offset

    def _fill(self, queue: BuiltQueue, message: Any) -> bool:
        """Fill the places before a message's own; False: nothing explains why its number is so high."""
        counts = queue.counts
        start, end, behind = counts.max_offset, int(message["queue_offset"]), int(message["physical_offset"])
        lost = self._lost_bytes[bisect_left(self._lost_from, behind)] - self._lost_bytes[bisect_left(self._lost_from, counts.end)]
        if (end - start) * MIN_SIZE > behind - counts.end:
            return False
        known = sum(int(np.count_nonzero(self._lies_between(old, counts.end, behind))) for _, old in queue.old_units(start, end))
        if (end - start - known) * MIN_SIZE > lost:
            return False
        size, front = self._window, counts.end
        for at in range(start, end, size):
            units = np.empty(min(size, end - at), UNITS)
            units["physicalOffset"], units["size"], units["tagsCode"] = behind, message["size"], message["tags_code"]
            for slot, old in queue.old_units(at, at + len(units)):
                kept = self._lies_between(old, front, behind)
                units[slot - at :][: len(old)][kept] = self._without_addresses(counts.key, old[kept])
                counts.kept += int(np.count_nonzero(kept))
            counts.repeated += int(np.count_nonzero(units["physicalOffset"] == behind))
            queue.put(units, np.full(len(units), message["store_timestamp"]))
        return True

    def _lies_between(self, units: Any, start: int, end: int) -> Any:
        """Which units stand for messages of [start, end) of the log."""
        offsets = units["physicalOffset"]
        return is_unit(units) & (offsets >= start) & (offsets.astype(np.int64) + units["size"] <= end)

    def _without_addresses(self, key: QueueKey, units: Any) -> Any:
        """Old units with tags codes where they have addresses of an extension, which is made anew."""
        found = units.copy()
        extension = self._before.extensions.get(key)
        for unit in found:
            if is_ext_address(int(unit["tagsCode"])):
                unit["tagsCode"] = (extension.tags_code(int(unit["tagsCode"])) if extension is not None else None) or 0
        return found

    def _flush(self, number: int) -> None:
        state = self._states[number]
        fill = int(state["fill"])
        key = self._keys[number]
        if fill:
            first = int(state["row"]) * self._window
            units = self._units[first * CQ_UNIT.size :][: fill * CQ_UNIT.size].view(UNITS)
            self.queues[key].put(units, self._times[first : first + fill])
            state["fill"] = 0

    def _make_windows(self, rows: int, window: int) -> None:
        self._window = window
        self._units = np.zeros(rows * window * CQ_UNIT.size, np.uint8)
        self._times = np.zeros(rows * window, np.int64)

    def _know_queues(self) -> None:
        new = self._describer.queues[len(self._keys) :]
        if new:
            self._keys += [(topic.decode("utf-8", "replace"), queue_id) for topic, queue_id in new]
            self._states = np.concatenate((self._states, np.zeros(len(new), PLACE_STATES)))

    def _count_left_out(self, messages: Any) -> None:
        left_out = self._states["kind"] == LEFT_OUT
        if left_out.any():
            numbers, counts = np.unique(messages["queue"][left_out[messages["queue"]]], return_counts=True)
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
                topic = self._keys[number][0]
                self.left_out[topic] = self.left_out.get(topic, 0) + count


def _is_folder_name(key: QueueKey) -> bool:
    """Whether a queue can be a folder: its topic comes from a message, and may be anything."""
    topic, queue_id = key
    is_name = topic not in ("", ".", "..") and not any(character in topic for character in "/\0\ufffd")
    return queue_id >= 0 and is_name and len(topic.encode()) <= FOLDER_NAME_MAX


def delays_of(store: ReadOnlyStore, configured: tuple[int, ...]) -> Callable[[int], int]:
    """The delay of each of SCHEDULE_TOPIC_XXXX's queues (its number is the level less 1): as its newest units have it, else as configured.

    What brokers were told is not in the store, but the units that they made show it. Raises OSError.
    """

    def delay_of(queue_id: int) -> int:
        shown = _shown_delay(store, store.queues.get((SCHEDULE_TOPIC, queue_id)))
        return configured[min(max(queue_id, 0), len(configured) - 1)] if shown is None else shown

    return delay_of


def _shown_delay(store: ReadOnlyStore, queue: UnitQueue | None) -> int | None:
    last = queue.last() if isinstance(queue, ConsumeQueue) else None
    message = store.commit_log.message_at(last.physical_offset) if last is not None else None
    if message is None or message.topic != SCHEDULE_TOPIC:
        return None
    delay = store.tags_code(message) - message.store_timestamp
    return delay if delay > 0 and delay % DELAY_UNIT_MS == 0 else None
