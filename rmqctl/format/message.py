"""One record of the commit log.

A record begins with the following head, here with two IPv4 hosts. If the V6 bit of a host is set in SYSFLAG, this host
has 20 bytes instead of 8, and all later fields move by 12 bytes.

{table}

Three fields of variable length come after the head: BODY, TOPIC and PROPERTIES. TOPIC begins with a length field of 1
byte in V1 and 2 bytes in V2. PROPERTIES begins with a length field of 2 bytes.

A record is valid if all of these conditions are true:

- MAGICCODE is DAA320A7 (V1) or DAA320AB (V2: topics longer than 127 bytes, 5.x).
- TOTALSIZE is not larger than the rest of the file, no length is negative, and head and lengths add up to TOTALSIZE.
- PHYSICALOFFSET is the position of the record in the log. Otherwise it is an old record in a reused file, or the file
  has a wrong name. No broker checks this.
- BODYCRC is the CRC-32 of the body AND 0x7FFFFFFF, or 0 if the body is empty. No broker checks the BODYCRC of an empty
  body.
- The property `__CRC32#`, if the record has it (5.2 and later), contains the checksum of all earlier bytes of the
  record.
- The last byte of PROPERTIES is not zero, as the last bytes of a record are after an incomplete write. No broker checks
  this. Records for LMQ queues from brokers of 5.2.0 to 5.3.0 are an exception: they may end with 20 unused bytes (zeros
  or old data).

A blank fills the rest of a file after the last record. Its TOTALSIZE is the length of this rest, and its MAGICCODE is
CBD43194; the bytes after them have no meaning. Eight zero bytes mean that no record was written there yet.

Without `__CRC32#`, a flipped bit in the following fields cannot be detected: QUEUEID, FLAG, QUEUEOFFSET, SYSFLAG
(except its V6 bits), BORNTIMESTAMP, BORNHOST, STORETIMESTAMP, STOREHOST, RECONSUMETIMES, PREPAREDTRANSACTIONOFFSET,
TOPIC and PROPERTIES. `__CRC32#` covers all fields. The consume queues and the index contain copies of several record
fields: `verify --level 2` compares the consume queues with the records, `verify --level 3` also the index.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from rmqctl.format import crc, host, properties
from rmqctl.format.layout import Field, Layout
from rmqctl.format.properties import hash_code
from rmqctl.format.sys_flag import BORNHOST_V6, STOREHOST_V6

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
MAGIC_OFFSET = 4
_PROPERTY_END = properties.PROPERTY_SEPARATOR.encode()
_LIGHT_OFFSETS = (properties.INNER_MULTI_QUEUE_OFFSET + properties.NAME_VALUE_SEPARATOR).encode()
BLANK_SIZE = 8
# PREPAREDTRANSACTIONOFFSET of placeholders (operations/placeholder/record.py): no broker and no client reads this field
PLACEHOLDER_SIGN = int.from_bytes(b"RMQCTL\0\0", "big")
ERASED = "erased"  # the code of a record that `erase` wrote


def _head(born_host: int, store_host: int) -> Layout:
    return Layout(
        "record head",
        (
            Field("TOTALSIZE", "i", "the whole record"),
            Field("MAGICCODE", "I", "DAA320A7 V1, DAA320AB V2"),
            Field("BODYCRC", "I", "CRC-32 of the body AND 0x7FFFFFFF"),
            Field("QUEUEID", "i"),
            Field("FLAG", "i", "the application's"),
            Field("QUEUEOFFSET", "q", "in units; 0 for prepared and rollback"),
            Field("PHYSICALOFFSET", "q", "its own position"),
            Field("SYSFLAG", "i", "flags: 1 compressed, 12 transaction, 16 and 32 V6"),  # rmqctl/format/sys_flag.py
            Field("BORNTIMESTAMP", "q", "ms since 1970"),
            Field("BORNHOST", f"{born_host}s", "address, port"),
            Field("STORETIMESTAMP", "q", "ms since 1970"),
            Field("STOREHOST", f"{store_host}s", "address, port"),
            Field("RECONSUMETIMES", "i"),
            Field("PREPAREDTRANSACTIONOFFSET", "q"),
            Field("BODYLENGTH", "i"),
        ),
    )


HOST_V4, HOST_V6 = 8, 20
HEADS = {
    sys_flag: _head(HOST_V6 if sys_flag & BORNHOST_V6 else HOST_V4, HOST_V6 if sys_flag & STOREHOST_V6 else HOST_V4)
    for sys_flag in (0, BORNHOST_V6, STOREHOST_V6, BORNHOST_V6 | STOREHOST_V6)
}
HEAD_SIZE_MAX = HEADS[BORNHOST_V6 | STOREHOST_V6].size
MIN_SIZE = HEADS[0].size + 1 + 2  # a V1 record with empty body, topic and properties
if (HEADS[0].size, HEAD_SIZE_MAX) != (88, 112):
    raise AssertionError("the record head is 88 bytes, 112 with IPv6 hosts")
__doc__ = (__doc__ or "").format(table=HEADS[0].table())
BAD_BODY_CRC = "bad-body-crc"  # the code of a Damage
BAD_PHYSICAL_OFFSET = "bad-physical-offset"  # the code of a Damage
BODYCRC_OFFSET = HEADS[0].offset("BODYCRC")
PHYSICALOFFSET_OFFSET = HEADS[0].offset("PHYSICALOFFSET")
_SYSFLAG_OFFSET = HEADS[0].offset("SYSFLAG")
# the keys of a record in JSON, CSV and exports
RECORD_KEYS = (
    "topic", "queueId", "queueOffset", "physicalOffset", "size", "bodyCrc", "bodyLength", "flag", "sysFlag",
    "bornTimestamp", "bornTime", "bornHost", "storeTimestamp", "storeTime", "storeHost", "reconsumeTimes",
    "preparedTransactionOffset", "msgId", "tagsCode", "path", "properties",
)  # fmt: skip
TIME_KEYS = ("bornTime", "storeTime")  # the same times as the timestamps, as RFC 3339
TEXT_KEYS = frozenset(("topic", *TIME_KEYS, "bornHost", "storeHost", "msgId"))  # keys with plain text in quotes
ROW_KEYS = (*RECORD_KEYS, "body", "bodyEncoding", "damage", "detail", "bodyCharset", "bodyError")
_PREFIX = struct.Struct(">iI")
_INT = struct.Struct(">i")
_BYTE = struct.Struct(">b")
_SHORT = struct.Struct(">h")
_V6_MASK = BORNHOST_V6 | STOREHOST_V6


class Message(NamedTuple):
    """A record of the log.

    Offsets and sizes are in bytes, queue_offset in units, times in ms since 1970.
    """

    physical_offset: int
    size: int
    magic_code: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    stored_physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host_bytes: bytes
    store_timestamp: int
    store_host_bytes: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: memoryview
    topic_bytes: bytes
    properties_bytes: bytes

    @property
    def end(self) -> int:
        """Return the physical offset of the byte after the record."""
        return self.physical_offset + self.size

    @property
    def topic(self) -> str:
        """Return the topic; bytes that are not UTF-8 become U+FFFD, as in Java."""
        return self.topic_bytes.decode("utf-8", "replace")

    @property
    def properties(self) -> dict[str, str]:
        """Return the properties, decoded again by each call."""
        return properties.decode(self.properties_bytes)

    @property
    def born_host(self) -> host.Host:
        """Return the host of the producer."""
        return host.decode(self.born_host_bytes)

    @property
    def store_host(self) -> host.Host:
        """Return the host of the broker that stored the message."""
        return host.decode(self.store_host_bytes)

    @property
    def msg_id(self) -> str:
        """Return the offset message id (offsetMsgId)."""
        return (self.store_host_bytes + self.physical_offset.to_bytes(8, "big", signed=True)).hex().upper()

    @property
    def placeholder(self) -> str | None:
        """Return the code of the damage that a placeholder replaces.

        None if the record is not a placeholder.
        """
        return placeholder_code(self.prepared_transaction_offset, self.properties)


class Blank(NamedTuple):
    """A blank of `size` bytes at the end of a file."""

    physical_offset: int
    size: int

    @property
    def end(self) -> int:
        """Return the physical offset of the next file's first byte."""
        return self.physical_offset + self.size


def placeholder_code(prepared_transaction_offset: int, message_properties: dict[str, str]) -> str | None:
    """Return the code of the damage that a placeholder replaces.

    None if the record is not a placeholder, and `unknown` if it has no room for the code.
    """
    if prepared_transaction_offset != PLACEHOLDER_SIGN:
        return None
    code = message_properties.get(properties.PLACEHOLDER, properties.PLACEHOLDER_SHORT)
    return "unknown" if code == properties.PLACEHOLDER_SHORT else code


def tags_code(message_properties: dict[str, str]) -> int:
    """Return the tagsCode that the consume queue has for an ordinary message.

    It is the hashCode of TAGS, or 0 without TAGS.
    """
    tags = message_properties.get(properties.TAGS)
    return hash_code(tags) if tags else 0


def head_of(record: bytes | memoryview, position: int = 0) -> Layout:
    """Return the head layout of the record at `position`."""
    return HEADS[_INT.unpack_from(record, position + _SYSFLAG_OFFSET)[0] & _V6_MASK]


def topic_length_size(magic: int) -> int:
    """Return the size of the topic's length field in bytes: 1 in V1, 2 in V2."""
    return 1 if magic == MAGIC_V1 else 2


def decode(
    buffer: bytes | memoryview, position: int, physical_offset: int, room: int
) -> Message | Blank | Damage | None:
    """Return the record at `position` of `buffer`, or None.

    None means that nothing was written there (eight zero bytes). Damage is returned, not raised: of several faults, the
    first that ends the log of a starting broker, or else the first. `physical_offset` is the record's offset in the
    log, `room` the number of bytes from its start to the end of its file. The buffer must contain the whole record, or
    the whole rest of the file.
    """
    if room < BLANK_SIZE:
        return Damage(
            "no-blank", physical_offset, room, "the file ends without a blank record: it was cut, or overwritten"
        )
    size, magic = _PREFIX.unpack_from(buffer, position)
    if magic in (MAGIC_V1, MAGIC_V2):
        return _decode_message(buffer, position, physical_offset, room, size, magic)
    if magic == MAGIC_BLANK:
        return _decode_blank(physical_offset, room, size)
    if size == 0 and magic == 0:
        return None
    return Damage("bad-magic", physical_offset, 0, f"the magic code is {magic:08X}, no record's")


def _decode_blank(physical_offset: int, room: int, size: int) -> Blank | Damage:
    if size == room:
        return Blank(physical_offset, size)
    return Damage("bad-blank-size", physical_offset, 0, f"the blank says {size} bytes, {room} are left in the file")


def _decode_message(
    buffer: bytes | memoryview, position: int, physical_offset: int, room: int, size: int, magic: int
) -> Message | Damage:
    if size < MIN_SIZE:
        return Damage("bad-size", physical_offset, 0, f"TOTALSIZE is {size}; the smallest record has {MIN_SIZE} bytes")
    if size > room:
        return Damage("bad-size", physical_offset, 0, f"TOTALSIZE is {size}; {room} bytes are left in the file")
    if position + size > len(buffer):
        raise ValueError(f"the buffer ends {position + size - len(buffer)} bytes before the record does")
    message = _frame(buffer, position, physical_offset, size, magic)
    if isinstance(message, Damage):
        return message
    found = _checked(message, memoryview(buffer)[position : position + size])
    if message.stored_physical_offset == physical_offset:
        return found
    detail = f"PHYSICALOFFSET is {message.stored_physical_offset}, the record is at {physical_offset}"
    if isinstance(found, Damage) and found.code == BAD_BODY_CRC and message.body:  # unlike the offset, ends the log
        return found._replace(detail=f"{found.detail}; {detail}")
    return Damage(BAD_PHYSICAL_OFFSET, physical_offset, size, detail, message)


def _frame(buffer: bytes | memoryview, position: int, physical_offset: int, size: int, magic: int) -> Message | Damage:
    """Return the record's fields, or Damage if the lengths do not add up to `size`.

    The caller has checked that `size` is at least MIN_SIZE, and that the buffer has `size` bytes at `position`.
    """
    head = head_of(buffer, position)
    end = position + size
    body_start = position + head.size
    length_size = topic_length_size(magic)
    if body_start + length_size + 2 > end:
        return Damage("bad-length", physical_offset, 0, f"TOTALSIZE {size} is too small for its hosts and lengths")
    fields = head.struct.unpack_from(buffer, position)
    body_length = fields[-1]
    topic_length_at = body_start + body_length
    if body_length < 0 or topic_length_at + length_size + 2 > end:
        return Damage("bad-length", physical_offset, 0, f"a body of {body_length} bytes in a record of {size}")
    topic_length = (_BYTE if length_size == 1 else _SHORT).unpack_from(buffer, topic_length_at)[0]
    topic_start = topic_length_at + length_size
    properties_length_at = topic_start + topic_length
    if topic_length < 0 or properties_length_at + 2 > end:
        return Damage("bad-length", physical_offset, 0, f"a topic of {topic_length} bytes in a record of {size}")
    properties_length = _SHORT.unpack_from(buffer, properties_length_at)[0]
    properties_start = properties_length_at + 2
    if properties_length < 0 or properties_start + properties_length != end:
        sums = properties_start + properties_length - position
        return Damage("bad-length", physical_offset, 0, f"TOTALSIZE is {size}, the lengths add up to {sums}")
    body = memoryview(buffer)[body_start:topic_length_at]
    topic = bytes(buffer[topic_start:properties_length_at])
    return Message._make((physical_offset, size, *fields[1:-1], body, topic, bytes(buffer[properties_start:end])))


def _checked(message: Message, record: memoryview) -> Message | Damage:
    if crc.masked_crc32(message.body) != message.body_crc and crc.mismatch_confirmed([message.body], message.body_crc):
        detail = f"the body's CRC-32 is {crc.masked_crc32(message.body)}, BODYCRC says {message.body_crc}"
        return Damage(BAD_BODY_CRC, message.physical_offset, message.size, detail, message)
    if message.properties_bytes.endswith(b"\0") and not ends_in_reserve(message.properties_bytes):
        return Damage(
            "torn-properties",
            message.physical_offset,
            message.size,
            "PROPERTIES end in zero bytes: a torn write",
            message,
        )
    problem = crc.property_crc_problem(record, message.properties_bytes)
    if problem:
        return Damage("bad-property-crc", message.physical_offset, message.size, problem, message)
    return message


def ends_in_reserve(raw: bytes) -> bool:
    """Return whether PROPERTIES end in 20 unused bytes.

    In a record for LMQ queues, brokers of 5.2.0 to 5.3.0 reserve them for `__CRC32#`.
    """
    written = raw[: -crc.PROPERTY_CRC_SIZE]
    return written.endswith(_PROPERTY_END) and _LIGHT_OFFSETS in written


class Damage(NamedTuple):
    """Bytes that the format does not allow."""

    code: str
    physical_offset: int
    size: int  # bytes; 0: only the position is known
    detail: str
    message: Message | None = None  # the record's fields, if the lengths are right
    path: str = ""  # of the file, if `physical_offset` does not identify it

    @property
    def end(self) -> int:
        """Return the first physical offset after the damage."""
        return self.physical_offset + self.size

    @property
    def message_in_its_place(self) -> Message | None:
        """Return the message if it is complete and has the right PHYSICALOFFSET."""
        found = self.message
        return found if found is not None and found.stored_physical_offset == self.physical_offset else None
