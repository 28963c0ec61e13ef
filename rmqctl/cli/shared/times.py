"""Times as an operator types them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day

from rmqctl.cli.output.render import remark
from rmqctl.cli.shared.parsed import Parsed
from rmqctl.format.timestamp import rfc3339

_RELATIVE = r"-(\d+)(ms|s|m|h|d|w)"
EPOCH_SECONDS_DIGITS = 10
UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_CLOCK = r"\d\d:\d\d(?::\d\d(?:\.\d{3})?)?"
_DAY = rf"(today|yesterday|last (?:{'|'.join(_WEEKDAYS)}))?(?:(?:^| )({_CLOCK}))?"
_MQADMIN = r"(\d{4})-(\d\d)-(\d\d)#(\d\d):(\d\d):(\d\d):(\d{3})"


def parse_time(text: str, now: int) -> int:
    """Parse a time, and return the milliseconds since 1970.

    The function accepts RFC 3339 (without an offset: local time), epoch ms, epoch seconds (10 digits, as `date +%s`
    prints them), `-2h`, `now`, `today`, `yesterday` and `last monday` (local midnight, or with a time: `yesterday
    14:00`), `14:03` (today), and mqadmin's `yyyy-MM-dd#HH:mm:ss:SSS` (local time). A relative time such as `-2h` is
    relative to `now`, in ms. `last monday` is before today. Raises ValueError and OverflowError.
    """
    if text.isdecimal():
        return int(text) * 1000 if is_epoch_seconds(text) else int(text)
    relative = re.fullmatch(_RELATIVE, text)
    if relative:
        return now - int(relative[1]) * UNIT_MS[relative[2]]
    if text == "now":
        return now
    named = re.fullmatch(_DAY, text.lower())
    if named and text:
        return _milliseconds(_on_day(datetime.fromtimestamp(now / 1000), named[1] or "today", named[2]))
    mqadmin = re.fullmatch(_MQADMIN, text)
    if mqadmin:
        year, month, day, hour, minute, second, milli = map(int, mqadmin.groups())
        return _milliseconds(datetime(year, month, day, hour, minute, second, milli * 1000))
    return _milliseconds(datetime.fromisoformat(text))


def is_day_or_clock(text: str) -> bool:
    """Return whether a text is a time that depends on the day, such as 14:03."""
    return bool(text) and re.fullmatch(_DAY, text.lower()) is not None


def _on_day(today: datetime, day: str, clock: str | None) -> datetime:
    """Return a local time on a day, at midnight without `clock`."""
    back = {"today": 0, "yesterday": 1}.get(day)
    if back is None:
        back = (today.weekday() - _WEEKDAYS.index(day.split()[1]) - 1) % 7 + 1
    at = time_of_day.fromisoformat(clock) if clock else time_of_day()
    return datetime.combine(today.date() - timedelta(days=back), at)


def is_epoch_seconds(text: str) -> bool:
    """Return whether a text is a number of 10 digits (seconds since 1970).

    In seconds, a number of 10 digits is a time from 2001 to 2286. In milliseconds, a number of 10 digits is a time in
    1970.
    """
    return text.isdecimal() and len(text) == EPOCH_SECONDS_DIGITS and not text.startswith("0")


def _milliseconds(moment: datetime) -> int:
    """Return a moment in milliseconds since 1970.

    A moment without a time zone is local time.
    """
    return (moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _noted_time(text: str) -> int:
    """Parse a time. A note says how a text was read that could mean another one."""
    try:
        found = parse_time(text, int(time.time() * 1000))
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{text!r} is not a time: use RFC 3339, epoch ms, -2h, 14:03, yesterday 14:00, last monday, or "
            "yyyy-MM-dd#HH:mm:ss:SSS"
        ) from error
    if is_epoch_seconds(text):
        remark(f"note: {text} is read as seconds since 1970: {rfc3339(found)}")
    elif is_day_or_clock(text) and text.lower() not in ("today", "yesterday"):
        remark(f"note: {text} is read as {rfc3339(found)}")
    return found


TIME = Parsed("TIME", _noted_time)  # in ms since 1970
