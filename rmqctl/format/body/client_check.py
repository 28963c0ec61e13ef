"""Messages that a consumer's client cannot decode.

The client rejects such a message, and all later ones in the same pull: it returns only the messages before it. The
rules were measured with MessageDecoder.decodes of 4.7.1, 4.9.7, 5.0.0 and 5.3.3.

| record | clients |
|---|---|
| BORNHOST or STOREHOST with a port outside 0 to 65535 | reject |
| COMPRESSED, and the body does not inflate as its compression type says (0 and 3 zlib, 1 lz4, 2 zstd) | reject |
| COMPRESSED with a compression type of 4 to 7 | reject since 4.9; 4.7.1 treats all types as zlib |
| COMPRESSED with an empty body; a compression type without COMPRESSED | decode |

BODYCRC covers the body, but not SYSFLAG: if it is right and the compression type does not fit the body, SYSFLAG is
damaged. The first bytes of the body are enough to detect this. `rmqctl.kernels.dispatch_scan` has the same checks for
messages in columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.format.sys_flag import COMPRESSED, COMPRESSION_TYPE_MASK, COMPRESSION_TYPE_SHIFT

if TYPE_CHECKING:
    from rmqctl.format.message import Message

BAD_PORT = "bad-port"  # the code of a Finding
BAD_COMPRESSION = "bad-compression"  # the code of a Finding
PORT_MAX = 65535
LZ4_START, ZSTD_START = bytes.fromhex("04224d18"), bytes.fromhex("28b52ffd")
_ZLIB_TYPES, _LZ4_TYPE, _ZSTD_TYPE = (0, 3), 1, 2


def has_bad_port(message: Message) -> bool:
    """Return whether a client rejects the message because of a host's port."""
    return any(not 0 <= host.port <= PORT_MAX for host in (message.born_host, message.store_host))


def has_bad_compression(message: Message) -> bool:
    """Return whether a client cannot inflate the body."""
    if not message.sys_flag & COMPRESSED or not message.body:
        return False
    kind = (message.sys_flag & COMPRESSION_TYPE_MASK) >> COMPRESSION_TYPE_SHIFT
    start = bytes(message.body[:4])
    if kind in _ZLIB_TYPES:
        return not begins_as_zlib(start)
    return start != {_LZ4_TYPE: LZ4_START, _ZSTD_TYPE: ZSTD_START}.get(kind)


def begins_as_zlib(start: bytes) -> bool:
    """Return whether a body begins as a zlib stream without a dictionary (RFC 1950)."""
    return (
        len(start) > 1
        and start[0] & 0x8F == 0x08
        and start[1] & 0x20 == 0
        and int.from_bytes(start[:2], "big") % 31 == 0
    )
