"""Receive a fixed number of bytes from a peer, before a deadline.

A time-out for each call of `recv` is not enough: a peer that sends one byte a second would hold a reader for ever.
Memory grows with the bytes that arrive, and not with the size that the peer announces.
"""

from __future__ import annotations

import socket
import time

PART_SIZE_MAX = 256 * 1024  # bytes of one call of recv


def receive_exactly(connection: socket.socket, size: int, deadline: float) -> bytearray:
    """Return the next `size` bytes; `deadline` in seconds of `time.monotonic`.

    Raises EOFError if the peer closes the connection too early, TimeoutError after the deadline, and OSError if the
    connection breaks. The argument of EOFError is the number of bytes that arrived.
    """
    received = bytearray()
    while len(received) < size:
        connection.settimeout(remaining_seconds(deadline))
        part = connection.recv(min(size - len(received), PART_SIZE_MAX))
        if not part:
            raise EOFError(len(received))
        received += part
    return received


def remaining_seconds(deadline: float) -> float:
    """Return the seconds until a deadline; raises TimeoutError if none are left."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the time is over")
    return seconds
