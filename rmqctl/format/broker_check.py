"""A broker's check of a record (CommitLog.checkMessageAndReturnSize).

A broker checks records during recovery and during dispatch, and less than `rmqctl.format.message` does:

- It copies PHYSICALOFFSET into the consume queue without a check.
- It ignores the checksum of an empty body.
- It ignores `__CRC32#` without forceVerifyPropCRC. With it (5.2.0 and later), recovery requires `__CRC32#` of each
  record and ignores BODYCRC.
- It treats a negative length of body or properties as 0.
- With duplicationEnable, 5.x requires DUP_INFO of each record with properties.

Up to 4.5.2, the hosts have 8 bytes, whatever SYSFLAG says. Up to 5.0.0, V2 records are not valid. Up to 5.3.1, the
magic code alone decides whether a record is a blank; 5.3.2 and later first compare the TOTALSIZE of a record or blank
with the number of bytes left in the file. If the lengths in a record do not add up to TOTALSIZE, dispatch skips
TOTALSIZE bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

from rmqctl.format import crc, message, properties
from rmqctl.format.message import BLANK_SIZE, HEAD_SIZE_MAX, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Message
from rmqctl.format.profile import StartRules

# (position in the record, number of bytes) -> the bytes; fewer at the file's end
Read = Callable[[int, int], bytes]

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_BLOCK_SIZE = 1024 * 1024
_PREFIX = struct.Struct(">iI")
_DIGITS_MAX = 19
_CRC_DIGITS_MAX = 10
_DUP_INFO_PARTS = 2
_SHORT_BITS, _INT_BITS, _LONG_BITS = 16, 32, 64


class Checked(NamedTuple):
    """The result of a broker's check of a record."""

    size: int  # TOTALSIZE of a good record, or if only the sum of the lengths is wrong; 0: a blank; -1: bad
    message: Message | None = None  # of a good record, without its body; `physical_offset` is its PHYSICALOFFSET
    problem: str = ""  # of a bad record
    consumed: int = 0  # the sum of the lengths, if only that is wrong

    @property
    def is_blank(self) -> bool:
        """Return whether the record is a blank."""
        return not self.problem and self.message is None


def check_message_and_return_size(read: Read, room: int, rules: StartRules, *, check_crc: bool) -> Checked:
    """Check a record as a broker of `rules` does; `read` returns the record's bytes.

    `room` is the number of bytes from the record's start to the end of its file. Set `check_crc` for recovery, not for
    dispatch. Raises the errors that `read` raises.
    """
    if room < BLANK_SIZE:
        return _bad("the file ends without a blank record")
    size, magic = _PREFIX.unpack(read(0, BLANK_SIZE))
    if rules.checks_room and room < size:
        return _bad(f"TOTALSIZE is {size}, {room} bytes are left in the file")
    if magic == MAGIC_BLANK:
        return Checked(0)
    if magic != MAGIC_V1 and not (magic == MAGIC_V2 and rules.knows_long_topics):
        return _bad(f"the magic code is {magic:08X}, no record's")
    checked = _check_message(read, room, size, magic, rules, check_crc=check_crc)
    if checked.message is None:
        return checked
    if not _numbers_are_read(checked.message, rules):
        return _bad("a property that should be a number is none")
    if not check_crc:
        return checked
    if rules.requires_dup_info and checked.message.properties_bytes and not _has_dup_info(checked.message):
        return _bad("the record has no DUP_INFO, which duplicationEnable requires")
    problem = _property_crc_problem(read, checked.message) if rules.force_verify_prop_crc else ""
    return _bad(problem) if problem else checked


def _check_message(read: Read, room: int, size: int, magic: int, rules: StartRules, *, check_crc: bool) -> Checked:
    head = read(0, HEAD_SIZE_MAX)
    if size < message.HOST_V4:
        return _bad(f"TOTALSIZE is {size}")
    if len(head) < message.HEADS[0].size:
        return _bad("the file ends inside the record")
    layout = message.head_of(head) if rules.knows_ipv6 else message.HEADS[0]
    if len(head) < layout.size:
        return _bad("the file ends inside the record")
    fields = layout.struct.unpack_from(head)
    body_length = max(fields[-1], 0)
    topic_at = layout.size + body_length
    if (check_crc and body_length > size) or topic_at > room:
        return _bad(f"a body of {body_length} bytes in a record of {size}")
    body_crc = fields[2]
    checks_body = check_crc and body_length and not rules.force_verify_prop_crc
    if checks_body and _crc32(read, layout.size, body_length) != body_crc:
        return _bad(f"the body's checksum is not BODYCRC, {body_crc}")
    length_size = message.topic_length_size(magic)
    topic_length = _integer(read(topic_at, length_size), length_size)
    if topic_length is None or not 0 <= topic_length <= size:
        return _bad(f"a topic of {topic_length} bytes in a record of {size}")
    topic = read(topic_at + length_size, topic_length)
    properties_at = topic_at + length_size + topic_length + 2
    properties_length = _integer(read(properties_at - 2, 2), 2)
    if len(topic) < topic_length or properties_length is None or properties_length > size:
        return _bad(
            "the file ends inside the record"
            if properties_length is None
            else f"properties of {properties_length} bytes"
        )
    wanted = max(properties_length, 0)
    raw_properties = read(properties_at, wanted) if wanted else b""
    if len(raw_properties) < wanted:
        return _bad("the file ends inside the record")
    read_length = properties_at + wanted
    if size != read_length:
        return Checked(size, None, f"TOTALSIZE is {size}, the lengths add up to {read_length}", read_length)
    found = Message._make((fields[6], size, *fields[1:-1], memoryview(b""), topic, raw_properties))
    return Checked(size, found)


def _bad(problem: str) -> Checked:
    return Checked(-1, None, problem)


def _integer(raw: bytes, size: int) -> int | None:
    return int.from_bytes(raw, "big", signed=True) if len(raw) == size else None


def _crc32(read: Read, start: int, size: int) -> int:
    value = 0
    for at in range(start, start + size, _BLOCK_SIZE):
        value = zlib.crc32(read(at, min(_BLOCK_SIZE, start + size - at)), value)
    return value & crc.CRC_MASK


def _numbers_are_read(found: Message, rules: StartRules) -> bool:
    """Return whether Java can parse the properties that must be numbers.

    These are DELAY in SCHEDULE_TOPIC_XXXX, and in 5.x INNER_BASE and INNER_NUM.
    """
    given = properties.decode(found.properties_bytes, values_may_have_separators=rules.values_may_have_separators)
    level = given.get(properties.DELAY)
    if level is not None and found.topic == SCHEDULE_TOPIC and not _is_number(level, _INT_BITS):
        return False
    base, count = given.get(properties.INNER_BASE), given.get(properties.INNER_NUM)
    if base is None or count is None or not rules.has_batch_queues:
        return True
    return _is_number(base, _LONG_BITS) and _is_number(count, _SHORT_BITS)


def _is_number(text: str, bits: int) -> bool:
    digits = text[1:] if text[:1] in ("+", "-") else text
    limit = 1 << (bits - 1)
    return digits.isdecimal() and len(digits) <= _DIGITS_MAX and -limit <= int(text) < limit


def _has_dup_info(found: Message) -> bool:
    info = found.properties.get(properties.DUP_INFO)
    return info is not None and len(info.rstrip("_").split("_")) == _DUP_INFO_PARTS  # Java's split drops empty ends


def _property_crc_problem(read: Read, found: Message) -> str:
    """Return why `__CRC32#` does not confirm a record, or ""."""
    text = found.properties.get(properties.CRC32)
    if text is None:
        return "the record has no __CRC32#, which forceVerifyPropCRC requires"
    is_number = text.isascii() and text.isdecimal() and len(text) <= _CRC_DIGITS_MAX
    expected = int(text[::-1]) if is_number else -1
    if _crc32(read, 0, found.size - crc.PROPERTY_CRC_SIZE) != expected:
        return "the record's checksum is not __CRC32#, which forceVerifyPropCRC requires"
    return ""
