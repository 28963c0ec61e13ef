"""The rules for messages in light message queues (LMQ, since 4.9.3).

The property INNER_MULTI_DISPATCH of a message names its light queues. The broker gives the message a queue offset in
each of them, and writes these into the property INNER_MULTI_QUEUE_OFFSET. Dispatch adds one unit to each light queue
(MultiDispatch, LmqDispatch, ConsumeQueue.multiDispatchLmqQueue). Broker versions differ, as real stores of 4.9.4,
4.9.7, 5.1.1, 5.1.4, 5.2.0, 5.3.3 and 5.5.0 show:

| | 4.9.3 to 5.1.0 | 5.1.1 | 5.1.2 to 5.1.4 | 5.2 and later |
|---|---|---|---|---|
| topics that LMQ excludes | none | %RETRY% | also timer and schedule | also all of `rmq_sys_` |
| half messages take offsets | no | no | no | yes |
| 20 unused bytes end the properties | no | no | no | 5.2.0 to 5.3.0 |

Messages of the topics that LMQ excludes get no unit in light queues. A copy that a broker makes in another topic keeps
the light queue offsets of the original message. A half message (sysFlag prepared or rollback) never gets a unit.

Dispatch normally adds a unit at the end of a light queue, not at the message's light queue offset. It adds none if this
offset is greater than 0 and less than the light queue's end; for offset 0, it adds one at the end. A new light queue
begins at the offset of its first message. After each start, brokers of 4.9.3 and 4.9.4 count light queue offsets from 0
again. In %DLQ%, 5.5.0 keeps the light queue offsets of the original message.

In INNER_MULTI_DISPATCH, a name `x` without the prefix %LMQ% is a topic, and its light queue is the queue of topic `x`
with the message's queueId. Up to 5.1.4, light and ordinary messages of topic `x` share one queue offset counter.
Brokers of 5.2 and later write an empty offset for such a name:

- With the single name `x`, the message gets no offset and no light queue unit.
- With the names `%LMQ%a,x`, one offset is missing, because Java's split drops the empty last one. Dispatch then adds no
  unit to light queues.
- With the names `x,%LMQ%a`, dispatch throws an exception, because the first offset is empty. 5.3.3 does not load the
  store if recovery reaches such a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.format import properties
from rmqctl.format.cq_unit import PLACES_MAX
from rmqctl.format.crc import PROPERTY_CRC_SIZE
from rmqctl.format.message import PLACEHOLDER_SIGN, ends_in_reserve
from rmqctl.store.config.topics import RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_PREFIX

if TYPE_CHECKING:
    from rmqctl.format.message import Message

OFFSET_DIGITS_MAX = len(str(PLACES_MAX))
LONG_DIGITS_MAX = 1000  # including leading zeros; Java has no limit
NAME_MAX = 255  # bytes: the name of a queue is the name of a folder
_PROPERTY_END, _NAME_END = properties.PROPERTY_SEPARATOR.encode(), properties.NAME_VALUE_SEPARATOR.encode()
LEFT_OUT_PREFIXES = (RETRY_PREFIX, SYSTEM_PREFIX)


def is_left_out_topic(topic: str) -> bool:
    """Return whether brokers of 5.2 and later exclude a topic from LMQ.

    Its messages get no unit in light queues (MixAll.topicAllowsLMQ).
    """
    return topic.startswith(LEFT_OUT_PREFIXES) or topic == SCHEDULE_TOPIC


def light_offsets(message: Message) -> list[tuple[str, int]]:
    """Return (name, queue offset) for each light queue of a message.

    There are none if the numbers of offsets and of names differ, or for a copy that a broker of 5.2 or later excluded
    from LMQ. A light queue is left out if its name contains a `/`, or its offset is not valid.
    """
    found = message.properties
    names = java_split(found.get(properties.INNER_MULTI_DISPATCH, ""))
    offsets = java_split(found.get(properties.INNER_MULTI_QUEUE_OFFSET, ""))
    if len(names) != len(offsets) or _is_left_out_copy(message):
        return []
    return [
        (name, int(offset))
        for name, offset in zip(names, offsets, strict=True)
        if name and "/" not in name and is_offset(offset)
    ]


def gets_no_unit(topic: str, queue_offset: int, queue_end: int) -> bool:
    """Return whether a light queue gets no unit for a message.

    `queue_offset` is the message's offset for the light queue, `queue_end` the queue's end offset. Between 0 and the
    end, the queue has the message already. In a topic that LMQ excludes, 0 is such an offset too: the message may be a
    copy with the light queue offsets of the original.
    """
    return queue_offset < queue_end and (queue_offset > 0 or is_left_out_topic(topic))


def is_light_name(name: str) -> bool:
    """Return whether a name can be the name of a light queue.

    Brokers accept any name that a folder can have; those from MQTT may contain + and #.
    """
    unusable = name in ("", ".", "..") or any(character in name for character in "/\0\ufffd\x01\x02")
    return not unusable and len(name.encode()) <= NAME_MAX


def java_split(text: str) -> list[str]:
    """Split a text at its commas, as Java's String.split does.

    Empty words at the end of the text are left out.
    """
    words = text.split(properties.LMQ_SEPARATOR)
    while words and not words[-1]:
        words.pop()
    return words


def is_offset(text: str) -> bool:
    """Return whether a text is a decimal number that a queue offset can have."""
    return 0 < len(text) <= OFFSET_DIGITS_MAX and text.isascii() and text.isdecimal() and int(text) < PLACES_MAX


def undispatchable_offset(message: Message) -> str | None:
    """Return the text of the light queue offset at which dispatch fails, or None.

    It is the first one that Java cannot read as a number (Long.parseLong).
    """
    found = message.properties
    names = java_split(found.get(properties.INNER_MULTI_DISPATCH, ""))
    offsets = java_split(found.get(properties.INNER_MULTI_QUEUE_OFFSET, ""))
    if len(names) != len(offsets):
        return None
    wanted = (offset for name, offset in zip(names, offsets, strict=True) if "/" not in name)
    return next((offset for offset in wanted if not _is_java_long(offset)), None)


def _is_java_long(text: str) -> bool:
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isdecimal() and len(digits) <= LONG_DIGITS_MAX and -(2**63) <= int(text) < 2**63


def _is_left_out_copy(message: Message) -> bool:
    """Return whether a message is a copy that 5.2 or later excluded from LMQ.

    LMQ excludes its topic, and 5.2 or later wrote the properties: these end with 0x02, or in 5.2.0 to 5.3.0 with 20
    unused bytes, which those of 4.9.1 to 5.1.4 never do.
    """
    if not is_left_out_topic(message.topic) or message.prepared_transaction_offset == PLACEHOLDER_SIGN:
        return False
    raw = message.properties_bytes
    return raw.endswith(_PROPERTY_END) or (ends_in_reserve(raw) and _NAME_END not in raw[-PROPERTY_CRC_SIZE:])
