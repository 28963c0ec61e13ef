"""The fields BORNHOST and STOREHOST, and the msgId, which contains STOREHOST.

A host is an address of 4 or 16 bytes, and a port of 4 bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

PORT_SIZE = 4
HOSTS_KNOWN = 4096
MSG_ID_HEX_V4 = 32
MSG_ID_HEX_V6 = 56
_HEX_DIGITS = frozenset("0123456789ABCDEFabcdef")


class Host(NamedTuple):
    """An address (4 or 16 bytes) and a port."""

    address: bytes
    port: int

    def __str__(self) -> str:
        """Return the host as text: `10.1.2.3:30001` or `[2001:db8::1]:30001`."""
        if len(self.address) == 4:
            return f"{'.'.join(map(str, self.address))}:{self.port}"
        import ipaddress  # rare, and slow to import

        return f"[{ipaddress.ip_address(self.address)}]:{self.port}"


def decode(raw: bytes) -> Host:
    """Decode a host from 8 or 20 bytes."""
    return Host(raw[:-PORT_SIZE], int.from_bytes(raw[-PORT_SIZE:], "big", signed=True))


@lru_cache(maxsize=HOSTS_KNOWN)
def encode(host: Host) -> bytes:
    """Encode a host as 8 or 20 bytes."""
    return host.address + host.port.to_bytes(PORT_SIZE, "big", signed=True)


def msg_id(store_host: Host, physical_offset: int) -> str:
    """Return the offset message id (MessageDecoder.createMessageId).

    It is upper-case hex text: 32 characters with IPv4, and 56 with IPv6.
    """
    return (encode(store_host) + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()


def parse_msg_id(text: str) -> tuple[Host, int]:
    """Return the store host and the physical offset of a msgId.

    Raises ValueError if the text is not a msgId.
    """
    if len(text) not in (MSG_ID_HEX_V4, MSG_ID_HEX_V6) or not _HEX_DIGITS.issuperset(text):
        raise ValueError(f"{text!r} is no msgId: that has {MSG_ID_HEX_V4} or {MSG_ID_HEX_V6} hex digits")
    raw = bytes.fromhex(text)
    offset = int.from_bytes(raw[-8:], "big", signed=True)
    if offset < 0:
        raise ValueError("its physical offset is negative")
    return decode(raw[:-8]), offset
