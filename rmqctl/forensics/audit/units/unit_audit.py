"""Find, in each queue, the units that messages of the log confirm.

A window has successive units of a queue, and is compared with many messages in one step.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.format.cq_unit import CQ_UNIT, CqUnit
from rmqctl.kernels.cq_unit_compare import IGNORED, PLAIN, QUEUE_STATES, RUNS, match
from rmqctl.store.config.topics import SCHEDULE_TOPIC
from rmqctl.store.read.consume_queue import ScannedEnd

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.format.columns import Numbers, Rows
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consume_queue import ConsumeQueue

POOL_SIZE = 16 * 1024 * 1024
WINDOW_MIN, WINDOW_MAX = 16, 16384
_UNITS_FIRST = 256  # many queues have few messages, or only a few that no task has confirmed


class QueueCursor:
    """The units of one queue.

    A unit is confirmed if the log has its message. Confirmed units are kept as runs [start, end) of queue offsets. If
    `max_offset` is None, it becomes the queue offset after the last unit in use, by a scan of the last files. From the
    queue offset `data_end` on, the queue has only zeros, or no slot.
    """

    __slots__ = ("_last_part", "_runs", "data_end", "first", "max_offset", "queue")

    def __init__(self, queue: ConsumeQueue, max_offset: int | None = None) -> None:
        self.queue = queue
        scanned = ScannedEnd(max_offset, queue.slots_end) if max_offset is not None else queue.end_by_scan()
        self.max_offset, self.data_end = scanned
        self.first = queue.first_offset
        self._runs: list[tuple[int, int]] = []
        self._last_part: tuple[int, int] | None = None

    def unit(self, queue_offset: int) -> CqUnit | None:
        """Return the unit at a queue offset, or None if there is none.

        Raises OSError.
        """
        return self.queue.find(queue_offset) if self.first <= queue_offset < self.max_offset else None

    def first_reaching(self, physical_offset: int) -> CqUnit | None:
        """Return the first unit that points to `physical_offset` (bytes) or later.

        Raises OSError.
        """
        slots = range(self.first, self.max_offset)
        at = bisect_left(slots, True, key=lambda slot: self._reaches(slot, physical_offset))
        return self.unit(slots[at]) if at < len(slots) else None

    def _reaches(self, queue_offset: int, physical_offset: int) -> bool:
        unit = self.unit(queue_offset)
        return unit is not None and not unit.is_pre_blank and unit.physical_offset >= physical_offset

    def confirm(self, queue_offset: int) -> None:
        """Remember that the log has the message of a unit, in log order."""
        start = queue_offset
        if self._runs and self._runs[-1][1] == start:
            start = self._runs.pop()[0]
        self._runs.append((start, queue_offset + 1))

    def confirm_run(self, start: int, end: int) -> None:
        """Remember that the log has the messages of the units [start, end).

        Units after `end` may already be confirmed.
        """
        self._runs.append((start, end))

    def confirm_part(self, start: int, end: int, *, is_only_run: bool) -> None:
        """Remember that a part of the log has the messages of the units [start, end).

        Parts come in log order. With `is_only_run`, this part has no other run of the queue: then the run joins that of
        the part before, if it continues it and nothing was confirmed in between.
        """
        run = (start, end)
        if is_only_run and self._runs and self._runs[-1] is self._last_part and self._runs[-1][1] == start:
            run = (self._runs.pop()[0], end)
        self._runs.append(run)
        self._last_part = run

    def confirmed(self) -> list[tuple[int, int]]:
        """Return the queue offsets of confirmed units as runs [start, end), ascending.

        In each run, the physical offsets ascend, too.
        """
        runs: list[tuple[int, int]] = []
        for start, end in sorted(self._runs):
            if runs and start < runs[-1][1]:
                runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
            else:
                runs.append((start, end))
        return runs


class UnitAudit:
    """Compares messages with units, and returns verdicts.

    `kind_of` returns how the units of a queue are compared with messages. `on_error` is called with each queue that
    cannot be read. The windows need at most 16 MiB for up to 50,000 queues, and 320 bytes for each queue with more.
    Each run of confirmed units needs additional memory.
    """

    def __init__(
        self,
        cursors: dict[QueueKey, QueueCursor],
        kind_of: Callable[[QueueKey], int],
        on_error: Callable[[QueueKey, OSError], None],
    ) -> None:
        self._cursors = cursors
        self._kind_of = kind_of
        self._on_error = on_error
        self._keys: list[QueueKey] = []
        self._states = np.zeros(0, QUEUE_STATES)
        window = POOL_SIZE // CQ_UNIT.size // max(len(cursors), 1)
        longest = max((cursor.max_offset - cursor.first for cursor in cursors.values()), default=0)
        self._window = max(min(max(window, WINDOW_MIN), WINDOW_MAX, longest), 1)
        # not zeroed: no byte of a window is read before it is filled
        self._pool = np.empty((len(cursors), self._window * CQ_UNIT.size), np.uint8)
        self._rows_used = 0
        self._next_lengths: dict[int, int] = {}  # units of the next window, by the number of the queue

    def know(self, keys: list[QueueKey]) -> None:
        """Add the new queues in `keys`.

        `keys` must begin with those of the previous call: a queue's number is its index.
        """
        new = keys[len(self._keys) :]
        if not new:
            return
        kinds = [self._kind_of(key) for key in new]
        plain = [(at, self._cursors[key]) for at, key in enumerate(new) if kinds[at] == PLAIN and key in self._cursors]
        states = np.zeros(len(new), QUEUE_STATES)
        states["kind"] = kinds
        states["scheduled"] = [key[0] == SCHEDULE_TOPIC for key in new]
        places = np.array([at for at, _ in plain], np.int64)
        states["row"][places] = np.arange(self._rows_used, self._rows_used + len(plain))
        states["first"][places] = [cursor.first for _, cursor in plain]
        states["end"][places] = [cursor.max_offset for _, cursor in plain]
        self._rows_used += len(plain)
        missing = self._rows_used - len(self._pool)
        if missing > 0:  # several topics that are not UTF-8 can have the name of one queue
            self._pool = np.concatenate((self._pool, np.empty((missing, self._pool.shape[1]), np.uint8)))
        self._keys += new
        self._states = np.concatenate((self._states, states))
        self._fill_windows(len(self._keys) - len(new), plain)

    def _fill_windows(self, first: int, plain: list[tuple[int, QueueCursor]]) -> None:
        """Fill the windows of new queues from units that are already in memory.

        `plain` has the queue's number minus `first`, and its cursor. Such a window never moves: it has all units of the
        queue.
        """
        width = self._pool.shape[1]
        contents = ((at, cursor.queue.queue.small_content) for at, cursor in plain)
        small = [(first + at, content) for at, content in contents if content is not None and len(content) <= width]
        if not small:
            return
        filled = np.array([number for number, _ in small])
        longest = -(-max(len(content) for _, content in small) // CQ_UNIT.size) * CQ_UNIT.size
        units = b"".join([content.ljust(longest, b"\0") for _, content in small])
        self._pool[self._states["row"][filled], :longest] = np.frombuffer(units, np.uint8).reshape(len(small), longest)
        self._states["window_start"][filled] = self._states["first"][filled]
        self._states["window_end"][filled] = self._states["end"][filled]

    def verdicts(self, messages: Rows) -> Numbers:
        """Return a verdict for each message (`rmqctl.kernels.cq_unit_compare`), uint8."""
        verdicts = np.empty(len(messages), np.uint8)
        runs = np.empty(len(messages) + 1, RUNS)
        reached, used = 0, 0
        while reached < len(messages):
            reached, used = match(messages, reached, self._states, self._pool, verdicts, runs, used)
            if reached < len(messages):
                self._move_window(int(messages[reached]["queue"]), int(messages[reached]["queue_offset"]))
        for queue, start, end in runs[:used].tolist():
            self._confirm(queue, start, end)
        return verdicts

    def is_seen(self, number: int, physical_offset: int) -> bool:
        """Return whether the log has a message of this queue before `physical_offset`.

        The first call for a queue records `physical_offset` as that of its first message.
        """
        state = self._states[number]
        if not state["seen"]:
            state["seen"], state["first_seen"] = 1, physical_offset
        return bool(state["first_seen"] < physical_offset)

    def finish(self) -> None:
        """Confirm the units for the last messages of each queue."""
        for number, (start, end) in enumerate(
            zip(self._states["run_start"].tolist(), self._states["run_end"].tolist(), strict=True)
        ):
            if end > start:
                self._confirm(number, start, end)

    def _confirm(self, number: int, start: int, end: int) -> None:
        cursor = self._cursors.get(self._keys[number])
        if cursor is not None:
            cursor.confirm_run(start, end)

    def _move_window(self, number: int, queue_offset: int) -> None:
        # if no queue file has a unit, the window has zeros in its place
        state = self._states[number]
        key = self._keys[number]
        cursor = self._cursors.get(key)
        length = self._next_lengths.get(number, min(_UNITS_FIRST, self._window))
        self._next_lengths[number] = min(length * 8, self._window)
        end = min(queue_offset + length, int(state["end"]))
        row = self._pool[state["row"]][: (end - queue_offset) * CQ_UNIT.size]
        row[:] = 0
        try:
            if cursor is None:
                raise OSError(0, "the queue was given up")
            for start, data in cursor.queue.blocks(queue_offset, end):
                at = (start - queue_offset) * CQ_UNIT.size
                row[at : at + len(data)] = np.frombuffer(data, np.uint8)
        except OSError as error:
            if cursor is not None:
                self._on_error(key, error)
            state["kind"] = IGNORED
            return
        state["window_start"], state["window_end"] = queue_offset, end
