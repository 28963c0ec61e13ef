"""Append many messages to a store, and count the results for each queue.

`Appender` puts the messages one by one or in batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format import properties
from rmqctl.format.sys_flag import INNER_BATCH, TransactionType, transaction_type
from rmqctl.store.config.topics import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.format.encode import MessageExtBrokerInner
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.engine.message_store import MessageStore
    from rmqctl.store.write.put_message import AppendMessageResult, EncodedLines, PutMessageResult

PUT_AT_ONCE = 256
DISPATCH_BYTES = 64 * 1024 * 1024  # so many bytes of the log may wait for dispatch

_Kind = tuple[bool, "QueueKey | None"]  # (are copies, queue of the batch or None)


class Refused(NamedTuple):
    """Messages that were not stored."""

    lines: tuple[int, ...]  # their line numbers
    why: str  # for a failed put, it begins with the PutMessageStatus


@dataclass
class QueueGrowth:
    """The queue offsets [first, next) of the messages that were put into a queue."""

    first: int
    next: int


@dataclass
class Appender:
    """Stores messages in `store`, one by one or in batches.

    Up to `batch` successive messages of the same queue become one batch. A message that cannot be in a batch is put
    alone.
    """

    store: MessageStore
    # called with the result of each successful put, except one of `put_encoded`
    on_stored: Callable[[AppendMessageResult], None]
    on_refused: Callable[[Refused], None]  # called with the messages of each refused put
    batch: int = 1  # 1: each message is put alone
    at_once: int = PUT_AT_ONCE  # messages put alone that one write can store
    sync: bool = False  # flush each put to disk
    stored: int = 0
    unqueued: int = 0  # stored messages that get no unit in a queue (prepared, rollback)
    # the first message that was not stored, if the store itself failed: no more are stored then
    ended: Refused | None = None
    queues: dict[QueueKey, QueueGrowth] = field(default_factory=dict)
    _waiting: list[tuple[int, MessageExtBrokerInner]] = field(default_factory=list)
    _kind: _Kind = (False, None)
    _dispatched_to: int = 0

    def put(self, line: int, message: MessageExtBrokerInner, *, is_copy: bool) -> None:
        """Put one message; `on_refused` identifies it by its number `line`."""
        kind = (is_copy, (message.topic, message.queue_id) if self.batch > 1 and _can_batch(message) else None)
        if kind != self._kind:
            self.finish()
            self._kind = kind
        self._waiting.append((line, message))
        at_once = 1 if self.sync else self.at_once
        if len(self._waiting) >= (at_once if kind[1] is None else self.batch):
            self.finish()

    def finish(self) -> None:
        """Put all waiting messages, also in a batch that is not full."""
        waiting, self._waiting = self._waiting, []
        if not waiting or self.ended is not None:
            return
        messages = [message for _, message in waiting]
        is_copy, batched = self._kind
        if batched is not None and len(waiting) > 1:
            result = self.store.put_messages(messages)
            if result.append is not None:
                self._take([(tuple(line for line, _ in waiting), result)])
                return
        results = self.store.put_each(messages, as_it_is=is_copy)
        self._take([((line,), result) for (line, _), result in zip(waiting, results, strict=True)])

    def put_encoded(self, first_line: int, encoded: EncodedLines) -> None:
        """Put the encoded messages of consecutive lines one by one.

        Call `finish` first.
        """
        done = 0
        while done < len(encoded.rows) and self.ended is None:
            result = self.store.put_encoded(encoded, done)
            if result.failure is not None:
                self.ended = Refused((first_line + done,), _why(result.failure))
                break
            self.stored += result.records
            for key, first, behind in result.queues:
                self._grow(key, first, behind)
            done += result.records
        self._dispatch_behind(self.store.max_phy_offset)

    def _take(self, results: list[tuple[tuple[int, ...], PutMessageResult]]) -> None:
        if self.sync and any(result.is_ok for _, result in results):
            self._flush(results[0][0])
        failed = next((at for at, (_, result) in enumerate(results) if result.is_store_failure), len(results))
        for _, result in results[:failed]:
            if result.append is not None:
                self._count(result.append)
        if failed < len(results):
            lines, result = results[failed]
            self.ended = Refused(lines, _why(result))
        for lines, result in results[:failed]:
            if result.append is not None:
                self.on_stored(result.append)
            else:
                self.on_refused(Refused(lines, _why(result)))
        self._dispatch_behind(self.store.max_phy_offset)

    def _flush(self, lines: tuple[int, ...]) -> None:
        try:
            self.store.flush_log()
        except OSError as error:
            self.ended = Refused(lines, f"cannot be flushed: {error.strerror}; it may be there all the same")
            raise

    def _count(self, appended: AppendMessageResult) -> None:
        self.stored += appended.msg_num
        if appended.takes_offset:
            self._grow(
                (appended.topic, appended.queue_id), appended.logics_offset, appended.logics_offset + appended.msg_num
            )
        else:
            self.unqueued += appended.msg_num

    def _grow(self, key: QueueKey, first: int, behind: int) -> None:
        growth = self.queues.setdefault(key, QueueGrowth(first, behind))
        growth.next = behind

    def _dispatch_behind(self, offset: int) -> None:
        if offset - self._dispatched_to > DISPATCH_BYTES:
            self.store.dispatch()
            self._dispatched_to = offset


def _why(result: PutMessageResult) -> str:
    return f"{result.status.value}: {result.remark}"


def _can_batch(message: MessageExtBrokerInner) -> bool:
    plain = transaction_type(message.sys_flag) is TransactionType.NONE and not message.sys_flag & INNER_BATCH
    plain = plain and properties.INNER_MULTI_DISPATCH not in message.properties
    return plain and (message.topic == SCHEDULE_TOPIC or properties.DELAY not in message.properties)
