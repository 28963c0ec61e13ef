"""Receive a fixed number of bytes from a peer, before a deadline.

One deadline for all bytes stops a peer that sends one byte per second. Memory use depends on the bytes that arrive, not
on the size that the peer announces.
"""

from __future__ import annotations

import socket
import time

PART_SIZE_MAX = 256 * 1024  # bytes of one call of recv


def receive_exactly(connection: socket.socket, size: int, deadline: float) -> bytearray:
    """Return the next `size` bytes that a peer sends before a deadline.

    `deadline` is a time in seconds, as `time.monotonic` returns it. Raises EOFError, with the number of bytes that
    arrived, if the peer closes the connection too early, TimeoutError after the deadline, and OSError if the connection
    breaks.
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
    """Return the seconds until a deadline; raise TimeoutError after the deadline."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the time is over")
    return seconds
