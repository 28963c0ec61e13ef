"""Convert times of records to text in UTC.

The text does not depend on the time zone of the Spark session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.format.timestamp import MAX_MS, MIN_MS

if TYPE_CHECKING:
    from pyspark.sql import Column


def rfc3339(milliseconds: Column) -> Column:
    """Return a time in UTC as text like `2026-11-21T09:15:16.848Z`.

    `milliseconds` is a column of times in ms since 1970. The result is null for a number that is not a valid date.
    """
    return _formatted(milliseconds, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")


def day(milliseconds: Column) -> Column:
    """Return the day (UTC) of a time as text like `2026-11-21`.

    `milliseconds` is a column of times in ms since 1970. The result is null for a number that is not a valid date.
    """
    return _formatted(milliseconds, "yyyy-MM-dd")


def _formatted(milliseconds: Column, pattern: str) -> Column:
    from pyspark.sql import functions as f

    zero = f.lit(0)
    behind = f.make_dt_interval(zero, zero, zero, milliseconds.cast("decimal(18,0)") / 1000)
    moment = f.lit("1970-01-01").cast("timestamp_ntz") + behind
    return f.when(milliseconds.between(MIN_MS, MAX_MS), f.date_format(moment, pattern))
