"""Bodies of op messages."""

from __future__ import annotations

import pytest

from rmqctl.format.body.op_message import OpBody, decode


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"7", OpBody([7], is_whole=True)),
        (b"0,1,31,", OpBody([0, 1, 31], is_whole=True)),
        (b"", OpBody([], is_whole=True)),
        (b"1,x,3", OpBody([1, 3], is_whole=False)),
        (b"9" * 20, OpBody([], is_whole=False)),
    ],
)
def test_offsets(body: bytes, found: OpBody) -> None:
    assert decode(body) == found
