"""Encode a message as a record of the log, byte for byte as a broker does.

`record` makes a record whose place in the log is known. `encode` makes the parts that do not depend on it, and
`Encoded.placed` adds the fields that CommitLog sets under its lock: QUEUEOFFSET, PHYSICALOFFSET, STORETIMESTAMP and
`__CRC32#`. `rmqctl.format.message` has the layout.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from zlib_ng.zlib_ng import crc32

from rmqctl.format import crc, host
from rmqctl.format.crc import CRC_MASK
from rmqctl.format.host import Host
from rmqctl.format.message import HEADS, MAGIC_V1, MAGIC_V2, Message, topic_length_size
from rmqctl.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqctl.format.sys_flag import BORNHOST_V6, STOREHOST_V6

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC_LENGTH_MAX_V1, TOPIC_LENGTH_MAX_V2 = 127, 32767
PROPERTIES_LENGTH_MAX = 32767
TOPICS_KNOWN = 4096
_BYTE, _SHORT = struct.Struct(">b"), struct.Struct(">h")
_V6_MASK = BORNHOST_V6 | STOREHOST_V6
_FIELDS_OF_HEAD = Message._fields.index("body")


class MessageExtBrokerInner(NamedTuple):
    """A message that a broker is about to store; times are in ms since 1970."""

    topic: str
    body: bytes
    properties: dict[str, str]
    born_host: Host
    store_host: Host
    born_timestamp: int
    queue_id: int = 0
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class _Hosts(NamedTuple):
    """The parts of a record that depend on its two hosts."""

    flags: int
    head_size: int
    pack: Callable[..., bytes]
    born: bytes
    store: bytes


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """The parts and the size (bytes) of a record that has no place in the log yet."""

    message: MessageExtBrokerInner
    topic: TopicField
    properties: bytes
    body_crc: int
    size: int
    property_crc: bool

    def placed(self, queue_offset: int, physical_offset: int, store_timestamp: int) -> bytes:
        """Return the whole record, with its place in the log and its store time.

        The queue offset is in units, the physical offset in bytes, the time in ms since 1970.
        """
        return record(
            self.message, self.topic, self.properties, self.body_crc, queue_offset, physical_offset, store_timestamp,
            property_crc=self.property_crc,
        )  # fmt: skip


def properties_to_bytes(properties: dict[str, str], *, end_with_separator: bool, property_crc: bool = False) -> bytes:
    """Return properties as MessageDecoder.messageProperties2String writes them.

    With `property_crc`, 20 zero bytes are appended as room for `__CRC32#`.
    """
    text = ""
    for name, value in properties.items():
        text += f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}"
    if not (end_with_separator or property_crc):
        text = text[:-1]
    raw = text.encode(errors="surrogateescape")
    return raw + bytes(crc.PROPERTY_CRC_SIZE) if property_crc else raw


def encode(
    message: MessageExtBrokerInner, properties: bytes, topic: TopicField, *, property_crc: bool = False
) -> Encoded:
    """Return a message as a record that has no place in the log yet.

    `properties` are the bytes of the field PROPERTIES, whose length the caller has checked. With `property_crc`, the
    last 20 of them are reserved for `__CRC32#`.
    """
    head_size = _hosts(message.born_host, message.store_host).head_size
    size = head_size + len(message.body) + len(topic.raw) + _SHORT.size + len(properties)
    return Encoded(message, topic, properties, body_crc_of(message.body), size, property_crc)


def body_crc_of(body: bytes) -> int:
    """Return the BODYCRC of a body."""
    return crc32(body) & CRC_MASK


def record(
    message: MessageExtBrokerInner,
    topic: TopicField,
    properties: bytes,
    body_crc: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
    *,
    property_crc: bool,
) -> bytes:
    """Return the whole record of a message.

    `properties` and `property_crc` are as in `encode`. The queue offset is in units, the physical offset in bytes, the
    store time in ms since 1970.
    """
    # unpacked at once, because a field of a named tuple costs as much as all of them
    _, body, _, born_host, store_host, born_timestamp, queue_id, flag, sys_flag, reconsume_times, prepared = message
    magic, raw_topic = topic
    host_flags, head_size, pack, born, store = _hosts(born_host, store_host)
    body_size, properties_size = len(body), len(properties)
    size = head_size + body_size + len(raw_topic) + _SHORT.size + properties_size
    head = pack(
        size, magic, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag | host_flags, born_timestamp,
        born, store_timestamp, store, reconsume_times, prepared, body_size,
    )  # fmt: skip
    made = b"".join((head, body, raw_topic, _SHORT.pack(properties_size), properties))
    if not property_crc:
        return made
    covered = made[: -crc.PROPERTY_CRC_SIZE]
    return covered + crc.property_crc(crc.masked_crc32(covered))


class TopicField(NamedTuple):
    """A topic as stored (the length and the text), and the record's magic code."""

    magic: int
    raw: bytes


@lru_cache(maxsize=TOPICS_KNOWN)
def topic_field(topic: str, *, long_topics: bool) -> TopicField | None:
    """Return a topic as a record stores it, or None if it is too long.

    `long_topics` allows V2 records, for topics longer than 127 bytes.
    """
    raw = topic.encode("utf-8", "surrogateescape")
    if len(raw) <= TOPIC_LENGTH_MAX_V1:
        return TopicField(MAGIC_V1, _BYTE.pack(len(raw)) + raw)
    return (
        TopicField(MAGIC_V2, _SHORT.pack(len(raw)) + raw) if long_topics and len(raw) <= TOPIC_LENGTH_MAX_V2 else None
    )


@lru_cache(maxsize=host.HOSTS_KNOWN)
def _hosts(born: Host, store: Host) -> _Hosts:
    flags = (BORNHOST_V6 if len(born.address) == 16 else 0) | (STOREHOST_V6 if len(store.address) == 16 else 0)
    head = HEADS[flags]
    return _Hosts(flags, head.size, head.struct.pack, host.encode(born), host.encode(store))


def ends_in_property_crc(raw: bytes) -> bool:
    """Return whether PROPERTIES end in `__CRC32#`."""
    return raw[-crc.PROPERTY_CRC_SIZE :].startswith(crc.PROPERTY_CRC_NAME)


def message_bytes(message: Message, *, property_crc: bool) -> bytes:
    """Return the record that a decoded message with changed fields makes.

    `size` and `body_crc` must fit the other fields. With `property_crc`, `__CRC32#` is appended to `properties_bytes`.
    """
    head = HEADS[message.sys_flag & _V6_MASK].struct.pack(*message[1:_FIELDS_OF_HEAD], len(message.body))
    topic_length = len(message.topic_bytes).to_bytes(topic_length_size(message.magic_code), "big")
    properties_length = len(message.properties_bytes) + (crc.PROPERTY_CRC_SIZE if property_crc else 0)
    tail = _SHORT.pack(properties_length) + message.properties_bytes
    covered = b"".join((head, message.body, topic_length, message.topic_bytes, tail))
    return covered + crc.property_crc(crc.masked_crc32(covered)) if property_crc else covered
