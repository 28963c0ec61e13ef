from __future__ import annotations

from typing import Any

import pytest

from rmqctl.format.body.bounded_json import DEPTH_MAX, loads


@pytest.mark.parametrize("value", [{"a": [1, -(2**63), 2**63 - 1, 1.5, None, True, "x"]}, [], "text", 0])
def test_ordinary_json_is_parsed(value: Any) -> None:
    assert loads(repr(value).replace("'", '"').replace("None", "null").replace("True", "true"), 100) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (str(2**63), "more than 64 bits"),
        (str(-(2**63) - 1), "more than 64 bits"),
        ("9" * 10_000, "more than 64 bits"),
        ("[1e999]", "the number 1e999 is too large"),
        ("NaN", "NaN is not JSON"),
        ("[-Infinity]", "-Infinity is not JSON"),
        ("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1), "nested too deeply"),
        ("[" * 200_000, "more than 100 commas"),
        ('{"a":1,', "Expecting"),
    ],
)
def test_what_is_not_accepted_says_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        loads(text, 100 if why.startswith("more than 100") else 10**6)


def test_as_deep_as_it_may_be() -> None:
    assert loads("[" * DEPTH_MAX + "]" * DEPTH_MAX, 1000)
