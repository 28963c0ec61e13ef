from __future__ import annotations

import struct

import pytest

from rmqctl.format import checkpoint
from rmqctl.format.checkpoint import CHECKPOINT_FILE_SIZE, Checkpoint


def test_the_fields_stand_in_the_first_48_bytes() -> None:
    raw = struct.pack(">6q", 1, 2, 3, 4, 5, 6) + bytes(CHECKPOINT_FILE_SIZE - 48)
    assert checkpoint.decode(raw) == Checkpoint(
        physic_msg_timestamp=1,
        logics_msg_timestamp=2,
        index_msg_timestamp=3,
        master_flushed_offset=4,
        confirm_phy_offset=5,
        logics_physical_offset=6,
    )


def test_zeros_are_a_checkpoint() -> None:
    assert checkpoint.decode(bytes(CHECKPOINT_FILE_SIZE)) == (0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("size", [0, 24, 47])
def test_a_file_that_is_too_short_is_none(size: int) -> None:
    assert checkpoint.decode(bytes(size)) is None


def test_numbers_are_signed() -> None:
    assert checkpoint.decode(b"\xff" * 48) == (-1,) * 6
