"""The messages of rmq_sys_wheel_timer without a delivered copy in the log.

A broker of 5.x stores a copy of a timer message in the queue that REAL_TOPIC and REAL_QID name. Until its time comes,
it may store the message again in rmq_sys_wheel_timer (a roll): the last one counts. A message with TIMER_DEL_UNIQKEY
deletes the one with that UNIQ_KEY and the same time, and is never delivered itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.forensics.groups.delay_levels import identity, stored_after, target
from rmqctl.format.message import Damage
from rmqctl.format.properties import TIMER_DELETE_UNIQUE_KEY
from rmqctl.store.config.topics import TIMER_TOPIC
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.commit_log import is_served
from rmqctl.store.read.file_scan import RecordRun
from rmqctl.store.timer.timer_start import delete_keys, due_ms

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from rmqctl.format.message import Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class WaitingTimer(NamedTuple):
    """A timer message that is not delivered."""

    physical_offset: int
    size: int  # of the record, in bytes
    due_ms: int  # ms since 1970
    topic: str  # REAL_TOPIC
    queue_offset: int  # QUEUEOFFSET


class Timers:
    """Finds the timer messages that wait, from messages in the order of the log."""

    def __init__(self) -> None:
        self.last: WaitingTimer | None = None  # in the timer's queue, delivered or not
        self.oldest: dict[QueueKey, int] = {}  # by real queue, the physical offset of its first timer message
        self._waiting: dict[Hashable, tuple[WaitingTimer, tuple[str, str]]] = {}
        self._deleted: set[tuple[int, str]] = set()

    def put_timer(self, message: Message) -> None:
        """Take a message of the timer's queue."""
        due, real = due_ms(message), target(message)
        if due is None or real is None:
            return
        timer = WaitingTimer(message.physical_offset, message.size, due, real[0], message.queue_offset)
        self.last = timer
        if (key := message.properties.get(TIMER_DELETE_UNIQUE_KEY)) is not None:
            self._deleted.add((due, key))
            return
        self.oldest.setdefault(real, message.physical_offset)
        self._waiting[identity(message)] = timer, delete_keys(message)

    def put_copy(self, message: Message) -> None:
        """Take a message of a real queue, which may be a delivered copy."""
        key = identity(message)
        if key in self._waiting and self._waiting[key][0].physical_offset < message.physical_offset:
            del self._waiting[key]

    def waiting(self) -> list[WaitingTimer]:
        """Return the messages that wait, in the order of the log."""
        return sorted(
            timer
            for timer, keys in self._waiting.values()
            if self._deleted.isdisjoint((timer.due_ms, key) for key in keys)
        )


def timers_by_queues(store: ReadOnlyStore) -> Timers:
    """Return the timer messages that the timer's queue leads to.

    One whose real queue cannot be read counts as delivered: its copy may be there. Raises OSError.
    """
    timers, queue, log = Timers(), store.queue(TIMER_TOPIC, 0), store.commit_log
    if queue is not None:
        for unit in queue.units(*queue.min_and_max(log.min_offset)):
            message = log.message_at(unit.physical_offset)
            real = target(message) if message is not None else None
            if message is not None and real is not None and not store.is_unread(*real):
                timers.put_timer(message)
    for key, after in timers.oldest.items():
        for copy in stored_after(store, key, after):
            timers.put_copy(copy)
    return timers


def timers_by_log(store: ReadOnlyStore, end: int, threads: int) -> Timers:
    """Return the timer messages of the log up to the physical offset `end`.

    Raises OSError.
    """
    timers, builder = Timers(), DispatchRequestBuilder(with_keys=False)
    for message in _messages(store, builder, timers, end, threads):
        if message.topic == TIMER_TOPIC:
            timers.put_timer(message)
        else:
            timers.put_copy(message)
    return timers


def _messages(
    store: ReadOnlyStore, builder: DispatchRequestBuilder, timers: Timers, end: int, threads: int
) -> Iterator[Message]:
    # the messages of the timer's queue, and of each real queue behind its first timer message
    log = store.commit_log
    for item in builder.scan(log, threads=threads):
        if item.physical_offset >= end:
            break
        if isinstance(item, Damage) and item.message is not None and is_served(item):
            if _is_followed(timers, (item.message.topic, item.message.queue_id)):
                yield item.message
        elif isinstance(item, RecordRun):
            rows = item.result.messages
            followed = [number for number in np.unique(rows["queue"]) if builder.keys[number][0] == TIMER_TOPIC]
            if not followed and not timers.oldest:
                continue
            for physical_offset, number in zip(rows["physical_offset"].tolist(), rows["queue"].tolist(), strict=True):
                if physical_offset < end and _is_followed(timers, builder.keys[number]):
                    message = log.message_at(physical_offset)
                    if message is not None:
                        yield message


def _is_followed(timers: Timers, key: QueueKey) -> bool:
    return key[0] == TIMER_TOPIC or key in timers.oldest
