"""Many messages into a store: one by one or in batches, and what came of them for each queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format import properties
from rmqctl.format.host import Host, msg_id
from rmqctl.format.sys_flag import TransactionType, transaction_type
from rmqctl.store.read_only_store import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.format.encode import MessageExtBrokerInner
    from rmqctl.store.message_store import MessageStore
    from rmqctl.store.put_message import PutMessageResult
    from rmqctl.store.read_only_store import QueueKey

DISPATCH_BYTES = 64 * 1024 * 1024  # so much of the log may be ahead of queues and index


class Stored(NamedTuple):
    """A message that was stored, and where: offsets and size in bytes, queue_offset in units, time in ms since 1970."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_host: Host
    store_timestamp: int

    @property
    def msg_id(self) -> str:
        """The offset message id."""
        return msg_id(self.store_host, self.physical_offset)


class Refused(NamedTuple):
    """Messages that were not stored: the numbers of their lines, and why."""

    lines: tuple[int, ...]
    why: str


@dataclass
class QueueGrowth:
    """The queue offsets [first, next) that were given in a queue."""

    first: int
    next: int


@dataclass
class Appender:
    """Puts messages into `store`; `batch` at once where they follow one another in the same queue; `sync` flushes each put.

    `on_stored` and `on_refused` hear what came of each message.
    """

    store: MessageStore
    on_stored: Callable[[Stored], None]
    on_refused: Callable[[Refused], None]
    batch: int = 1
    sync: bool = False
    queues: dict[QueueKey, QueueGrowth] = field(default_factory=dict)
    _waiting: list[tuple[int, MessageExtBrokerInner]] = field(default_factory=list)
    _dispatched_to: int = 0

    def put(self, line: int, message: MessageExtBrokerInner, *, is_copy: bool) -> None:
        """One message; `line` is its number for those who hear of it."""
        if self._waiting and not (_can_batch(message) and _same_queue(self._waiting[0][1], message)):
            self.finish()
        if self.batch > 1 and _can_batch(message):
            self._waiting.append((line, message))
            if len(self._waiting) >= self.batch:
                self.finish()
            return
        self._take([(line, message)], self.store.put_message(message, as_it_is=is_copy))

    def finish(self) -> None:
        """Put what waits for its batch to become full."""
        waiting, self._waiting = self._waiting, []
        if len(waiting) == 1:
            self._take(waiting, self.store.put_message(waiting[0][1], as_it_is=True))
        elif waiting:
            self._take(waiting, self.store.put_messages([message for _, message in waiting]))

    def _take(self, put: list[tuple[int, MessageExtBrokerInner]], result: PutMessageResult) -> None:
        if result.append is None:
            self.on_refused(Refused(tuple(line for line, _ in put), f"{result.status.value}: {result.remark}"))
            return
        appended = result.append
        if self.sync:
            self.store.flush_log()  # before anybody hears that they are stored
        for number, at in enumerate(appended.physical_offsets):
            offset = appended.logics_offset + number
            self.on_stored(Stored(appended.topic, appended.queue_id, offset, at, appended.store_host, appended.store_timestamp))
        if appended.takes_offset:
            growth = self.queues.setdefault((appended.topic, appended.queue_id), QueueGrowth(appended.logics_offset, 0))
            growth.next = appended.logics_offset + appended.msg_num
        if appended.wrote_offset - self._dispatched_to > DISPATCH_BYTES:
            self.store.dispatch()
            self._dispatched_to = appended.wrote_offset


def _can_batch(message: MessageExtBrokerInner) -> bool:
    plain = transaction_type(message.sys_flag) is TransactionType.NONE and properties.INNER_MULTI_DISPATCH not in message.properties
    return plain and (message.topic == SCHEDULE_TOPIC or properties.DELAY not in message.properties)


def _same_queue(one: MessageExtBrokerInner, other: MessageExtBrokerInner) -> bool:
    return (one.topic, one.queue_id) == (other.topic, other.queue_id)
