"""The messages of rmq_sys_wheel_timer without a delivered copy in the log.

A broker of 5.x stores a copy of a timer message in the queue that REAL_TOPIC and REAL_QID name. Until its time comes,
it may store the message again in rmq_sys_wheel_timer (a roll): the last one counts. A message with TIMER_DEL_UNIQKEY
deletes the one with that UNIQ_KEY and the same time, and is never delivered itself.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.forensics.groups.delay_levels import identity, stored_after
from rmqctl.format.message import Damage
from rmqctl.format.properties import TIMER_OUT_MS
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config.store_path import TIMER_LOG
from rmqctl.store.config.topics import TIMER_TOPIC
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.commit_log import is_served
from rmqctl.store.read.consumers.timer_check import timer_check
from rmqctl.store.read.file_scan import RecordRun
from rmqctl.store.timer.timer_message import MS_MAX, TimerMessage, timer_message
from rmqctl.store.timer.timer_start import to_deliver

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from rmqctl.format.message import Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore
    from rmqctl.store.timer.timer_start import TimerStart

EARLY_MS = 60_000  # how much the clock may have gone back since the newest store time


class Timers:
    """Finds the timer messages that wait, from messages in the order of the log."""

    def __init__(self) -> None:
        self.last: TimerMessage | None = None  # in the timer's queue, delivered or not
        self.oldest: dict[QueueKey, int] = {}  # by real queue, the physical offset of its first timer message
        self._waiting: dict[Hashable, deque[TimerMessage]] = {}
        self._deleted: set[tuple[int | None, str]] = set()
        self._dues: dict[QueueKey, list[tuple[int, int, Hashable]]] = {}  # heaps, with names that no longer wait

    def put_timer(self, message: Message, queue_offset: int) -> None:
        """Take a message of the timer's queue."""
        timer = self.last = timer_message(message, queue_offset)
        if timer.deletes is not None:
            self._deleted.add((timer.due_ms, timer.deletes))
        if timer.due_ms is None or not timer.is_deliverable:
            return
        key, name = (timer.topic, timer.queue_id), _name(message)
        self.oldest.setdefault(key, timer.physical_offset)
        if timer.unique_key is None:  # of the same name are different messages
            self._waiting.setdefault(name, deque()).append(timer)
        else:  # a roll
            self._waiting[name] = deque([timer])
        heappush(self._dues.setdefault(key, []), (timer.due_ms, timer.physical_offset, name))

    def may_be_copy(self, key: QueueKey, reached_ms: int) -> bool:
        """Return whether a message of a real queue may be a delivered copy.

        `reached_ms` is the newest time that the broker had reached (ms since 1970): no copy is stored before its time,
        but the clock may go back.
        """
        dues = self._dues.get(key, [])
        while dues and dues[0][2] not in self._waiting:
            heappop(dues)
        return bool(dues) and dues[0][0] <= reached_ms + EARLY_MS

    def put_copy(self, message: Message) -> None:
        """Take a message of a real queue, which may be a delivered copy."""
        name = _name(message)
        waiting = self._waiting.get(name)
        if waiting and waiting[0].physical_offset < message.physical_offset:
            waiting.popleft()
            if not waiting:
                del self._waiting[name]

    def leave_out(self, keys: Iterable[QueueKey]) -> None:
        """Take all messages to these queues as delivered."""
        unknown = set(keys)
        for name, timers in list(self._waiting.items()):
            if (timers[0].topic, timers[0].queue_id) in unknown:
                del self._waiting[name]

    def waiting(self) -> list[TimerMessage]:
        """Return the messages that wait, in the order of the log."""
        return sorted(
            (
                timer
                for timers in self._waiting.values()
                for timer in timers
                if self._deleted.isdisjoint((timer.due_ms, key) for key in timer.delete_keys)
            ),
            key=lambda timer: timer.physical_offset,
        )


def left_and_repeated(
    waiting: Sequence[TimerMessage], to_come: Sequence[TimerMessage]
) -> tuple[list[TimerMessage], int]:
    """Return the waiting messages that never come, and how many come again."""
    coming = {timer.physical_offset for timer in to_come}
    never = [timer for timer in waiting if timer.physical_offset not in coming]
    return never, len(to_come) - (len(waiting) - len(never))


def to_come(store: ReadOnlyStore, start: TimerStart) -> list[TimerMessage]:
    """Return what a start delivers, without what a running broker has delivered.

    Rows of a running broker come to the disk after minutes: until then, a start seems to deliver again. Raises OSError.
    """
    coming = list(to_deliver(store, start))
    in_database = start.in_database or store.storage.entry(store.path.part(TIMER_LOG)).kind is Kind.MISSING
    if not in_database or store.lock_holder() is None:
        return coming
    waiting = {timer.physical_offset for timer in timers_by_queues(store, MS_MAX).waiting()}
    return [timer for timer in coming if timer.physical_offset in waiting]


def timers_by_queues(store: ReadOnlyStore, last_ms: int) -> Timers:
    """Return the timer messages that the timer's queue leads to.

    `last_ms` is the newest store time of the log (ms since 1970). A message whose real queue cannot be read
    counts as delivered: its copy may be there. Raises OSError.
    """
    timers, queue, log = Timers(), store.queue(TIMER_TOPIC, 0), store.commit_log
    if queue is not None:
        for unit in queue.units(*queue.min_and_max(log.min_offset)):
            message = log.message_at(unit.physical_offset)
            if message is not None:
                timers.put_timer(message, unit.queue_offset)
    for key, after in timers.oldest.items():
        for copy in stored_after(store, key, after):
            timers.put_copy(copy)
            if not timers.may_be_copy(key, last_ms):
                break
    timers.leave_out(key for key in timers.oldest if store.is_unread(*key))
    return timers


def timers_by_log(store: ReadOnlyStore, end: int, threads: int) -> Timers:
    """Return the timer messages of the log up to the physical offset `end`.

    Raises OSError.
    """
    timers, builder = Timers(), DispatchRequestBuilder(with_keys=False)
    for message in _messages(store, builder, timers, end, threads):
        if message.topic == TIMER_TOPIC:
            timers.put_timer(message, message.queue_offset)
        else:
            timers.put_copy(message)
    return timers


def _messages(
    store: ReadOnlyStore, builder: DispatchRequestBuilder, timers: Timers, end: int, threads: int
) -> Iterator[Message]:
    # the messages of the timer's queue, and those that may be delivered copies
    log, reached_ms = store.commit_log, timer_check(store).last_read_time_ms

    def is_asked(key: QueueKey, stored_ms: int) -> bool:
        nonlocal reached_ms
        reached_ms = max(reached_ms, stored_ms)
        return key[0] == TIMER_TOPIC or timers.may_be_copy(key, reached_ms)

    for item in builder.scan(log, threads=threads):
        if item.physical_offset >= end:
            break
        if isinstance(item, Damage) and item.message is not None and is_served(item):
            if is_asked((item.message.topic, item.message.queue_id), item.message.store_timestamp):
                yield item.message
        elif isinstance(item, RecordRun):
            rows = item.result.messages
            if not timers.oldest and not any(builder.keys[at][0] == TIMER_TOPIC for at in np.unique(rows["queue"])):
                continue
            columns = (rows[name].tolist() for name in ("physical_offset", "queue", "store_timestamp"))
            for physical_offset, number, stored_ms in zip(*columns, strict=True):
                if physical_offset < end and is_asked(builder.keys[number], stored_ms):
                    message = log.message_at(physical_offset)
                    if message is not None:
                        yield message


def _name(message: Message) -> Hashable:
    # what a timer message and its copy have in common
    found = message.properties
    return identity(message), found.get(TIMER_OUT_MS)
