"""DefaultMessageStore.getMessage: messages of a queue, and where to continue.

| the queue has [min, max) | status | next_begin_offset |
|---|---|---|
| max is 0, or the queue does not exist | NO_MESSAGE_IN_QUEUE | 0 |
| offset < min | OFFSET_TOO_SMALL | min |
| offset = max | OFFSET_OVERFLOW_ONE | max |
| offset > max | OFFSET_OVERFLOW_BADLY | max; but 0 up to 4.9.3 if min is 0 |
| no file has the unit | OFFSET_FOUND_NULL | the first offset of the next file |
| a message matches | FOUND | the offset after the last examined unit |
| no message matches | NO_MATCHED_MESSAGE, MESSAGE_WAS_REMOVING | the offset after the last examined unit |

One call reads units of one queue file; in a consume queue, at most max(800, `max_messages`). It ends when the batch is
full (isTheBatchFull), but always returns the first message that matches. Units that point to a deleted log file are
skipped. 4.7.1, 4.9.7 and 5.3.3 differ in two results: the next offset for OFFSET_OVERFLOW_BADLY, and the first offset
of a queue (logic_queue.py).

Not implemented are maxTotalMsgSize of remote clients (5.x), compacted topics, statistics, the offset rules of slaves,
and suggestPullingFromSlave. Only a running broker knows which part of the log is in memory; here, `memory_bytes` of
`TransferLimits` says how much.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.store.serve.subscription import Subscription

if TYPE_CHECKING:
    from rmqctl.format.cq_unit import CqUnit
    from rmqctl.format.message import Message
    from rmqctl.format.profile import Profile
    from rmqctl.store.serve.logic_queue import LogicQueue
    from rmqctl.store.serve.readable_log import ReadableLog

MAX_FILTER_MESSAGE_SIZE = 16000  # bytes of units that one call examines
NO_FILE = -1


class GetMessageStatus(Enum):
    """The result codes of getMessage, with RocketMQ's names.

    No RocketMQ version returns NO_MATCHED_LOGIC_QUEUE, because a broker creates every missing queue.
    """

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class GetMessageResult(NamedTuple):
    """The messages in queue order; the queue has offsets [min_offset, max_offset)."""

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int = 0
    max_offset: int = 0
    messages: tuple[Message, ...] = ()


class TransferLimits(NamedTuple):
    """The limits of one getMessage call, such as maxTransferBytesOnMessageInMemory.

    They are in bytes or messages; the defaults are the broker's.
    """

    bytes_in_memory: int = 262_144
    count_in_memory: int = 32
    bytes_in_disk: int = 65_536
    count_in_disk: int = 8
    memory_bytes: int | None = None
    """So many bytes at the end of the log are in memory (broker: 40 % of the RAM); None: all."""


BROKER_LIMITS = TransferLimits()
EVERYTHING = Subscription()


def get_message(
    queue: LogicQueue,
    log: ReadableLog,
    profile: Profile,
    offset: int,
    max_messages: int,
    subscription: Subscription = EVERYTHING,
    limits: TransferLimits = BROKER_LIMITS,
) -> GetMessageResult:
    """Return at most `max_messages` messages of a queue, from `offset` on.

    No limit applies to the first message that matches. Raises OSError and Unreadable.
    """
    low, high = queue.min_offset, queue.max_offset
    outside = _outside(offset, low, high, profile)
    if outside is not None:
        return GetMessageResult(*outside, low, high)
    most = max(MAX_FILTER_MESSAGE_SIZE // queue.queue.unit_size, max_messages)
    units = queue.iterate_from(offset, offset + most)
    if units is None:
        return GetMessageResult(GetMessageStatus.OFFSET_FOUND_NULL, queue.roll_next_file(offset), low, high)
    batch = _Batch(log, max_messages, limits)
    following = offset
    for unit in units:
        if batch.is_full(unit):
            break
        following = unit.queue_offset + unit.batch_size
        batch.take(unit, subscription)
    return GetMessageResult(batch.status, following, low, high, tuple(batch.messages))


def _outside(offset: int, low: int, high: int, profile: Profile) -> tuple[GetMessageStatus, int] | None:
    """Return status and next offset if `offset` is not in [low, high), or None."""
    if high == 0:
        return GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < low:
        return GetMessageStatus.OFFSET_TOO_SMALL, low
    if offset == high:
        return GetMessageStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > high:
        return GetMessageStatus.OFFSET_OVERFLOW_BADLY, 0 if profile.overflow_restarts_queue and low == 0 else high
    return None


class _Batch:
    def __init__(self, log: ReadableLog, max_messages: int, limits: TransferLimits) -> None:
        self.status = GetMessageStatus.NO_MATCHED_MESSAGE
        self.messages: list[Message] = []
        self._log = log
        self._max_messages = max_messages
        self._limits = limits
        self._bytes = 0
        self._count = 0
        self._next_phy_file_start_offset = NO_FILE

    def is_full(self, unit: CqUnit) -> bool:
        """Follow RocketMQ's isTheBatchFull."""
        if not self.messages:
            return False
        limits = self._limits
        behind = self._log.max_offset - unit.physical_offset
        in_memory = limits.memory_bytes is None or behind <= limits.memory_bytes
        most_bytes, most = (
            (limits.bytes_in_memory, limits.count_in_memory)
            if in_memory
            else (limits.bytes_in_disk, limits.count_in_disk)
        )
        return (
            self._count + unit.batch_size > self._max_messages
            or self._bytes + unit.size > most_bytes
            or self._count >= most
        )

    def take(self, unit: CqUnit, subscription: Subscription) -> None:
        if unit.physical_offset < self._next_phy_file_start_offset:
            return
        if not subscription.is_matched_by_consume_queue(unit.tags_code):
            self._missed(GetMessageStatus.NO_MATCHED_MESSAGE)
            return
        message = self._log.message(unit.physical_offset) if self._log.has(unit.physical_offset, unit.size) else None
        if message is None:
            self._missed(GetMessageStatus.MESSAGE_WAS_REMOVING)
            if not self._log.has(unit.physical_offset, unit.size):
                self._next_phy_file_start_offset = self._log.roll_next_file(unit.physical_offset)
            return
        self.messages.append(message)
        self._bytes += unit.size
        self._count += unit.batch_size
        self.status = GetMessageStatus.FOUND
        self._next_phy_file_start_offset = NO_FILE

    def _missed(self, why: GetMessageStatus) -> None:
        if not self.messages:
            self.status = why
