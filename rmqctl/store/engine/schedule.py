"""ScheduleMessageService, which delivers delayed messages when they are due.

A delayed message is delivered from SCHEDULE_TOPIC_XXXX to its real topic. Delay level n uses the queue of
SCHEDULE_TOPIC_XXXX whose queueId is n - 1. In a queue of SCHEDULE_TOPIC_XXXX, the tagsCode of a unit is the time when
the message is due. The messages of a level are delivered in order. Delivery of a level stops at a message that is not
due yet, or that the store does not accept.

The delivered message keeps its body, flags, hosts, born time and all properties except `__CRC32#`. As in RocketMQ, the
delivered message keeps the property DELAY. The delivered message gets a new offset and a new store time.

A delayed message is skipped in three cases. (1) The log no longer has the message. (2) The real topic of the message is
RMQ_SYS_TRANS_HALF_TOPIC. (3) REAL_TOPIC or a valid REAL_QID is missing. If REAL_TOPIC or a valid REAL_QID is missing, a
broker of 4.9.7 repeats the delivery for ever. After a crash, messages that were delivered after the last `persist` are
delivered a second time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.format import properties
from rmqctl.format.cq_unit import is_ext_address
from rmqctl.format.encode import MessageExtBrokerInner
from rmqctl.format.sys_flag import BORNHOST_V6, STOREHOST_V6
from rmqctl.store.config.topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from rmqctl.store.write.put_message import PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.format.cq_unit import CqUnit
    from rmqctl.format.message import Message
    from rmqctl.store.engine.delay_offsets import DelayOffsets
    from rmqctl.store.serve.message_reader import MessageReader
    from rmqctl.store.write.put_message import PutMessageResult

UNITS_AT_ONCE = 256
QUEUE_ID_DIGITS_MAX = 9


class ScheduleMessageService:
    """The service that delivers the delayed messages of a store.

    `reader` reads the delayed messages, and `put` stores the delivered messages. `delays_ms` are the delays of the
    levels, from level 1 on.
    """

    def __init__(
        self,
        reader: MessageReader,
        put: Callable[[MessageExtBrokerInner], PutMessageResult],
        offsets: DelayOffsets,
        delays_ms: tuple[int, ...],
    ) -> None:
        self._reader = reader
        self._put = put
        self._offsets = offsets
        self._delays_ms = delays_ms

    def deliver_due(self, now_ms: int) -> int:
        """Deliver the dispatched messages that are due at `now_ms`.

        `now_ms` is in ms since 1970. Returns the number of delivered messages. Raises OSError and Unreadable.
        """
        return sum(self._deliver_level(level, now_ms) for level in range(1, len(self._delays_ms) + 1))

    def persist(self) -> None:
        """Write delayOffset.json, if an offset changed. Raises OSError."""
        self._offsets.persist()

    def _deliver_level(self, level: int, now_ms: int) -> int:
        queue_id = level - 1
        delivered = 0
        offset = min(self._offsets.get(level), self._reader.get_max_offset_in_queue(SCHEDULE_TOPIC, queue_id))
        while units := self._units(queue_id, offset):
            for unit in units:
                if not self._is_due(unit, self._delays_ms[queue_id], now_ms):
                    return delivered
                message = self._stored(unit)
                timed_up = None if message is None else message_timed_up(message)
                if timed_up is not None:
                    if self._put(timed_up).status is not PutMessageStatus.PUT_OK:
                        return delivered
                    delivered += 1
                offset = unit.queue_offset + 1
                self._offsets.update(level, offset)
        return delivered

    def _units(self, queue_id: int, offset: int) -> list[CqUnit]:
        """Return the next units in the queue of a delay level, from `offset` on.

        If the unit at `offset` was deleted, the result begins with the first unit of the queue.
        """
        units = self._reader.units(SCHEDULE_TOPIC, queue_id, offset, UNITS_AT_ONCE)
        if units or offset == self._reader.get_max_offset_in_queue(SCHEDULE_TOPIC, queue_id):
            return units
        low = self._reader.get_min_offset_in_queue(SCHEDULE_TOPIC, queue_id)
        return self._reader.units(SCHEDULE_TOPIC, queue_id, low, UNITS_AT_ONCE) if offset < low else []

    def _is_due(self, unit: CqUnit, delay_ms: int, now_ms: int) -> bool:
        """Return whether a message is due now.

        A delivery time is invalid if it is later than the current time plus the level's delay. A message with an
        invalid delivery time is due now (correctDeliverTimestamp).
        """
        deliver_at = unit.tags_code
        if is_ext_address(deliver_at):  # the unit in consumequeue_ext is lost
            message = self._stored(unit)
            deliver_at = 0 if message is None else message.store_timestamp + delay_ms
        return deliver_at <= now_ms or deliver_at > now_ms + delay_ms

    def _stored(self, unit: CqUnit) -> Message | None:
        message = self._reader.look_message_by_offset(unit.physical_offset)
        return message if message is not None and message.size == unit.size else None


def message_timed_up(message: Message) -> MessageExtBrokerInner | None:
    """Convert a delayed message to the message for the real topic.

    RocketMQ does the same in ScheduleMessageService.messageTimeup. The result is None if the delayed message has no
    valid REAL_TOPIC or no valid REAL_QID.
    """
    found = message.properties
    found.pop(properties.CRC32, None)
    topic, queue_id = found.get(properties.REAL_TOPIC, TRANS_HALF_TOPIC), found.get(properties.REAL_QUEUE_ID, "")
    if topic == TRANS_HALF_TOPIC or not (
        queue_id.isascii() and queue_id.isdecimal() and len(queue_id) <= QUEUE_ID_DIGITS_MAX
    ):
        return None
    return MessageExtBrokerInner(
        topic,
        bytes(message.body),
        found,
        message.born_host,
        message.store_host,
        message.born_timestamp,
        queue_id=int(queue_id),
        flag=message.flag,
        sys_flag=message.sys_flag & ~(BORNHOST_V6 | STOREHOST_V6),
        reconsume_times=message.reconsume_times,
    )
