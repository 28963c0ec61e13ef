"""The field PROPERTIES: `name 0x01 value 0x02 ...`, and names of properties.

The names come from RocketMQ's MessageConst. Up to 4.9.0 and since 5.2, 0x02 also follows the last pair of name and
value; from 4.9.1 to 5.1.4, it does not. Both can be read. A pair with an empty name or an empty value is not a property
(MessageDecoder.string2messageProperties), nor, up to 4.9.0, one whose value has 0x01 inside.
"""

from __future__ import annotations

from functools import lru_cache

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
KEYS = "KEYS"
TAGS = "TAGS"
UNIQ_KEY = "UNIQ_KEY"
DELAY = "DELAY"
WAIT = "WAIT"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_DELETE_UNIQUE_KEY = "TIMER_DEL_UNIQKEY"  # the UNIQ_KEY of the timer message that is not to be delivered
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
CRC32 = "__CRC32#"
DUP_INFO = "DUP_INFO"  # of duplicationEnable
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
PLACEHOLDER = "RMQCTL_DAMAGED"  # in a placeholder (operations/placeholder/record.py): the code of the finding
PLACEHOLDER_SHORT = "1"  # the value if the placeholder has no room for the code
KEY_SEPARATOR = " "
LMQ_PREFIX = "%LMQ%"
LMQ_SEPARATOR = ","
# what brokers and their delay, timer, transaction and POP services read from a stored message
READ_BY_BROKERS = frozenset(
    b"DELAY REAL_TOPIC REAL_QID PGROUP TRAN_MSG TRANSACTION_CHECK_TIMES TRAN_PREPARED_QUEUE_OFFSET RETRY_TOPIC "
    b"DLQ_ORIGIN_TOPIC ORIGIN_GROUP 1ST_POP_TIME POP_CK TIMER_OUT_MS TIMER_DELIVER_MS TIMER_DELAY_MS TIMER_DELAY_SEC "
    b"TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_DELAY_LEVEL INNER_MULTI_DISPATCH "
    b"INNER_MULTI_QUEUE_OFFSET INNER_NUM INNER_BASE".split()
)


def decode(raw: bytes, *, values_may_have_separators: bool = True) -> dict[str, str]:
    """Return the properties of a record; of two with the same name, the last counts.

    Bytes that are not UTF-8 become U+FFFD, as in Java. Brokers up to 4.9.0 ignore 0x01 at the end of a value, and a
    property with 0x01 inside its value.
    """
    found: dict[str, str] = {}
    for pair in raw.decode("utf-8", "replace").split(PROPERTY_SEPARATOR):
        name, _, value = pair.partition(NAME_VALUE_SEPARATOR)
        if not values_may_have_separators:
            value = value.rstrip(NAME_VALUE_SEPARATOR)
            value = "" if NAME_VALUE_SEPARATOR in value else value
        if name and value:
            found[name] = value
    return found


def keys(properties: dict[str, str]) -> list[str]:
    """Return the keys in the property KEYS, in order."""
    return [word for word in properties.get(KEYS, "").split(KEY_SEPARATOR) if word]


def is_wait_store_msg_ok(properties: dict[str, str]) -> bool:
    """Return whether a put waits until the message is on disk and on slaves.

    As in Message.isWaitStoreMsgOK, it does if WAIT is `true` or missing.
    """
    return properties.get(WAIT, "true").lower() == "true"


def real_queue(properties: dict[str, str]) -> tuple[str, int] | None:
    """Return the topic and queueId to which a delayed message goes, or None."""
    topic, queue_id = properties.get(REAL_TOPIC), properties.get(REAL_QUEUE_ID, "")
    return (topic, int(queue_id)) if topic and queue_id.isdecimal() and len(queue_id) < 10 else None


@lru_cache(maxsize=4096)
def hash_code(text: str) -> int:
    """Return `String.hashCode()`, a signed 32-bit integer.

    The hash is 31*h + c over the UTF-16 code units, with overflow as for Java's int.

    >>> hash_code("TagA"), hash_code("polygenelubricants")
    (2598919, -2147483648)
    """
    h = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        h = (31 * h + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return h - (1 << 32) if h & 0x80000000 else h
