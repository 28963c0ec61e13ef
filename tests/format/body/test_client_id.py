"""The time in an id that a Java client made."""

from __future__ import annotations

import pytest

from rmqctl.format.body.client_id import nearly_time

MADE = 1795253356570  # 2026-11-21T09:29:16.570Z, from broker-497
KEY = "FD00000000000000000000000000000217265FFD2B276908601A0004"


@pytest.mark.parametrize("key", [KEY, "0A010203" + KEY[32:]])
def test_the_time_of_an_id(key: str) -> None:
    assert nearly_time(key, MADE + 5000) == MADE
    assert nearly_time(key, MADE - 5000) == MADE - 31 * 86_400_000  # the month before


@pytest.mark.parametrize("key", ["order-4711", "", "g" * 32, "F" * 32])
def test_other_keys_have_no_time(key: str) -> None:
    assert nearly_time(key, MADE) is None


@pytest.mark.parametrize("before_ms", [300_000_000_000_000, -1])
def test_a_time_that_no_calendar_has(before_ms: int) -> None:
    assert nearly_time("0A010200000000000000000000000018", before_ms) is None
