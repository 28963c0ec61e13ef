"""One table of the kinds of damage to the log, for everything that asks for one.

`rmqctl explain CODE` has the same in words. A starting broker that reads damage which its scan checks for ends the log
there; `rmqctl.store.recovery` simulates what one version does.
"""

from __future__ import annotations

from typing import NamedTuple


class DamageKind(NamedTuple):
    """One row of the table."""

    is_read: bool  # rmqctl has read its bytes; else it lies between files, or cannot be read
    has_record: bool  # the bytes may be those of a message
    is_checked: bool  # every starting broker's scan checks for it
    is_served: bool  # the record is right for brokers: their scan goes on, and units may lead to it
    is_dispatched: bool  # a broker that dispatches the record writes its unit: start() of 4.x checks no bodies


KINDS = {
    # code: is_read, has_record, is_checked, is_served, is_dispatched
    "bad-magic": DamageKind(True, True, True, False, False),
    "bad-size": DamageKind(True, True, True, False, False),
    "bad-length": DamageKind(True, True, True, False, False),
    "bad-entry": DamageKind(True, True, True, False, False),
    "hole": DamageKind(True, True, True, False, False),
    "bad-body-crc": DamageKind(True, True, True, False, True),  # of an empty body: as `is_served` in commit_log.py
    "bad-property-crc": DamageKind(True, True, False, True, True),
    "torn-properties": DamageKind(True, True, False, True, True),
    "bad-physical-offset": DamageKind(True, True, False, True, False),
    "no-blank": DamageKind(True, False, True, False, False),
    "bad-blank-size": DamageKind(True, False, False, False, False),
    "bytes-behind-end": DamageKind(True, False, False, False, False),
    "file-gap": DamageKind(False, False, False, False, False),
    "file-length": DamageKind(False, False, False, False, False),
    "file-overlap": DamageKind(False, False, False, False, False),
    "unreadable": DamageKind(False, True, False, False, False),
    "link-not-followed": DamageKind(False, True, False, False, False),
}


def codes(**wanted: bool) -> frozenset[str]:
    """Return the codes of the kinds that have all these values, by column."""
    return frozenset(
        code for code, kind in KINDS.items() if all(getattr(kind, name) is value for name, value in wanted.items())
    )


UNCHECKED = codes(is_checked=False)
