"""The names in broker.conf that each version takes.

A broker passes over other names without a word: it takes each property for which its configuration classes have a
setter (MixAll.properties2Object). `tests/real_store/option_names.py` writes the list from RocketMQ's sources.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from rmqctl.format.profile import VERSIONS, number_of

FILE = "option_names.txt"  # lines FIRST-LAST NAME…; without LAST: up to the newest version


@cache
def _spans() -> dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]]:
    found: dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {}
    for line in files(__package__).joinpath(FILE).read_text("ascii").splitlines():
        span, *names = line.split()
        first, last = span.split("-")
        for name in names:
            found.setdefault(name, []).append((number_of(first), number_of(last or VERSIONS[-1])))
    return found


def is_known(name: str, version: str) -> bool:
    """Return whether a version, one of VERSIONS, takes a name."""
    return any(first <= number_of(version) <= last for first, last in _spans().get(name, ()))


def versions_of(name: str) -> str:
    """Return the versions that take a name, as text; "" for none."""
    spans = [tuple(".".join(map(str, number)) for number in span) for span in _spans().get(name, ())]
    return ", ".join(f"{first} and later" if last == VERSIONS[-1] else f"{first} to {last}" for first, last in spans)
