"""Ports for a real broker that no other test, process or connection takes."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

FIRST_PORT, LAST_PORT = 12_000, 32_000  # below the ports that a system gives to connections
BELOW, ABOVE = 2, 1  # a broker of port P also listens on P-2 (the "VIP" port) and P+1 (HA)
BLOCK = BELOW + 1 + ABOVE
TRIES = 200


@contextmanager
def held_port() -> Iterator[int]:
    """Yield a port P such that P-2 to P+1 are free.

    Until the end of the block, no other caller on this machine gets one of them. Else two brokers that start at the
    same time could get the same port, because a broker binds its port seconds later. The hold is an abstract socket:
    the system drops it when the process ends. Raises RuntimeError if no port is free.
    """
    for _ in range(TRIES):
        port = random.randrange(FIRST_PORT, LAST_PORT, BLOCK) + BELOW
        with socket.socket(socket.AF_UNIX) as hold:
            if _binds(hold, f"\0rmqctl-port-{port}") and all(map(_is_free, range(port - BELOW, port + ABOVE + 1))):
                yield port
                return
    raise RuntimeError("no free ports on loopback")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return _binds(probe, ("", port))


def _binds(probe: socket.socket, address: str | tuple[str, int]) -> bool:
    try:
        probe.bind(address)
    except OSError:
        return False
    return True
