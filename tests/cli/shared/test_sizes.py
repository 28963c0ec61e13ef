"""Numbers of bytes that are typed."""

from __future__ import annotations

import pytest

from rmqctl.cli.shared.sizes import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("500000000000", 500_000_000_000),
        ("500GB", 500_000_000_000),
        ("1.5 kb", 1500),
        ("465GiB", 465 << 30),
        ("0.5TiB", 1 << 39),
        ("7B", 7),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "GB", "500G", "-1", "1e9", "1.5", "5 XB", "9223372036854775808", "9999999TiB", "\u0665GB"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a number of bytes|more than"):
        parse_size(text)
