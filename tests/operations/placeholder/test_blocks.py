"""Blocks of placeholders: what they hold is what was put into them, found by its place, and counted by who gets it."""

from __future__ import annotations

from rmqctl.format.message import BLANK_SIZE
from rmqctl.operations.placeholder.blocks import PlaceholderBlock, PlaceholderBlocks
from rmqctl.operations.placeholder.pieces import Span, placeholder_records
from rmqctl.operations.placeholder.record import Claim
from tests.support.placeholder_file import AROUND, AT, FILE_END

CLAIMS = [Claim("OrderPaid", 0, 5, AT + 1000, 400), Claim("OrderPaid", 0, 6, AT + 2000, 3000)]


def block_of(begin: int, end: int) -> PlaceholderBlock:
    """Placeholders for the claims, filler placeholders around them; up to the file's end with a blank."""
    claims = [claim for claim in CLAIMS if begin <= claim.physical_offset < end]
    data = b"".join(
        record.data
        for record in placeholder_records(Span(begin, end, AT, FILE_END), claims, "bad-magic", AROUND).records
    )
    return PlaceholderBlock.pack(begin, "commitlog/x", begin - AT, "bad-magic", data)


def test_a_block_has_its_messages() -> None:
    block = block_of(AT + 500, FILE_END)
    columns = block.columns()
    places = [block.physical_offset + int(position) for position in columns.rows["position"]]
    assert places == [AT + 500, AT + 1000, AT + 1400, AT + 2000]
    assert block.served == 2
    assert (block.size, len(block.data)) == (columns.size + BLANK_SIZE,) * 2
    for at in places:
        found = block.message_at(at)
        assert found is not None
        assert found.physical_offset == at
    assert [block.message_at(at) for at in (AT + 501, AT + 5000, FILE_END, FILE_END + 1)] == [None] * 4


def test_marks_are_small_while_they_are_held() -> None:
    block = block_of(AT + 1000, AT + 1000 + 60000)
    assert block.size == 60000
    assert len(block.packed) < 2000


def test_a_blank_alone_has_no_message() -> None:
    block = block_of(FILE_END - 8, FILE_END)
    assert (block.size, block.served, len(block.columns().rows)) == (BLANK_SIZE, 0, 0)


def test_blocks_are_in_log_order_and_of_their_damage() -> None:
    later, earlier = block_of(AT + 1400, AT + 5000), block_of(AT + 1000, AT + 1400)
    blocks = PlaceholderBlocks()
    assert not blocks
    assert blocks.message_at(AT + 1000) is None
    blocks.put([AT + 1400, AT + 1600], [later])
    blocks.put([AT + 1000], [earlier])
    assert [*blocks] == [earlier, later]
    assert blocks.served == 2
    assert [blocks.of_damage(at) for at in (AT + 1000, AT + 1400, AT + 1600, AT)] == [[earlier], [later], (), None]
    assert blocks.message_at(AT + 1000) == earlier.message_at(AT + 1000)
    assert blocks.message_at(AT + 2000) == later.message_at(AT + 2000)
    assert blocks.message_at(AT) is None
