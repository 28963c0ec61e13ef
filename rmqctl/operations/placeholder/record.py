"""Records that replace damaged bytes, so that later messages can be consumed.

They take exactly the bytes of the damage, and are of three kinds:

- A *placeholder* replaces a message, and has its queue offset, so that the queue has no hole.
- A *filler* replaces bytes whose content is unknown. It is a rollback record, which brokers add neither to a queue nor
  to the index.
- A *blank* replaces the rest of a file.

Placeholders and fillers have PLACEHOLDER_SIGN in PREPAREDTRANSACTIONOFFSET, which no broker and no client reads, and if
there is room the property RMQCTL_DAMAGED with the code of the finding. The body of a placeholder is a small JSON object
and spaces, and not empty if there is room for one. It needs a body for three reasons (*run* means: tested with real
brokers):

- A broker of 5.3.3 stops forever at a delayed message without a body (HookUtils; run). A broker of 4.x fails when it
  reads an op message without a body.
- Brokers of 5.x read the bodies of the revive topics as JSON, and stop if a body is blank or is not JSON
  (PopReviveService).
- The body of a transaction's op message is an offset. If it is not a number, the op message neither commits nor rolls
  back a half message (TransactionalMessageServiceImpl).

If the frame of a record is whole (`placeholder_message`), the placeholder keeps all fields except the body, and the
body, too, if it matches BODYCRC. If the frame is not whole (`claimed_record`), the fields come from the units that
point into the damaged range (`Claim`). Fields that a unit does not have get these values:

- BORNTIMESTAMP is 0: a half message is then too old for a transaction check (needSkip).
- In SCHEDULE_TOPIC_XXXX, the property DELAY is the delay level of the queue. REAL_TOPIC is RMQ_SYS_TRANS_HALF_TOPIC, so
  every broker version discards the placeholder at the delivery time (run).
- In rmq_sys_wheel_timer, REAL_TOPIC is RMQCTL_DAMAGED, and TIMER_OUT_MS is in the past. The timer of 5.3.3 stops
  forever at a message without TIMER_OUT_MS (TimerMessageStore.enqueue).
- For LMQs and batch queues, the properties that dispatch reads are set.

Real brokers behave so (tests/interop/test_placeholder_records.py, test_served_placeholders.py):

| | 4.7.1 | 4.9.7 | 5.3.3 |
|---|---|---|---|
| any placeholder, with or without abort, dispatched again or not: other messages are unchanged | yes | yes | yes |
| rollback fillers of 91 bytes or more (no topic, no body): in no queue, not in the index | yes | yes | yes |
| placeholders and fillers with `__CRC32#` pass forceVerifyPropCRC | - | - | yes |
| a hole in queue offsets, dispatched again: all later units are one place too low | yes | yes | yes |
| a queue that begins after 0 in a log that begins at 0: its first messages are lost | yes | yes | no |
| a delayed placeholder without a real queue | dropped | stops the level forever | skipped |
| a delayed placeholder without a body | delivered | delivered | stops the level forever |
"""

from __future__ import annotations

from typing import NamedTuple

from rmqctl.format import crc, host, properties
from rmqctl.format.body.client_check import PORT_MAX, has_bad_compression, has_bad_port
from rmqctl.format.cq_unit import DELAY_UNIT_MS, is_ext_address
from rmqctl.format.encode import (
    PROPERTIES_LENGTH_MAX,
    ends_in_property_crc,
    message_bytes,
    properties_to_bytes,
    topic_field,
)
from rmqctl.format.message import (
    ERASED,
    HEADS,
    HOST_V4,
    MAGIC_V1,
    MIN_SIZE,
    PLACEHOLDER_SIGN,
    Message,
    topic_length_size,
)
from rmqctl.format.sys_flag import (
    BORNHOST_V6,
    COMPRESSED,
    COMPRESSION_TYPE_MASK,
    INNER_BATCH,
    NEED_UNWRAP,
    STOREHOST_V6,
    TransactionType,
)
from rmqctl.store.config.topics import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC

NAME = properties.PLACEHOLDER
# flags that a new body does not have: it is neither compressed nor a batch of messages
_OF_THE_BODY = COMPRESSED | COMPRESSION_TYPE_MASK | NEED_UNWRAP | INNER_BATCH
_V6_MASK = BORNHOST_V6 | STOREHOST_V6
NOT_OF_USERS = properties.READ_BY_BROKERS | {
    b"UNIQ_KEY", b"WAIT", b"TRACE_ON", b"MSG_REGION", b"CLUSTER", b"ORIGIN_MESSAGE_ID", b"__CRC32#",
}  # fmt: skip
_KEY_OF_ERASED = b"KEYS\x01-"
# properties that clients and brokers add, and that nobody needs in a stored message
_ADDITIONS = (b"WAIT", b"TRACE_ON", b"MSG_REGION", b"CLUSTER")
_SEPARATOR = properties.PROPERTY_SEPARATOR.encode()


class Claim(NamedTuple):
    """The values of a unit whose record cannot be read."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int = 0  # of the record
    size: int = 0
    tags_code: int = 0
    tags: str = ""  # empty if unknown
    inner_num: int = 0  # queue offsets of the unit in a batch queue, else 0


class Surroundings(NamedTuple):
    """The values that placeholders copy from good records near the damage."""

    store_host_bytes: bytes
    timestamp_min: int  # ms since 1970
    timestamp_max: int  # ms since 1970
    property_crc: bool
    long_topics: bool  # the broker can read V2 records


def surroundings(before: Message | None, after: Message | None, *, long_topics: bool) -> Surroundings:
    """Return the values that placeholders copy from the nearest good records.

    `before` and `after` are the good records next to the damage. `long_topics` says whether the broker can read V2
    records. Raises ValueError if both are None.
    """
    first, last = before or after, after or before
    if first is None or last is None:
        raise ValueError("no good record is near")
    times = first.store_timestamp, max(first.store_timestamp, last.store_timestamp)
    return Surroundings(first.store_host_bytes, *times, ends_in_property_crc(first.properties_bytes), long_topics)


def filler_size_min(around: Surroundings) -> int:
    """Return the size, in bytes, of the smallest filler (a record without a queue)."""
    return MIN_SIZE + (crc.PROPERTY_CRC_SIZE if around.property_crc else 0)


def placeholder_message(message: Message, code: str) -> bytes:
    """Return a record that replaces a message with damaged content, of the same size.

    The frame of the message must be whole, and its unit, if the queue has one, must point to it.
    """
    # if the name __CRC32# is damaged, the property is known by its value (rmqctl.format.crc)
    has_crc = ends_in_property_crc(message.properties_bytes) or code == "bad-property-crc"
    raw = message.properties_bytes[: -crc.PROPERTY_CRC_SIZE] if has_crc else message.properties_bytes
    kept = _whole_pairs(raw)
    replaced = _readable(message)._replace(
        stored_physical_offset=message.physical_offset, prepared_transaction_offset=PLACEHOLDER_SIGN
    )
    if _body_is_right(message):
        # the properties keep their length: every version skips empty pairs
        padded = _replaced(kept, len(raw), code).rjust(len(raw), _SEPARATOR)
        right = replaced._replace(body_crc=crc.masked_crc32(message.body), properties_bytes=padded)
        return message_bytes(right, property_crc=has_crc)
    return _with_body(
        replaced._replace(sys_flag=message.sys_flag & ~_OF_THE_BODY, properties_bytes=kept), code, property_crc=has_crc
    )


def erased_message(message: Message, *, is_compacted: bool = False) -> bytes:
    """Return a record of the same size and place, without what the client sent.

    Body, keys, tags and user properties are gone. What brokers read stays, and hosts and times. In compaction/, a
    record needs a key, because the broker's compaction fails without one.
    """
    has_crc = ends_in_property_crc(message.properties_bytes)
    raw = message.properties_bytes[: -crc.PROPERTY_CRC_SIZE] if has_crc else message.properties_bytes
    pairs = [(pair, pair.partition(b"\x01")[0]) for pair in raw.split(_SEPARATOR)]
    kept = [pair for pair, name in pairs if name in properties.READ_BY_BROKERS]
    kept += [_KEY_OF_ERASED] if is_compacted and any(name == b"KEYS" for _, name in pairs) else []
    joined = _SEPARATOR.join(kept) + (_SEPARATOR if kept and raw.endswith(_SEPARATOR) else b"")
    bare = _readable(message)._replace(
        stored_physical_offset=message.physical_offset,
        sys_flag=message.sys_flag & ~_OF_THE_BODY,
        prepared_transaction_offset=PLACEHOLDER_SIGN,
        properties_bytes=joined,
    )
    return _with_body(bare, ERASED, property_crc=has_crc)


def is_erased(message: Message) -> bool:
    """Return whether `erase` wrote a record.

    It replaces no damage: what it replaced must not come back.
    """
    return message.placeholder is not None and (message.placeholder == ERASED or bytes(message.body[-1:]) == b"\t")


def _readable(message: Message) -> Message:
    """Repair faults that make clients reject a message.

    These are a port out of range, and a body that they cannot decompress.
    """
    if has_bad_port(message):
        born, store = _with_right_port(message.born_host), _with_right_port(message.store_host)
        message = message._replace(born_host_bytes=born, store_host_bytes=store)
    if has_bad_compression(message):
        message = message._replace(sys_flag=message.sys_flag & ~(COMPRESSED | COMPRESSION_TYPE_MASK))
    return message


def _with_right_port(found: host.Host) -> bytes:
    return host.encode(found if 0 <= found.port <= PORT_MAX else found._replace(port=0))


def _body_is_right(message: Message) -> bool:
    """Return whether the message's body is empty or matches its CRC.

    A body that is too large to read counts as damaged.
    """
    if len(message.body) != _variable_size(message) - len(message.properties_bytes):
        return False
    return not message.body or crc.masked_crc32(message.body) == message.body_crc


def _variable_size(message: Message) -> int:
    """Return the size, in bytes, that the record has for its body and its properties."""
    head_size = HEADS[message.sys_flag & _V6_MASK].size
    return message.size - head_size - topic_length_size(message.magic_code) - len(message.topic_bytes) - 2


def filler(at: int, size: int, code: str, around: Surroundings) -> bytes:
    """Return a filler: a record without a queue, and with hosts of zeros.

    In a small one, the topic is cut.
    """
    topic = NAME.encode()[: size - filler_size_min(around)]
    message = _plain(at, size, bytes(HOST_V4), around)._replace(
        sys_flag=int(TransactionType.ROLLBACK), topic_bytes=topic
    )
    return _with_body(message, code, property_crc=around.property_crc)


def claimed_record(at: int, size: int, claims: tuple[Claim, ...], code: str, around: Surroundings) -> bytes:
    """Return the placeholder of a message that `claims` lead to.

    `size` is in bytes, and at least `least_size`.
    """
    claim = claims[0]
    topic = topic_field(claim.topic, long_topics=around.long_topics)
    if topic is None:
        raise AssertionError("a claim with an impossible topic was dropped before")
    message = _plain(at, size, around.store_host_bytes, around)._replace(
        magic_code=topic.magic,
        queue_id=claim.queue_id,
        queue_offset=claim.queue_offset,
        store_timestamp=_store_timestamp(claim, around),
        topic_bytes=topic.raw[topic_length_size(topic.magic) :],
        properties_bytes=properties_to_bytes(_needed_properties(claims, around), end_with_separator=True),
    )
    return _with_body(message, code, property_crc=around.property_crc)


def _plain(at: int, size: int, store_host: bytes, around: Surroundings) -> Message:
    flags = 0 if len(store_host) == HOST_V4 else STOREHOST_V6
    up_to_born_host = (at, size, MAGIC_V1, 0, 0, 0, 0, at, flags, 0, bytes(HOST_V4))
    stored = (around.timestamp_min, store_host, 0, PLACEHOLDER_SIGN)
    return Message(*up_to_born_host, *stored, memoryview(b""), b"", b"")


def _store_timestamp(claim: Claim, around: Surroundings) -> int:
    """Return the store time (ms) of a placeholder, by default `around.timestamp_min`.

    The unit of a delayed message has the delivery time: the store time plus a delay of whole seconds. The result is
    then the first time >= `timestamp_min` that differs from it by whole seconds, or the default if that is after
    `timestamp_max`.
    """
    if claim.topic != SCHEDULE_TOPIC or claim.tags_code <= 0 or is_ext_address(claim.tags_code):
        return around.timestamp_min
    told = around.timestamp_min + (claim.tags_code - around.timestamp_min) % DELAY_UNIT_MS
    return told if told <= around.timestamp_max else around.timestamp_min


def _needed_properties(claims: tuple[Claim, ...], around: Surroundings) -> dict[str, str]:
    # the properties that dispatch and the broker's delay and timer services read
    claim, *others = claims
    needed = {properties.TAGS: claim.tags} if claim.tags else {}
    if claim.inner_num:
        needed |= {properties.INNER_NUM: str(claim.inner_num), properties.INNER_BASE: str(claim.queue_offset)}
    if others:
        topics, offsets = (other.topic for other in others), (str(other.queue_offset) for other in others)
        needed[properties.INNER_MULTI_DISPATCH] = properties.LMQ_SEPARATOR.join(topics)
        needed[properties.INNER_MULTI_QUEUE_OFFSET] = properties.LMQ_SEPARATOR.join(offsets)
    if claim.topic == SCHEDULE_TOPIC:
        needed[properties.DELAY] = str(claim.queue_id + 1)
        needed |= {properties.REAL_TOPIC: TRANS_HALF_TOPIC, properties.REAL_QUEUE_ID: "0"}
    if claim.topic == TIMER_TOPIC:
        due = str(around.timestamp_min)
        needed |= {properties.TIMER_OUT_MS: due, properties.REAL_TOPIC: NAME, properties.REAL_QUEUE_ID: "0"}
    return needed


def least_size(claims: tuple[Claim, ...], around: Surroundings) -> int:
    """Return the size, in bytes, of the smallest placeholder for `claims`.

    If none is possible, it is larger than any record.
    """
    topic = topic_field(claims[0].topic, long_topics=around.long_topics)
    needed = properties_to_bytes(_needed_properties(claims, around), end_with_separator=True)
    if topic is None or len(needed) > PROPERTIES_LENGTH_MAX - crc.PROPERTY_CRC_SIZE:
        return 2**31
    tail = len(topic.raw) + 2 + len(needed) + (crc.PROPERTY_CRC_SIZE if around.property_crc else 0)
    return HEADS[0 if len(around.store_host_bytes) == HOST_V4 else STOREHOST_V6].size + tail


def _with_body(message: Message, code: str, *, property_crc: bool) -> bytes:
    """Return the bytes of a placeholder or filler with RMQCTL_DAMAGED and a new body.

    The body is a JSON object followed by spaces. Without room for the property, it is left out; without room for the
    JSON object, the body has only spaces or is empty.
    """
    raw = message.properties_bytes
    reserved = crc.PROPERTY_CRC_SIZE if property_crc else 0
    room = _variable_size(message) - reserved
    replaced = _replaced(raw, min(room - 1, PROPERTIES_LENGTH_MAX - reserved), code)
    body = _body(room - len(replaced), code)
    found = message._replace(body=memoryview(body), body_crc=crc.masked_crc32(body), properties_bytes=replaced)
    return message_bytes(found, property_crc=property_crc)


def _body(size: int, code: str) -> bytes:
    """Return a body of `size` bytes: the longest JSON text that fits, then blanks."""
    text = f'{{"{NAME}":"{code}"}}'
    blank = "\t" if code == ERASED else " "  # it is the only sign where the code has no room
    return next(text for text in (text, "{}", "") if len(text) <= size).ljust(size, blank).encode()


def _replaced(raw: bytes, size_max: int, code: str) -> bytes:
    """Return properties of at most `size_max` bytes that begin with RMQCTL_DAMAGED.

    To save room, WAIT, TRACE_ON, MSG_REGION and CLUSTER may be left out. If there is still no room, the properties are
    unchanged.
    """
    for kept in (raw, _without_additions(raw)):
        for value in (code, properties.PLACEHOLDER_SHORT):
            replaced = _placeholder_property(value) + kept
            if len(replaced) <= size_max:
                return replaced
    return raw


def sign_size(code: str) -> int:
    """Return the size, in bytes, of the property RMQCTL_DAMAGED with a code."""
    return len(_placeholder_property(code))


def _placeholder_property(value: str) -> bytes:
    return properties_to_bytes({NAME: value}, end_with_separator=True)


def _without_additions(raw: bytes) -> bytes:
    return _SEPARATOR.join([pair for pair in raw.split(_SEPARATOR) if pair.partition(b"\x01")[0] not in _ADDITIONS])


def _whole_pairs(raw: bytes) -> bytes:
    """Leave out a last property that was only partly written."""
    written = raw.rstrip(b"\0")
    return raw if written == raw else written[: written.rfind(_SEPARATOR) + 1]
