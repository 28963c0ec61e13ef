"""The addresses that may connect; the protocols have no authentication."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence

from rmqctl.errors import BadRequest

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LOOPBACK_NETWORKS = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))


class Access:
    """The address to listen on, and the networks that may connect.

    `address` is the IP address of `host`. Without `networks`, only loopback addresses may connect. Raises BadRequest if
    `host` is not a single address of this machine, or if it is not loopback and `networks` is empty.
    """

    def __init__(self, host: str, networks: Sequence[Network] = ()) -> None:
        try:
            self.address = str(socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][4][0])
            parsed = ipaddress.ip_address(self.address)
        except (OSError, ValueError):
            raise BadRequest(f"{host!r} is not an address of this machine") from None
        if parsed.is_unspecified:
            raise BadRequest(f"{host} is every address: give the one that slaves reach, they are told to connect to it")
        if not parsed.is_loopback and not networks:
            what = f"{host} is not loopback, and the protocol has no authentication"
            raise BadRequest(what, hint="--allow CIDR names the addresses that may read the whole store")
        self._networks = tuple(networks) or LOOPBACK_NETWORKS

    def accepts(self, host: str) -> bool:
        """Return whether a client with the IP address `host` may connect.

        A host name may not.
        """
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)
