"""Consume queues rebuilt from the log.

`QueueBuilder` places units in memory, in a window for each queue, and then writes many units at once. This table shows
the place of each message:

| the queue offset of a message is | the message gets |
|---|---|
| the next number of the queue | the place with this number |
| another number, but later messages fit the next number | the next place: the number in the record is damaged (3) |
| 0, and the queue has units | place 0: the topic was deleted and created again (1) |
| lower than the next number | no place, as from a broker ('build consume queue repeatedly') |
| higher, with a reason or with later messages that fit | the place with this number; empty places are filled (2) |
| higher without a reason | the next place, as from a broker ('[BUG]logic queue order maybe wrong') |

(1) If the existing queue has another message at 0 and units of later messages, the QUEUEOFFSET 0 is damaged.

(2) If a queue offset is higher than the queue's next number, the places between the two numbers are empty. One accepted
reason is that the existing queue has units for the empty places. Another accepted reason is damage that is large enough
for the missing messages. An empty place gets the existing queue's unit at the same queue offset. If the existing queue
has no unit at the queue offset, the new unit points to the queue's next message.

(3) `rmqctl.operations.rebuild.queue_numbers` decides which QUEUEOFFSETs are damaged, and at which queue offset each
queue begins.

The place of a lost message never stays empty, because a broker would end the queue at the first empty place. The unit
at the place of a lost message always points to an existing message. A broker that meets a unit without a message skips
the rest of the queue file. If several units point to the same message, a broker delivers the message several times.
RocketMQ consumers must always be able to handle repeated messages.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import CQ_UNIT, DELAY_UNIT_MS, is_ext_address
from rmqctl.format.message import MIN_SIZE
from rmqctl.kernels.cq_unit_build import DONE, LEFT_OUT, MULTI, PLACE_STATES, PLAIN, UNKNOWN, place
from rmqctl.kernels.dispatch_scan import DISPATCH_COLUMNS, IS_PLACEHOLDER, MULTI_DISPATCH
from rmqctl.operations.rebuild.built_queue import BuiltQueue, QueueCounts, is_unit
from rmqctl.operations.rebuild.queue_numbers import (
    QueueNumbers,
    first_number,
    go_on,
    is_misnumbered,
    may_be_fillers,
)
from rmqctl.operations.rebuild.strays import is_stray
from rmqctl.store.config.topics import SCHEDULE_TOPIC
from rmqctl.store.dispatch.dispatch_rules import queue_destinations
from rmqctl.store.dispatch.light_queues import gets_no_unit, is_left_out_topic
from rmqctl.store.read.consume_queue import ConsumeQueue
from rmqctl.store.read.version_guess import signs_of_5

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rmqctl.format.columns import Flags, Numbers, Row, Rows
    from rmqctl.format.cq_unit import CqUnit
    from rmqctl.format.message import Message
    from rmqctl.operations.rebuild.queue_numbers import Following
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns, DispatchRequestBuilder
    from rmqctl.store.dispatch.dispatch_rules import DispatchTarget
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore

WINDOW_MAX, WINDOW_MIN = 16384, 16  # units
WINDOWS_FIRST = 16
POOL_SIZE = 16 * 1024 * 1024  # bytes of all windows, if WINDOW_MIN allows it
_ROOM_OF_UNIT = CQ_UNIT.size + 8  # the unit and its message's store time


class QueueBuilder:
    """Builds the queues for which `builds` returns True.

    `open_queue` returns the receiver of a queue's units. If a queue begins again at queue offset 0, `open_queue` is
    called again. `before` is the existing store. `delay_of` returns the delay (ms) of a queue of SCHEDULE_TOPIC_XXXX.
    `message_at` returns the message at a physical offset (default: the message in the log). `log_end` is the physical
    offset at which the log ends (None: the end of the log files). Each queue has a window in memory, in which units
    wait until they are written. The windows of all queues together need 16 MiB, or more if the store has more than
    37,000 queues. Methods raise OSError.
    """

    def __init__(
        self,
        before: ReadOnlyStore,
        builder: DispatchRequestBuilder,
        builds: Callable[[QueueKey], bool],
        open_queue: Callable[[QueueCounts], BuiltQueue],
        delay_of: Callable[[int], int],
        message_at: Callable[[int], Message | None] | None = None,
        log_end: int | None = None,
    ) -> None:
        self.queues: dict[QueueKey, BuiltQueue] = {}
        self.left_out: dict[str, int] = {}
        self._before = before
        self._log_begin = before.commit_log.min_offset
        self._log_end = before.commit_log.queue.end if log_end is None else log_end
        self._builder = builder
        self._builds = builds
        self._open_queue = open_queue
        self._delay_of = delay_of
        self._message_at = message_at or before.commit_log.message_at
        self._numbers = QueueNumbers(before.commit_log, log_end)
        self._leaves_topics_out = bool(signs_of_5(before))  # later versions of 5.x leave topics out of LMQ
        self._states = np.zeros(0, PLACE_STATES)
        self._rows_used = 0
        self._lost_from: list[int] = []
        self._lost_bytes = [0]  # total size of the ranges before the range with the same index
        rows = max(WINDOWS_FIRST, len(before.queues))
        self._make_windows(rows, min(max(POOL_SIZE // (rows * _ROOM_OF_UNIT), WINDOW_MIN), WINDOW_MAX))

    def put(self, described: DispatchColumns) -> None:
        """Add units for the next messages of the log. Messages must be in log order."""
        messages = described.messages
        for row in messages[may_be_fillers(messages)]:
            self.lose(int(row["physical_offset"]), int(row["size"]))
        self._place(messages)
        self._count_left_out(messages)

    def lose(self, physical_offset: int, size: int) -> None:
        """Record that messages may be lost in a range of the log."""
        self._lost_from.append(physical_offset)
        self._lost_bytes.append(self._lost_bytes[-1] + size)

    @property
    def lost(self) -> list[tuple[int, int]]:
        """Return the physical offset and size of each lost range of the log."""
        return [
            (at, behind - before)
            for at, before, behind in zip(self._lost_from, self._lost_bytes, self._lost_bytes[1:], strict=False)
        ]

    def is_lost(self, physical_offset: int) -> bool:
        """Return whether a physical offset is in a lost range of the log."""
        at = bisect_right(self._lost_from, physical_offset) - 1
        return at >= 0 and physical_offset < self._lost_from[at] + self._lost_bytes[at + 1] - self._lost_bytes[at]

    def _are_lost(self, physical_offsets: Numbers) -> Flags:
        """Return, for each physical offset, whether it is in a lost range of the log."""
        begins = np.array([-1, *self._lost_from], np.int64)
        ends = begins + np.concatenate(([0], np.diff(np.array(self._lost_bytes, np.int64))))
        return physical_offsets < ends[np.searchsorted(begins, physical_offsets, side="right") - 1]

    def flush(self) -> None:
        """Pass the units in the windows to the receivers of the queues."""
        for number in np.flatnonzero(self._states["fill"]).tolist():
            self._flush(number)

    def keep_strays(self) -> None:
        """Keep existing units of strays after the last unit of each queue.

        `_fill` keeps such a unit only before a message. Without the unit, brokers would no longer serve the stray.
        """
        for key, queue in self.queues.items():
            before = self._before.queues.get(key)
            while isinstance(before, ConsumeQueue) and self._keep_stray(queue, before):
                pass

    def _keep_stray(self, queue: BuiltQueue, before: ConsumeQueue) -> bool:
        """Keep the next unit of the existing queue if it points to a stray."""
        counts = queue.counts
        unit = before.find(counts.max_offset)
        stray = self.stray_of(counts.key, unit) if unit is not None and unit.physical_offset >= counts.end else None
        if unit is None or stray is None:
            return False
        units = np.array([(unit.physical_offset, unit.size, unit.tags_code)], UNITS)
        queue.put(self._without_addresses(counts.key, units), np.array([stray.store_timestamp], np.int64))
        counts.kept += 1
        counts.strays += 1
        return True

    def stray_of(self, key: QueueKey, unit: CqUnit) -> Message | None:
        """Return the stray that a unit of an existing queue points to, or None."""
        if unit.physical_offset + unit.size > self._log_end:
            return None
        found = self._message_at(unit.physical_offset)
        return found if found is not None and is_stray(self._before, key, unit, found) else None

    def go_on_with(self, queue: BuiltQueue) -> None:
        """Continue a queue of an interrupted rebuild."""
        number = self._builder.number(queue.counts.topic.encode(), queue.counts.queue_id)
        self._know_queues()
        self._begin(number, queue)

    def _place(self, messages: Rows, *, own: bool = True) -> None:
        """Place messages in their own queues, or in light queues if `own` is False."""
        self._know_queues()
        row = 0
        while row < len(messages):
            row, why = place(messages, row, self._states, self._units, self._times, self._window)
            if why == MULTI:
                self._place_multi_dispatch(int(messages[row - 1]["physical_offset"]))
            elif why != DONE and self._settle(messages, row, own=own):
                row += 1

    def _place_multi_dispatch(self, physical_offset: int) -> None:
        """Place units for one message in the light queues that the message names."""
        message = self._message_at(physical_offset)
        if message is None:
            return
        for target in queue_destinations(message)[1:]:
            number = self._builder.number(target.topic.encode("utf-8", "replace"), target.queue_id)
            self._know_queues()
            offset = self._light_place(number, target, message)
            if offset is None:
                continue
            row = np.zeros(1, DISPATCH_COLUMNS)
            row["queue"], row["queue_offset"], row["tags_code"] = (
                number,
                offset,
                self._light_tags_code(target, message),
            )
            row["physical_offset"], row["size"], row["store_timestamp"] = (
                physical_offset,
                message.size,
                message.store_timestamp,
            )
            self._place(row, own=False)

    def _light_place(self, number: int, target: DispatchTarget, message: Message) -> int | None:
        """Return a message's queue offset in a light queue, or None for no unit.

        The first choice is the number in INNER_MULTI_QUEUE_OFFSET, if the light queue continues with this number. The
        second choice is the queue offset at which the existing queue points to the message. The third choice is the
        queue offset that a broker's dispatch would give the message.
        """
        state = self._states[number]
        begun = state["kind"] == PLAIN
        if begun and target.queue_offset == state["next"] and not is_left_out_topic(message.topic):
            return target.queue_offset
        shown = self._shown_unit(target, message.physical_offset)
        if shown is not None and shown.physical_offset == message.physical_offset:
            if not begun or shown.queue_offset == 0 or shown.queue_offset >= state["next"]:
                return shown.queue_offset
        elif self._leaves_topics_out and is_left_out_topic(message.topic) and (shown is not None or not begun):
            return None
        if not begun:
            return self._first_light_place(target, message)
        if gets_no_unit(message.topic, target.queue_offset, int(state["next"])):
            if not is_left_out_topic(message.topic):
                self.queues[self._builder.keys[number]].counts.count_duplicate(message.physical_offset, message.size)
            return None
        return target.queue_offset or int(state["next"])

    def _first_light_place(self, target: DispatchTarget, message: Message) -> int:
        """Return the first queue offset of a light queue, from its messages.

        A single message with a wrong queue offset does not change the result.
        """
        found = target.queue_offset
        following = (
            self._numbers.following_in_light_queue((target.topic, target.queue_id), message.end) if found else []
        )
        return first_number(found, following, None)

    def _shown_unit(self, target: DispatchTarget, physical_offset: int) -> CqUnit | None:
        """Return the unit for a message in an existing light queue, or a later unit.

        If the queue has no unit for the message, the result is the first unit of a later message, or None.
        """
        before = self._before.queues.get((target.topic, target.queue_id))
        if not isinstance(before, ConsumeQueue):
            return None
        unit = before.find(target.queue_offset)
        if unit is not None and unit.physical_offset == physical_offset:
            return unit
        return before.first_where(lambda unit: unit.physical_offset >= physical_offset)

    def _light_tags_code(self, target: DispatchTarget, message: Message) -> int:
        if not target.scheduled:
            return target.tags_code
        return message.store_timestamp + self._delay_of(message.queue_id)

    def _settle(self, messages: Rows, row: int, *, own: bool) -> bool:
        """Handle a message that `place` cannot place; return True to skip the message."""
        message = messages[row]
        number, offset = int(message["queue"]), int(message["queue_offset"])
        state = self._states[number]
        key = self._builder.keys[number]
        if state["kind"] == UNKNOWN:
            return self._settle_first(messages, row, own=own)
        if offset == state["next"]:
            self._flush(number)
            return False
        self._flush(number)
        queue = self.queues[key]
        follows_refused = 0 <= queue.counts.last_duplicate == offset - 1  # both may come from another store
        if own and not follows_refused and self._is_misnumbered(messages, row, int(state["next"])):
            self._place_at(message, int(state["next"]))
            return True
        if offset == 0 and self._begins_anew(queue, int(message["physical_offset"])):
            anew = QueueCounts(*key, anew=queue.counts.anew + 1)
            if not isinstance(self._before.queues.get(key), ConsumeQueue):
                anew.earlier = queue.counts.units + queue.counts.unplaced
                anew.earlier_bytes = queue.counts.bytes + queue.counts.duplicate_bytes + queue.counts.earlier_bytes
            queue.finish()
            self._begin(number, self._open_queue(anew))
        elif offset < state["next"]:
            queue.counts.refuse(
                message, is_counted=not message["traits"] & IS_PLACEHOLDER
            )  # the message that a placeholder replaces already counts as lost
            if message["traits"] & MULTI_DISPATCH:
                self._place_multi_dispatch(int(message["physical_offset"]))
            return True
        elif self._fill(queue, message, offset, is_right=own and self._is_right(messages, row, int(state["next"]))):
            state["next"] = offset
        else:
            self._place_at(message, int(state["next"]))
            return True
        return False

    def _settle_first(self, messages: Rows, row: int, *, own: bool) -> bool:
        """Begin a queue with a message. Return True if `place` must skip the message."""
        number, offset = int(messages[row]["queue"]), int(messages[row]["queue_offset"])
        key = self._builder.keys[number]
        place = offset
        if own and self._builds(key) and not self._numbers.goes_on(messages, row, key):
            following = self._numbers.following(messages, row, key)
            place = first_number(offset, following, self._place_before(key, messages[row]))
        front = (
            self._front(key, place, messages[row], self._numbers.following(messages, row, key))
            if own and place > 0
            else place
        )
        if not self._begin_with(number, front):
            return bool(self._states[number]["kind"] != LEFT_OUT)  # `place` itself skips messages of left-out queues
        if front < place and self._fill(self.queues[key], messages[row], place, is_right=True):
            self._states[number]["next"] = place
        if place != offset:
            self._place_at(messages[row], place)
        return place != offset

    def _front(self, key: QueueKey, place: int, message: Row, following: Sequence[Following]) -> int:
        """Return the queue offset at which a queue begins.

        `place` is the queue offset of the queue's first message. The result can be lower than `place` if damage
        destroyed messages before `place`, or if the existing queue has units before `place`. If the log begins at
        physical offset 0, a queue should not begin with pre-blanks. A pre-blank points to physical offset 0, so a
        broker would begin at the first pre-blank, and would skip the queue file.
        """
        before, behind = self._before.queues.get(key), int(message["physical_offset"])
        front = place
        if not self._log_begin:
            front = 0
        elif isinstance(before, ConsumeQueue):
            front = min(before.min_offset(self._log_begin), place)
        if front == place or not self._builds(key):
            return place
        known = 0
        if isinstance(before, ConsumeQueue):
            known = sum(self._known(old, self._log_begin, behind) for _, old in self._old_units(key, front, place))
        is_right = not self._log_begin and go_on(place, following)
        return front if self._is_explained(place - front, known, self._log_begin, behind, is_right=is_right) else place

    def _is_right(self, messages: Rows, row: int, expected: int) -> bool:
        """Return whether a QUEUEOFFSET that seems too high is right.

        A QUEUEOFFSET is right if most later messages of the queue continue from the QUEUEOFFSET. The QUEUEOFFSET is
        wrong if the existing queue has the message at `expected`. For example, a flipped bit in the queueId of an
        earlier message can leave a gap before the QUEUEOFFSET.
        """
        key, offset = self._builder.keys[int(messages[row]["queue"])], int(messages[row]["queue_offset"])
        if not go_on(offset, self._numbers.following(messages, row, key)):
            return False
        return self._place_before(key, messages[row]) != expected

    def _is_misnumbered(self, messages: Rows, row: int, expected: int) -> bool:
        key, offset = self._builder.keys[int(messages[row]["queue"])], int(messages[row]["queue_offset"])
        following = self._numbers.following(messages, row, key)
        return is_misnumbered(expected, offset, following, self._place_before(key, messages[row]))

    def _place_before(self, key: QueueKey, message: Row) -> int | None:
        """Return the queue offset at which the existing queue points to a message.

        The result is None if no unit points to the message. If the unit at QUEUEOFFSET points to the message, the
        result is QUEUEOFFSET. Several units can point to one message, because units of lost messages point to the next
        message.
        """
        before, physical_offset = self._before.queues.get(key), int(message["physical_offset"])
        if not isinstance(before, ConsumeQueue):
            return None
        own = before.find(int(message["queue_offset"]))
        if own is not None and own.physical_offset == physical_offset:
            return own.queue_offset
        unit = before.first_where(lambda unit: unit.physical_offset >= physical_offset)
        return unit.queue_offset if unit is not None and unit.physical_offset == physical_offset else None

    def _place_at(self, message: Row, queue_offset: int) -> None:
        """Place a message at `queue_offset` instead of its QUEUEOFFSET."""
        self.queues[self._builder.keys[int(message["queue"])]].counts.misnumbered += 1
        corrected = np.array([message], DISPATCH_COLUMNS)
        corrected["queue_offset"] = queue_offset
        self._place(corrected)

    def _begin_with(self, number: int, offset: int) -> bool:
        """Begin a queue at a queue offset.

        Returns False if the queue is not rebuilt, or if the queue offset is negative.
        """
        key = self._builder.keys[number]
        if offset < 0:
            return False
        if not self._builds(key):
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
                too_large = rows * self._window * _ROOM_OF_UNIT > POOL_SIZE
                self._make_windows(rows, max(self._window // 2, WINDOW_MIN) if too_large else self._window)
            state["row"] = self._rows_used
            self._rows_used += 1
        state["kind"], state["next"], state["fill"] = PLAIN, queue.counts.max_offset, 0
        state["delay"] = self._delay_of(key[1]) if key[0] == SCHEDULE_TOPIC else -1
        self.queues[key] = queue

    def _begins_anew(self, queue: BuiltQueue, physical_offset: int) -> bool:
        """Return whether a queue begins again at 0 with the message at `physical_offset`.

        The result is False if the existing queue reaches `physical_offset` and has another message at queue offset 0.
        """
        before = self._before.queues.get(queue.counts.key)
        if not isinstance(before, ConsumeQueue):
            return True
        first, last = before.find(0), before.last()
        return (
            first is None
            or last is None
            or last.physical_offset < physical_offset
            or first.physical_offset == physical_offset
        )

    def _is_explained(self, places: int, known: int, start: int, behind: int, *, is_right: bool) -> bool:
        """Return whether lost messages explain the number of empty places in a queue.

        The lost messages were between the physical offsets `start` and `behind`. `places` is the number of empty
        places. `known` is the number of empty places for which the existing queue has a unit. `is_right` is True if
        other records confirm the number of empty places.
        """
        lost = (
            self._lost_bytes[bisect_left(self._lost_from, behind)]
            - self._lost_bytes[bisect_left(self._lost_from, start)]
        )
        return places * MIN_SIZE <= behind - start and (is_right or (places - known) * MIN_SIZE <= lost)

    def _fill(self, queue: BuiltQueue, message: Row, end: int, *, is_right: bool) -> bool:
        """Fill the empty places of a queue before a message at queue offset `end`.

        Returns False if nothing explains the number of empty places.
        """
        counts = queue.counts
        start, behind = counts.max_offset, int(message["physical_offset"])
        front = max(counts.end, self._log_begin)
        known = sum(self._known(old, front, behind) for _, old in self._old_units(counts.key, start, end))
        if not self._is_explained(end - start, known, front, behind, is_right=is_right):
            return False
        size = self._window
        for at in range(start, end, size):
            units = np.empty(min(size, end - at), UNITS)
            units["physicalOffset"], units["size"], units["tagsCode"] = behind, message["size"], message["tags_code"]
            for slot, old in self._old_units(counts.key, at, at + len(units)):
                kept = self._lies_between(old, front, behind)
                units[slot - at :][: len(old)][kept] = self._without_addresses(counts.key, old[kept])
                counts.kept += int(np.count_nonzero(kept))
                counts.strays += int(np.count_nonzero(~self._are_lost(old["physicalOffset"][kept])))
            counts.repeated += int(np.count_nonzero(units["physicalOffset"] == behind))
            queue.put(units, np.full(len(units), message["store_timestamp"]))
        return True

    def _old_units(self, key: QueueKey, start: int, end: int) -> Iterator[tuple[int, Rows]]:
        """Yield the existing queue's units with queue offsets in [start, end).

        Each item is (queue offset of the first unit, numpy array of UNITS).
        """
        before = self._before.queues.get(key)
        if isinstance(before, ConsumeQueue):
            for slot, data in before.blocks(start, end):
                yield slot, np.frombuffer(data, UNITS)

    def _known(self, units: Rows, start: int, behind: int) -> int:
        """Count the units of messages between physical offsets `start` and `behind`.

        The count includes units that point to `behind`, because a rebuild creates such units for lost messages.
        """
        return int(np.count_nonzero(self._lies_between(units, start, behind) | (units["physicalOffset"] == behind)))

    def _lies_between(self, units: Rows, start: int, end: int) -> Flags:
        """Return which units point to messages in [start, end) of the log."""
        offsets = units["physicalOffset"]
        found: Flags = is_unit(units) & (offsets >= start) & (offsets.astype(np.int64) + units["size"] <= end)
        return found

    def _without_addresses(self, key: QueueKey, units: Rows) -> Rows:
        """Return `units` with tagsCodes instead of extension addresses.

        The rebuilt consume queue extension has other addresses.
        """
        found = units.copy()
        extension = self._before.extensions.get(key)
        for unit in found:
            if is_ext_address(int(unit["tagsCode"])):
                unit["tagsCode"] = (extension.tags_code(int(unit["tagsCode"])) if extension is not None else None) or 0
        return found

    def _flush(self, number: int) -> None:
        state = self._states[number]
        fill = int(state["fill"])
        key = self._builder.keys[number]
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
        new = len(self._builder.keys) - len(self._states)
        if new:
            self._states = np.concatenate((self._states, np.zeros(new, PLACE_STATES)))

    def _count_left_out(self, messages: Rows) -> None:
        left_out = self._states["kind"] == LEFT_OUT
        if left_out.any():
            numbers, counts = np.unique(messages["queue"][left_out[messages["queue"]]], return_counts=True)
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
                topic = self._builder.keys[number][0]
                self.left_out[topic] = self.left_out.get(topic, 0) + count


def delays_of(store: ReadOnlyStore) -> Callable[[int], int]:
    """Return a function that returns the delay (ms) of a SCHEDULE_TOPIC_XXXX queue.

    The function takes a queueId (the delay level minus 1). The delay is taken from the last unit of the queue. If the
    last unit shows no delay, the delay is taken from the store's configuration. Raises OSError.
    """
    configured = store.conf.delays_ms

    def delay_of(queue_id: int) -> int:
        shown = _shown_delay(store, store.queue(SCHEDULE_TOPIC, queue_id))
        return configured[min(max(queue_id, 0), len(configured) - 1)] if shown is None else shown

    return delay_of


def _shown_delay(store: ReadOnlyStore, queue: UnitQueue | None) -> int | None:
    last = queue.last() if isinstance(queue, ConsumeQueue) else None
    message = store.commit_log.message_at(last.physical_offset) if last is not None else None
    if message is None or message.topic != SCHEDULE_TOPIC:
        return None
    delay = store.tags_code(message) - message.store_timestamp
    return delay if delay > 0 and delay % DELAY_UNIT_MS == 0 else None
