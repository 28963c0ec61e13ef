from __future__ import annotations

import pytest

from rmqctl.store.ha import frames


def test_frames_are_those_of_a_real_broker() -> None:
    """The bytes are from a run of 4.9.7: a first report of 1 and the transfers that followed."""
    assert frames.encode_report(1) == bytes.fromhex("0000000000000001")
    assert frames.encode_transfer(32769, 32767) == bytes.fromhex("0000000000008001 00007fff")
    assert frames.decode_transfer(bytes.fromhex("0000000000010000 00008000")) == (65536, 32768)
    assert frames.decode_report(bytes.fromhex("ffffffffffffffff")) == -1


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        (frames.TransferHeader(100, 0), ""),
        (frames.TransferHeader(100, 64), ""),
        (frames.TransferHeader(100, 65), "0 to 64 bytes"),
        (frames.TransferHeader(100, -1), "0 to 64 bytes"),
        (frames.TransferHeader(100, 2**31 - 1), "0 to 64 bytes"),
        (frames.TransferHeader(99, 1), "the next byte is 100"),
        (frames.TransferHeader(-1, 0), "the next byte is 100"),
    ],
)
def test_a_transfer_is_valid_iff_it_joins_and_fits(header: frames.TransferHeader, fault: str) -> None:
    problem = header.problem(expected=100, largest=64)
    assert fault in problem
    assert bool(problem) == bool(fault)
