"""JSON Lines from a file or a pipe, in blocks of whole lines."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, BinaryIO, cast

from rmqctl.cli.shared.interruption import Interruption

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedIOBase

BLOCK_SIZE = 1024 * 1024  # bytes of lines


def blocks_of_lines(source: BinaryIO, interruption: Interruption) -> Iterator[bytes]:
    """Yield blocks of whole lines as soon as the lines arrive.

    After `interruption` has noted a signal, no more blocks are yielded.
    """
    reader = cast("BufferedIOBase", source)
    rest: list[bytes] = []
    while not interruption.noted:
        read = b""
        with interruption.waiting():
            read = reader.read1(BLOCK_SIZE)
        if not read:
            break
        cut = read.rfind(b"\n") + 1
        if cut:
            yield b"".join((*rest, read[:cut]))
            rest = []
        rest.append(read[cut:])
    if any(rest) and not interruption.noted:
        yield b"".join(rest)


def size_of_source(source: BinaryIO | None) -> int:
    """Return the size of a file in bytes, or 0 for a source without a size."""
    if source is None or source is sys.stdin.buffer or not source.seekable():
        return 0
    return os.fstat(source.fileno()).st_size
