"""JSON Lines from a file or a pipe, in blocks of whole lines."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from rmqctl.cli.shared.interruption import Interruption

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedIOBase

BLOCK_SIZE = 1024 * 1024  # bytes of lines


class Source(click.File):
    """The type of an option that names a file to read, or `-` for stdin."""

    def __init__(self) -> None:
        super().__init__("rb")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Open the source; a closed stdin is no empty one."""
        if value == "-" and sys.__stdin__ is None:
            self.fail("stdin is closed: name a file, or use a pipe", param, ctx)
        return super().convert(value, param, ctx)


def blocks_of_lines(source: BinaryIO, interruption: Interruption) -> Iterator[memoryview]:
    """Yield blocks of whole lines as soon as the lines arrive.

    The next block overwrites a block, because all blocks are in one buffer. The buffer grows only for a long line.
    After `interruption` has noted a signal, no more blocks are yielded.
    """
    reader = cast("BufferedIOBase", source)
    buffer, rest = bytearray(BLOCK_SIZE), 0
    while not interruption.noted:
        read = 0
        with interruption.waiting():
            read = reader.readinto1(memoryview(buffer)[rest:])
        if not read:
            break
        end = rest + read
        cut = buffer.rfind(b"\n", rest, end) + 1
        if cut:
            yield memoryview(buffer)[:cut]
        rest = end - cut
        buffer[:rest] = buffer[cut:end]
        if rest == len(buffer):
            buffer = buffer + bytes(rest)  # not in place: the last block may still be in use
    if rest and not interruption.noted:
        yield memoryview(buffer)[:rest]


def size_of_source(source: BinaryIO | None) -> int:
    """Return the size of a file in bytes, or 0 for a source without a size."""
    if source is None or source is sys.stdin.buffer or not source.seekable():
        return 0
    return os.fstat(source.fileno()).st_size
