"""Times in milliseconds since 1970 (UTC), written as RFC 3339."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MIN_MS = -62_135_596_800_000  # year 1
MAX_MS = 253_402_300_799_999  # year 9999

_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000


def rfc3339(milliseconds: int) -> str | None:
    """Return a time such as `2026-11-21T09:15:16.848Z`.

    None for a time outside the years 1 to 9999, for example in a damaged record.
    """
    if not MIN_MS <= milliseconds <= MAX_MS:
        return None
    return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration(milliseconds: int) -> str:
    """Return a duration as text, with at most two units.

    >>> duration(40), duration(3200), duration(125_000), duration(12_000_000), duration(187_200_000)
    ('40 ms', '3.2 s', '2 min 5 s', '3 h 20 min', '2 d 4 h')
    """
    if milliseconds < 0:
        return f"-{duration(-milliseconds)}"
    if milliseconds < _SECOND:
        return f"{milliseconds} ms"
    if milliseconds < _MINUTE:
        return f"{milliseconds / _SECOND:.1f} s"
    units = ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "min"), (_MINUTE, "min", _SECOND, "s"))
    large, unit, small, smaller = next(one for one in units if milliseconds >= one[0])
    rest = milliseconds % large // small
    return f"{milliseconds // large} {unit}" + (f" {rest} {smaller}" if rest else "")
