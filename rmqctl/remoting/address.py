"""The address of a broker: `HOST:PORT`."""

from __future__ import annotations

from typing import NamedTuple

from rmqctl.errors import BadRequest

PORT_MAX = 65535
SHOWN_LENGTH_MAX = 80  # characters of a wrong address that the error shows
HOST_LENGTH_MAX = 253  # characters of a host name


class Address(NamedTuple):
    """A host name or IP address, and a port from 1 to 65535."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return the address as text: `10.1.2.3:10911` or `[2001:db8::1]:10911`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Return the address of `HOST:PORT`; an IPv6 host must be in brackets.

    Raises BadRequest if the text is not an address.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    number = int(port) if port.isascii() and port.isdecimal() and len(port) <= len(str(PORT_MAX)) else 0
    if not colon or not _is_host(host) or not 0 < number <= PORT_MAX:
        raise BadRequest(
            f"{text[:SHOWN_LENGTH_MAX]!r} is not an address; expected HOST:PORT, for example 10.1.2.3:10911"
        )
    return Address(host, number)


def _is_host(text: str) -> bool:
    """Return whether a text can be the name or the IP address of a host.

    In a host name, each label between the dots has 1 to 63 bytes.
    """
    try:
        return len(text) <= HOST_LENGTH_MAX and text.isprintable() and bool(text.encode("idna"))
    except UnicodeError:
        return False
