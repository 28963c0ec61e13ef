"""Consume queues built from the log, if their messages follow one another.

`QueueBuilder` puts units in memory, in a window for each queue, and then writes many units at once. A queue with a
message that has another number is disordered: `rmqctl.operations.rebuild.places.placed_queues` builds it, from all its
messages. So is a queue whose existing units lead to messages of the log at other places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import CQ_UNIT, PLACES_MAX
from rmqctl.kernels.cq_unit_build import DISORDERED, DONE, LEFT_OUT, MULTI, PLACE_STATES, PLAIN, UNKNOWN, place
from rmqctl.operations.rebuild.built_queue import BuiltQueue, QueueCounts, close_built, count_leading
from rmqctl.store.config.topics import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rmqctl.format.columns import Rows
    from rmqctl.operations.rebuild.repaired_log import RepairedLog
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns

WINDOW_MAX, WINDOW_MIN = 16384, 16  # units
WINDOWS_FIRST = 16
POOL_SIZE = 16 * 1024 * 1024  # bytes of all windows, if WINDOW_MIN allows it
_ROOM_OF_UNIT = CQ_UNIT.size + 8  # the unit and its message's store time


class QueueBuilder:
    """Builds the queues for which `builds` returns True.

    `open_queue` returns the receiver of a queue's units. The windows of all queues need 16 MiB, or more for over 37,000
    queues. Methods raise OSError.
    """

    def __init__(
        self, log: RepairedLog, builds: Callable[[QueueKey], bool], open_queue: Callable[[QueueCounts], BuiltQueue]
    ) -> None:
        self.queues: dict[QueueKey, BuiltQueue] = {}
        self.left_out: dict[str, int] = {}
        self._log = log
        self._keys = log.builder.keys
        self._builds = builds
        self._open_queue = open_queue
        self._states = np.zeros(0, PLACE_STATES)
        self._rows_used = 0
        self._make_windows(max(WINDOWS_FIRST, len(log.store.queues)))

    def put(self, described: DispatchColumns) -> None:
        """Add units for the next messages of the log, in log order."""
        self._place(described.messages)
        self._count_left_out(described.messages)

    def flush(self) -> None:
        """Pass the units in the windows to the receivers of the queues."""
        for number in np.flatnonzero(self._states["fill"]).tolist():
            self._flush(number)

    def disordered(self) -> list[QueueKey]:
        """Return the queues that are not built here."""
        return [self._keys[number] for number in np.flatnonzero(self._states["kind"] == DISORDERED).tolist()]

    def disorder_moved(self) -> None:
        """Build no queue whose existing units lead to its messages at other places.

        All messages of the log must have been put.
        """
        for key, queue in list(self.queues.items()):
            counts, before = queue.counts, self._log.store.queues.get(key)
            beside = range(counts.min_offset), range(counts.max_offset, PLACES_MAX)
            if counts.moved or count_leading(before, self._log.range, *beside):
                self._disorder(self._number(key))

    def disorder(self, keys: Iterable[QueueKey]) -> None:
        """Build no more units of these queues."""
        for key in keys:
            self._disorder(self._number(key))

    def go_on_with(self, queue: BuiltQueue) -> None:
        """Continue a queue of an interrupted rebuild."""
        self._begin(self._number(queue.counts.key), queue)

    def _number(self, key: QueueKey) -> int:
        number = self._log.builder.number(key[0].encode(), key[1])
        self._know_queues()
        return number

    def _disorder(self, number: int) -> None:
        queue = self.queues.pop(self._keys[number], None)
        if queue is not None:
            close_built(queue)
        self._states[number]["kind"], self._states[number]["fill"] = DISORDERED, 0

    def _place(self, messages: Rows) -> None:
        self._know_queues()
        row = 0
        while row < len(messages):
            row, why = place(messages, row, self._states, self._units, self._times, self._window)
            if why == MULTI:
                self._place_multi_dispatch(int(messages[row - 1]["physical_offset"]))
            elif why != DONE:
                self._decide(int(messages[row]["queue"]), int(messages[row]["queue_offset"]))

    def _place_multi_dispatch(self, physical_offset: int) -> None:
        for row, is_left_out in self._log.light_rows(physical_offset, self._is_open):
            number = int(row[0]["queue"])
            if is_left_out and self._builds(self._keys[number]):
                self._disorder(number)  # the existing units show whether the broker leaves it out
            else:
                self._place(row)

    def _is_open(self, number: int) -> bool:
        self._know_queues()
        return self._states[number]["kind"] in (UNKNOWN, PLAIN)

    def _decide(self, number: int, offset: int) -> None:
        """Let `place` go on after it stopped before a message of queue `number`."""
        state, key = self._states[number], self._keys[number]
        if state["kind"] == UNKNOWN and not self._builds(key):
            state["kind"] = LEFT_OUT
        elif state["kind"] == UNKNOWN and 0 <= offset < PLACES_MAX and (not offset or self._log.range.start):
            self._begin(number, self._open_queue(QueueCounts(*key, min_offset=offset, max_offset=offset)))
        elif state["kind"] == PLAIN and offset == state["next"]:
            self._flush(number)
        else:
            self._disorder(number)

    def _begin(self, number: int, queue: BuiltQueue) -> None:
        topic, queue_id = key = queue.counts.key
        state = self._states[number]
        if state["kind"] == UNKNOWN:
            if self._rows_used == len(self._times) // self._window:
                self.flush()
                self._make_windows(2 * self._rows_used)
            state["row"] = self._rows_used
            self._rows_used += 1
        state["kind"], state["next"], state["fill"] = PLAIN, queue.counts.max_offset, 0
        state["delay"] = self._log.delay_of(queue_id) if topic == SCHEDULE_TOPIC else -1
        self.queues[key] = queue

    def _flush(self, number: int) -> None:
        state = self._states[number]
        fill, first = int(state["fill"]), int(state["row"]) * self._window
        if fill:
            units = self._units[first * CQ_UNIT.size :][: fill * CQ_UNIT.size].view(UNITS)
            self.queues[self._keys[number]].put(units, self._times[first : first + fill])
            state["fill"] = 0

    def _make_windows(self, rows: int) -> None:
        self._window = min(max(POOL_SIZE // (rows * _ROOM_OF_UNIT), WINDOW_MIN), WINDOW_MAX)
        self._units = np.zeros(rows * self._window * CQ_UNIT.size, np.uint8)
        self._times = np.zeros(rows * self._window, np.int64)

    def _know_queues(self) -> None:
        new = len(self._keys) - len(self._states)
        if new > 0:  # twice as many, since queues may come one by one
            self._states = np.concatenate((self._states, np.zeros(max(new, len(self._states)), PLACE_STATES)))

    def _count_left_out(self, messages: Rows) -> None:
        left_out = self._states["kind"] == LEFT_OUT
        if left_out.any():
            numbers, counts = np.unique(messages["queue"][left_out[messages["queue"]]], return_counts=True)
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
                topic = self._keys[number][0]
                self.left_out[topic] = self.left_out.get(topic, 0) + count
