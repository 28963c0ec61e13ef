from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.format.timestamp import duration, rfc3339
from tests.support.property_settings import PROPERTY


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_795_252_516_848, "2026-11-21T09:15:16.848Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_milliseconds_become_rfc_3339_in_utc(milliseconds: int, text: str) -> None:
    assert rfc3339(milliseconds) == text


@pytest.mark.parametrize("milliseconds", [-62_135_596_800_001, 253_402_300_800_000, 2**63 - 1, -(2**63)])
def test_what_is_no_date_is_none(milliseconds: int) -> None:
    assert rfc3339(milliseconds) is None


@PROPERTY
@given(st.datetimes(timezones=st.just(UTC)))
def test_no_millisecond_is_lost(moment: datetime) -> None:
    whole = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    since = whole - datetime(1970, 1, 1, tzinfo=UTC)
    text = rfc3339(since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000)
    assert text is not None
    assert datetime.fromisoformat(text) == whole


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (3249, "3.2 s"),
        (59_949, "59.9 s"),
        (125_000, "2 min 5 s"),
        (7_500_000, "2 h 5 min"),
        (2 * 86_400_000 + 5 * 3_600_000, "2 d 5 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text
