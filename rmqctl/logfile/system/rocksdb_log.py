"""The files that RocksDB appends to: MANIFEST, and write-ahead logs (.log).

They have blocks of 32 KiB, and each block has records: checksum4 size2 kind1 data, little-endian. The checksum is the
CRC-32C of kind and data, rotated and shifted (db/log_format.h and util/crc32c.h of RocksDB). The functions take a file
in parts of whole blocks, each with its position; holes may be left out.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

BLOCK = 32 * 1024
_HEADER = struct.Struct("<IHB")
_EMPTY = bytes(_HEADER.size)
_KINDS = range(1, 5)  # a whole record; the first, a middle and the last part of one
_RECYCLABLE = range(5, 9)  # the same in a file that was used before; brokers set no recycle_log_file_num
_MASK = 0xA282EAD8


class _Record(NamedTuple):
    position: int
    checksum: int
    size: int
    kind: int


def first_damage(parts: Iterable[tuple[int, bytes]]) -> int | None:
    """Return the position of the first damaged record.

    None if there is none, or if only the end is missing: a broker that is killed writes a part of its last record.
    """
    for at, data in parts:
        damage = _first_damage(data)
        if damage is not None:
            return at + damage
    return None


def endless_at(parts: Iterable[tuple[int, bytes]]) -> int | None:
    """Return the position of a damaged record that would keep RocksDB busy for ever.

    None without one, or if RocksDB ends before it in the same part.
    """
    for at, data in parts:
        if any(record.kind in _RECYCLABLE for record in _records(data)):
            damage = _first_damage(data)
            if damage is not None and data[damage + _HEADER.size - 1] in _RECYCLABLE:
                return at + damage
    return None


def _first_damage(data: bytes) -> int | None:
    for record in _records(data):
        begin, end = record.position + _HEADER.size, record.position + _HEADER.size + record.size
        if end > len(data) and end <= _block_end(begin):
            return None if record.kind in _KINDS and _is_torn(data, record) else record.position
        if end > _block_end(begin) or not _is_right(data, record):
            return record.position
    return None


def _records(data: bytes) -> Iterator[_Record]:
    position = 0
    while position + _HEADER.size <= len(data):
        left = _block_end(position) - position
        is_empty = data[position : position + _HEADER.size] == _EMPTY and not any(data[position : position + left])
        if left < _HEADER.size or is_empty:  # the rest of a block, or no data yet
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
    return (position // BLOCK + 1) * BLOCK


@cache
def _crc32c() -> Callable[[bytes], int]:
    import crcmod.predefined  # slow to import

    return cast("Callable[[bytes], int]", crcmod.predefined.mkCrcFun("crc-32c"))
