"""ScheduleMessageService, which delivers delayed messages when they are due.

They go from SCHEDULE_TOPIC_XXXX to their real topic. There, delay level n has the queueId n - 1, and the tagsCode of a
unit is the time when the message is due. The messages of a level are delivered in order; delivery stops at one that is
not due yet, or that the store does not accept.

The delivered message keeps its body, flags, hosts, born time and all properties except `__CRC32#`, and as in RocketMQ
also DELAY. It gets a new offset and a new store time.

A delayed message is skipped if the log no longer has it, if its real topic is RMQ_SYS_TRANS_HALF_TOPIC, or if it has no
REAL_TOPIC or no valid REAL_QID (a broker of 4.9.7 then repeats the delivery for ever). After a crash, messages that
were delivered after the last `persist` are delivered a second time.
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
    """Delivers the delayed messages of a store.

    `reader` reads them, and `put` stores the delivered messages. `delays_ms` are the delays of the levels, from level 1
    on.
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
        """Deliver the dispatched messages that are due; return their number.

        `now_ms` is in ms since 1970. Raises OSError and Unreadable.
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
        """If the unit at `offset` was deleted, begin with the first of the queue."""
        units = self._reader.units(SCHEDULE_TOPIC, queue_id, offset, UNITS_AT_ONCE)
        if units or offset == self._reader.get_max_offset_in_queue(SCHEDULE_TOPIC, queue_id):
            return units
        low = self._reader.get_min_offset_in_queue(SCHEDULE_TOPIC, queue_id)
        return self._reader.units(SCHEDULE_TOPIC, queue_id, low, UNITS_AT_ONCE) if offset < low else []

    def _is_due(self, unit: CqUnit, delay_ms: int, now_ms: int) -> bool:
        """Return whether a message is due now.

        So is one with an invalid delivery time: later than now plus the level's delay (correctDeliverTimestamp).
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
    """Convert a delayed message to that for its real topic (messageTimeup), or None.

    None if it has no valid REAL_TOPIC or no valid REAL_QID.
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
