"""The places of messages in light message queues (LMQ, since 4.9.3).

The property INNER_MULTI_DISPATCH of a message names its light queues. The broker gives the message a queue offset in
each light queue, and writes these offsets into INNER_MULTI_QUEUE_OFFSET. Dispatch adds one unit to each light queue
(MultiDispatch, LmqDispatch, ConsumeQueue.multiDispatchLmqQueue). Real stores of 4.9.4, 4.9.7, 5.1.1, 5.1.4, 5.2.0,
5.3.3 and 5.5.0 show these differences between versions:

| | 4.9.3 to 5.1.0 | 5.1.1 | 5.1.2 to 5.1.4 | 5.2 and later |
|---|---|---|---|---|
| topics that LMQ leaves out | none | %RETRY% | also timer and schedule | also all of `rmq_sys_` |
| half messages take offsets | no | no | no | yes |
| 20 unused bytes end the properties | no | no | no | 5.2.0 to 5.3.0 |

A message of a topic that LMQ leaves out gets no unit in light queues. If a message is a copy of an original message,
the properties of the copy still contain the offsets of the original message. A half message (sysFlag prepared or
rollback) never gets a unit.

Dispatch adds a unit at the end of a light queue, even if the message's offset for this queue is different from the
queue's end. This rule has two exceptions. If the offset is greater than 0 and less than the queue's end, the queue
already has this message, and dispatch adds no unit. If the queue is new, the queue begins at the offset of its first
message. Therefore, if a queue has units, a message with offset 0 gets a unit at the queue's end. Messages with offset 0
exist in queues with units, because 4.9.3 and 4.9.4 count from 0 again after each start of the broker, and because 5.5.0
keeps copied offsets in %DLQ%.

A name without the prefix %LMQ% is the name of a topic, and means the queue of this topic with the message's queueId. Up
to 5.1.4, the broker counts light messages and the topic's own messages together when the broker gives offsets in this
queue. Brokers of 5.2 and later write an empty offset for a name without the prefix. Let `x` be a name without the
prefix. If `x` is the only name, the message has no offset. With `%LMQ%a,x`, the message has one offset too few, because
Java's split drops an empty last part. If `x` is the only name, or with `%LMQ%a,x`, dispatch adds no unit. With
`x,%LMQ%a`, every attempt to dispatch the message ends with an exception, because the first offset is not a number. A
broker whose recovery reaches this message does not load the store (5.3.3).
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
LONG_DIGITS_MAX = 1000  # with leading zeros; Java has no limit
NAME_MAX = 255  # bytes: a queue's name is a folder's
_PROPERTY_END, _NAME_END = properties.PROPERTY_SEPARATOR.encode(), properties.NAME_VALUE_SEPARATOR.encode()
LEFT_OUT_PREFIXES = (RETRY_PREFIX, SYSTEM_PREFIX)


def is_left_out_topic(topic: str) -> bool:
    """Return whether 5.2 and later keep the messages of a topic out of LMQ.

    Messages of a topic that is kept out of LMQ have no place in light queues (MixAll.topicAllowsLMQ).
    """
    return topic.startswith(LEFT_OUT_PREFIXES) or topic == SCHEDULE_TOPIC


def light_offsets(message: Message) -> list[tuple[str, int]]:
    """Return the light queues of a message, and its queue offset in each queue.

    The list is empty if the message names more or fewer queues than offsets. The list is also empty if the message is a
    copy that 5.2 or later kept out of LMQ. A queue is skipped if its name has a `/`, or if the offset for this queue is
    not a valid queue offset.
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
    """Return whether a message gets no unit in a light queue.

    `queue_offset` is the message's offset for this queue. `queue_end` is the queue's end offset.

    The result is True if `queue_offset` is less than `queue_end`, and if one of two conditions is met. The first
    condition is that `queue_offset` is greater than 0. The second condition is that LMQ leaves out the topic of the
    message. If LMQ leaves out the topic, the offset may be copied from another message, and may also be 0.
    """
    return queue_offset < queue_end and (queue_offset > 0 or is_left_out_topic(topic))


def is_light_name(name: str) -> bool:
    """Return whether a name can be the name of a light queue.

    Brokers accept any name that a folder can have, for example MQTT names with + and #.
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
    """Return whether a text is a number that can be an offset in a queue.

    The result is False if the text is not a number, or if the offset is too large for any queue.
    """
    return 0 < len(text) <= OFFSET_DIGITS_MAX and text.isascii() and text.isdecimal() and int(text) < PLACES_MAX


def undispatchable_offset(message: Message) -> str | None:
    """Return the first of a message's LMQ offsets at which dispatch fails.

    Dispatch fails if Java cannot read the text of an offset as a number (Long.parseLong). The result is the text of
    this offset, or None if a broker can dispatch the message.
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
    """Return whether a message is a copy that 5.2 or later kept out of LMQ.

    The result is True if the topic of the message is kept out of LMQ, and if the message's properties show a broker of
    5.2 or later. The properties from a broker of 5.2 or later end with 0x02. The properties from 5.2.0 and 5.3.0 can
    also end with 20 bytes that are not a property. The properties from brokers of 4.9.1 to 5.1.4 never end in these
    ways.
    """
    if not is_left_out_topic(message.topic) or message.prepared_transaction_offset == PLACEHOLDER_SIGN:
        return False
    raw = message.properties_bytes
    return raw.endswith(_PROPERTY_END) or (ends_in_reserve(raw) and _NAME_END not in raw[-PROPERTY_CRC_SIZE:])
