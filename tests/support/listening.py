"""The addresses that the processes below this one listen on, by /proc."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

LISTENING = "0A"


def addresses_of_children() -> set[str]:
    """The IP addresses of the listening TCP sockets of every process below this one."""
    inodes = {inode for process in _below(os.getpid()) for inode in _sockets(process)}
    return {address for address, inode in _listeners() if inode in inodes}


def _below(process: int) -> Iterator[int]:
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            yield child
            yield from _below(child)


def _sockets(process: int) -> Iterator[str]:
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            target = str(descriptor.readlink())
            if target.startswith("socket:["):
                yield target[len("socket:[") : -1]


def _listeners() -> Iterator[tuple[str, str]]:
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENING:
                yield _address(words[1].partition(":")[0]), words[9]


def _address(text: str) -> str:
    """The kernel prints words of 4 bytes in the host's order; an IPv4 address in an IPv6 one is the last word."""
    words = [struct.pack("=I", int(text[at : at + 8], 16)) for at in range(0, len(text), 8)]
    if len(words) == 1 or text.startswith("0000000000000000FFFF0000"):
        return socket.inet_ntop(socket.AF_INET, words[-1])
    return socket.inet_ntop(socket.AF_INET6, b"".join(words))
