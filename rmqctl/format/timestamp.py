"""Times in milliseconds since 1970 (UTC), written as RFC 3339."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MIN_MS = -62_135_596_800_000  # year 1
MAX_MS = 253_402_300_799_999  # year 9999


def rfc3339(milliseconds: int) -> str | None:
    """Return a time such as `2026-11-21T09:15:16.848Z`.

    The result is None if the number is not a date. Damaged records have such numbers.
    """
    if not MIN_MS <= milliseconds <= MAX_MS:
        return None
    return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration(milliseconds: int) -> str:
    """Return a duration such as `3.2s`, `2m 05s`, `2h 05m` or `2d 05h`."""
    seconds = milliseconds // 1000
    if seconds < 60:
        return f"{milliseconds / 1000:.1f}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if not hours:
        return f"{minutes}m {seconds % 60:02}s"
    return f"{days}d {hours % 24:02}h" if days else f"{hours}h {minutes % 60:02}m"
