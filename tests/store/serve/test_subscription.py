"""Tags by hash code, as a broker compares them."""

from __future__ import annotations

import pytest

from rmqctl.errors import BadRequest
from rmqctl.format.properties import hash_code
from rmqctl.store.serve.subscription import Subscription


@pytest.mark.parametrize(
    ("expression", "tag", "matched"),
    [
        ("*", "TagA", True),
        ("", "TagA", True),
        ("TagA", "TagA", True),
        ("TagA", "TagB", False),
        (" TagA||TagB ", "TagB", True),
        ("TagA || ", "TagA", True),
        ("||TagA", "TagA", True),
        (" ", "TagA", False),
        ("Aa", "BB", True),  # they share a hash: the client sorts that out
        ("polygenelubricants", "polygenelubricants", True),  # a negative one
    ],
)
def test_expressions(expression: str, tag: str, matched: bool) -> None:
    assert Subscription(expression).is_matched_by_consume_queue(hash_code(tag)) is matched


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_separators_alone_are_refused(expression: str) -> None:
    with pytest.raises(BadRequest):
        Subscription(expression)


def test_the_low_half_of_a_delivery_time_counts() -> None:
    assert Subscription("TagA").is_matched_by_consume_queue((5 << 32) + hash_code("TagA"))


def test_an_address_whose_extension_is_lost_goes_through() -> None:
    assert Subscription("TagA").is_matched_by_consume_queue(-(2**63) + 40)
