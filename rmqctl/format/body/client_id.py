"""UNIQ_KEY, the id that a Java client gives a message (MessageClientIDSetter).

It is a hex text of the client's address (4 or 16 bytes), its process id (2), a hash of its class loader (4), the time
in ms since the first of the month (4), and a counter (2). Its time can be computed only if the month is known.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rmqctl.format.timestamp import MAX_MS

_SIZES = {32: 4, 56: 16}  # hex digits -> bytes of the address
_BEFORE_TIME = 2 + 4
_TIME_SIZE = 4
_HEX_DIGITS = frozenset("0123456789ABCDEF")
_MONTH_MS_MAX = 32 * 86_400_000


def nearly_time(unique_key: str, before_ms: int) -> int | None:
    """Return the latest possible creation time of an id, up to `before_ms`, or None.

    Times are in ms since 1970. The month begins in the time zone of the client, so it may be wrong by up to 14 hours.
    None if `unique_key` does not have the form of an id. The rule is MessageClientIDSetter.getNearlyTimeFromID.
    """
    address = _SIZES.get(len(unique_key))
    if address is None or not _HEX_DIGITS.issuperset(unique_key):
        return None
    at = address + _BEFORE_TIME
    since_month = int.from_bytes(bytes.fromhex(unique_key)[at : at + _TIME_SIZE], "big")
    if since_month > _MONTH_MS_MAX or not 0 <= before_ms <= MAX_MS:
        return None
    month = datetime.fromtimestamp(before_ms / 1000, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    begin = int(month.timestamp() * 1000)
    if begin + since_month > before_ms:
        begin = int((month - timedelta(days=1)).replace(day=1).timestamp() * 1000)
    return begin + since_month
