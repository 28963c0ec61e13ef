"""The two checksums of a record: BODYCRC, and the property `__CRC32#`.

BODYCRC is the checksum of the body, `__CRC32#` (5.2 and later) that of all earlier bytes of the record. This property
is the record's last 20 bytes: the name (8 bytes), 0x01, ten decimal digits *least significant first*, and 0x02. Both
checksums are CRC-32 (IEEE) AND 0x7FFFFFFF. If zlib finds a mismatch, rmqctl computes the checksum again with crcmod
before it reports the mismatch.
"""

from __future__ import annotations

import zlib
from functools import cache
from typing import TYPE_CHECKING, cast

from rmqctl.format import properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CRC_MASK = 0x7FFFFFFF
PROPERTY_CRC_NAME = properties.CRC32.encode()
PROPERTY_CRC_SIZE = 20
_DIGITS = slice(-11, -1)


def masked_crc32(data: bytes | memoryview) -> int:
    """Return CRC-32 AND 0x7FFFFFFF, as UtilAll.crc32 does."""
    return zlib.crc32(data) & CRC_MASK


def masked_crc32_of(blocks: Iterable[bytes]) -> int:
    """Return CRC-32 AND 0x7FFFFFFF of data in several blocks."""
    value = 0
    for block in blocks:
        value = zlib.crc32(block, value)
    return value & CRC_MASK


@cache
def _crcmod_crc32() -> Callable[[bytes, int], int]:
    import crcmod.predefined  # imported only after a mismatch, because the import is slow

    return cast("Callable[[bytes, int], int]", crcmod.predefined.mkCrcFun("crc-32"))


def mismatch_confirmed(blocks: Iterable[bytes | memoryview], stored: int) -> bool:
    """Compute the checksum with crcmod, and return whether `stored` is wrong."""
    value = 0
    for block in blocks:
        value = _crcmod_crc32()(bytes(block), value)
    return value & CRC_MASK != stored


def property_crc_value(crc: int) -> bytes:
    """Return a checksum as ten digits, least significant first.

    >>> property_crc_value(451390881)
    b'1880931540'
    """
    return f"{crc:010d}"[::-1].encode()


def property_crc(value: int) -> bytes:
    """Return the property `__CRC32#`, whose size is 20 bytes."""
    return PROPERTY_CRC_NAME + b"\x01" + property_crc_value(value) + b"\x02"


def stored_property_crc(properties: bytes) -> int | None:
    """Return the checksum in a record's last property, `__CRC32#`.

    None if its digits are not valid.
    """
    digits = properties[-PROPERTY_CRC_SIZE:][_DIGITS]
    return int(digits[::-1]) if digits.isdigit() else None


def property_crc_problem(record: bytes | memoryview, properties: bytes) -> str | None:
    """Return the problem of a record's `__CRC32#`, or None if it is right or missing.

    `record` is the whole record, and `properties` are its properties. A last property with the right checksum but a
    different name counts as a damaged `__CRC32#`: a record without `__CRC32#` almost never ends in its own checksum.
    """
    if len(properties) < PROPERTY_CRC_SIZE:
        return None
    tail = properties[-PROPERTY_CRC_SIZE:]
    named = tail.startswith(PROPERTY_CRC_NAME)
    shaped = tail[8] == 1 and tail[-1] == 2 and tail[_DIGITS].isdigit()
    if not named and not shaped:
        return None
    covered = record[:-PROPERTY_CRC_SIZE]
    right = tail[_DIGITS] == property_crc_value(masked_crc32(covered))
    if named and shaped and right:
        return None
    if not named:
        return f"the property with the record's CRC is named {tail[:8]!r} instead of __CRC32#" if right else None
    if not shaped:
        return "the property __CRC32# is malformed"
    stored = stored_property_crc(properties)
    if stored is None or not mismatch_confirmed([covered], stored):
        return None
    return f"the record's CRC-32 is {masked_crc32(covered)}, its property __CRC32# says {stored}"
