"""SYSFLAG, the record's flags for the broker (MessageSysFlag).

The flags 64 and 128 and the compression type (bits 8 to 10) exist since 4.9. The flag 2 (multi-tags) has no name here,
because rmqctl does not use it.
"""

from __future__ import annotations

from enum import IntEnum

COMPRESSED = 0x1
TRANSACTION_MASK = 0xC
BORNHOST_V6 = 0x10
STOREHOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_TYPE_SHIFT = 8
COMPRESSION_TYPE_MASK = 0x700


class TransactionType(IntEnum):
    """The type of a transaction record: SYSFLAG & 12.

    Prepared and rollback records get no consume queue unit.
    """

    NONE = 0
    PREPARED = 4
    COMMIT = 8
    ROLLBACK = 12


def transaction_type(sys_flag: int) -> TransactionType:
    """Return the transaction type of a record."""
    return TransactionType(sys_flag & TRANSACTION_MASK)


_COMPRESSION_NAMES = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}


def compression(sys_flag: int) -> str | None:
    """Return how the body is compressed: `zlib`, `lz4`, `zstd` or `unknown`, or None."""
    if not sys_flag & COMPRESSED:
        return None
    kind = (sys_flag & COMPRESSION_TYPE_MASK) >> COMPRESSION_TYPE_SHIFT
    return _COMPRESSION_NAMES.get(kind, "unknown")
