"""The progress of a run of `replicate`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Progress:
    """The counts of a run of `replicate`. Offsets are in bytes.

    `max_offset` is the end of the copy, and `master_offset` the last known end of the master's log. `seconds` is the
    time from the first connection to the last received byte.
    """

    bytes: int = 0
    messages: int = 0
    max_offset: int = 0
    master_offset: int = 0
    seconds: float = 0.0
