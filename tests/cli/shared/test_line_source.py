"""The blocks of lines: all bytes, whole lines, whatever the sizes of lines and of what arrives at once."""

from __future__ import annotations

from io import BufferedReader, RawIOBase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.cli.shared import line_source
from rmqctl.cli.shared.interruption import Interruption
from rmqctl.cli.shared.line_source import blocks_of_lines
from tests.support.property_settings import PROPERTY


class Pipe(RawIOBase):
    """Gives one piece at each read, or as much of it as there is room for."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = [piece for piece in pieces if piece]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self.pieces:
            return 0
        piece = self.pieces.pop(0)
        taken = min(len(piece), len(buffer))
        buffer[:taken] = piece[:taken]
        if piece[taken:]:
            self.pieces.insert(0, piece[taken:])
        return taken


@PROPERTY
@given(st.lists(st.binary(max_size=40).map(lambda piece: piece.replace(b"\x00", b"\n")), max_size=12))
def test_blocks_are_whole_lines(pieces: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch, Interruption() as interruption:
        patch.setattr(line_source, "BLOCK_SIZE", 16)
        reader = BufferedReader(Pipe(pieces), 4)
        blocks = [bytes(block) for block in blocks_of_lines(reader, interruption)]
    assert b"".join(blocks) == b"".join(pieces)
    assert all(block.endswith(b"\n") for block in blocks[:-1])


def test_lines_come_as_they_arrive() -> None:
    with Interruption() as interruption:
        found = blocks_of_lines(BufferedReader(Pipe([b"a\nb", b"\nc\n", b"d"])), interruption)
        assert [bytes(block) for block in found] == [b"a\n", b"b\nc\n", b"d"]
