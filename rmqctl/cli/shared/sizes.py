"""Numbers of bytes as an operator types them."""

from __future__ import annotations

import re

import click

from rmqctl.cli.shared.parsed import Parsed

BYTES_MAX = 2**63 - 1
UNITS: dict[str, int] = {"": 1, "b": 1}
for _power, _prefix in enumerate("kmgt", 1):
    UNITS |= {f"{_prefix}b": pow(1000, _power), f"{_prefix}ib": pow(1024, _power)}
_SIZE = re.compile(r"(\d{1,19}(?:\.\d{1,9})?) ?([a-z]{0,3})", re.IGNORECASE | re.ASCII)


def parse_size(text: str) -> int:
    """Return a size in bytes, given as text: `500000000000`, `500GB` or `465.5GiB`.

    GB and similar units are powers of 1000. GiB and similar units are powers of 1024. Raises ValueError if the text is
    not a size, or if the size is larger than 2^63 - 1.
    """
    found = _SIZE.fullmatch(text.strip())
    unit = UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None or ("." in found[1] and unit == 1):
        raise ValueError(
            f"{text!r} is not a number of bytes: use 500000000000, 500GB (1000 x 1000 x 1000) or 465GiB (1024 x 1024 "
            "x 1024)"
        )
    whole, _, fraction = found[1].partition(".")
    size = int(whole) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)
    if size > BYTES_MAX:
        raise ValueError(f"{text!r} is more than {BYTES_MAX} bytes")
    return size


def shown_size(size: int) -> str:
    """Return a number of bytes in the unit that fits, a power of 1000: `41 KB`."""
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:
            return f"{size} {unit}"
        size = round(size / 1000)
    return f"{size} GB"


SIZE = Parsed("SIZE", parse_size)
rate_option = click.option(
    "--max-bytes-per-second",
    type=SIZE,
    default=0,
    show_default=False,
    help="Read at most this many bytes per second. 0 means no limit.",
)
