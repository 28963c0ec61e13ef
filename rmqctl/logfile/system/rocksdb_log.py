"""The files that RocksDB appends to: MANIFEST, and write-ahead logs (.log).

They have blocks of 32 KiB, and each block has records: checksum4 size2 kind1 data, little-endian. The checksum is the
CRC-32C of kind and data, rotated and shifted (db/log_format.h and util/crc32c.h of RocksDB).
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BLOCK = 32 * 1024
_HEADER = struct.Struct("<IHB")
_KINDS = range(1, 5)  # a whole record; the first, a middle and the last part of one
_RECYCLABLE = range(5, 9)  # the same in a file that was used before; brokers set no recycle_log_file_num
_MASK = 0xA282EAD8


class _Record(NamedTuple):
    position: int
    checksum: int
    size: int
    kind: int


def first_damage(data: bytes) -> int | None:
    """Return the position of the first damaged record.

    None if there is none, or if only the end is missing: a broker that is killed writes a part of its last record.
    """
    for record in _records(data):
        begin, end = record.position + _HEADER.size, record.position + _HEADER.size + record.size
        if end > len(data) and end <= _block_end(begin):
            return None if _is_torn(data, record) else record.position
        if end > _block_end(begin) or not _is_right(data, record):
            return record.position
    return None


def endless_at(data: bytes) -> int | None:
    """Return the position of a damaged record that would keep RocksDB busy for ever.

    None without one, or if RocksDB ends before it.
    """
    if not any(record.kind in _RECYCLABLE for record in _records(data)):
        return None
    damage = first_damage(data)
    return damage if damage is not None and data[damage + _HEADER.size - 1] in _RECYCLABLE else None


def _records(data: bytes) -> Iterator[_Record]:
    position = 0
    while position + _HEADER.size <= len(data):
        left = _block_end(position) - position
        if left < _HEADER.size or not any(data[position : position + left]):  # the rest of a block, or no data yet
            position += left
            continue
        record = _Record(position, *_HEADER.unpack_from(data, position))
        yield record
        position += _HEADER.size + record.size


def _is_torn(data: bytes, record: _Record) -> bool:
    whole = record._replace(size=len(data) - record.position - _HEADER.size)
    later = (_Record(at, *_HEADER.unpack_from(data, at)) for at in range(record.position + 1, len(data) - _HEADER.size))
    return not any(found.kind in _KINDS and _is_right(data, found) for found in (whole, *later))


def _is_right(data: bytes, record: _Record) -> bool:
    begin = record.position + _HEADER.size - 1  # of the kind
    end = begin + 1 + record.size
    if end > len(data):
        return False
    value = _crc32c()(data[begin:end])
    return record.checksum == ((value >> 15 | value << 17) + _MASK) & 0xFFFFFFFF


def _block_end(position: int) -> int:
    return (position // _BLOCK + 1) * _BLOCK


@cache
def _crc32c() -> Callable[[bytes], int]:
    import crcmod.predefined  # slow to import

    return cast("Callable[[bytes], int]", crcmod.predefined.mkCrcFun("crc-32c"))
