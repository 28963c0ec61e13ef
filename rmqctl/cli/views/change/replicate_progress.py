"""The progress that `rmqctl replicate` shows while it runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rmqctl.cli.output.render import remark, to_json

if TYPE_CHECKING:
    from rmqctl.operations.replicate.progress import Progress

LINE_SECONDS = 5.0  # between two lines
JSON_SECONDS = 1.0


class ReplicateProgress:
    """Show the copy's end offset, the rate and the lag on stderr.

    `mode` (auto, json, none) is the form of the lines. No line is written if nothing has changed.
    """

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._interval = JSON_SECONDS if mode == "json" else LINE_SECONDS
        self._shown_at = time.monotonic()
        self._shown = (0, 0, 0)

    def show(self, progress: Progress) -> None:
        """Show the progress at most once in 5 s (as JSON at most once in 1 s)."""
        now, state = time.monotonic(), (progress.bytes, progress.max_offset, progress.master_offset)
        if self._mode == "none" or now - self._shown_at < self._interval or state == self._shown:
            return
        rate = int((progress.bytes - self._shown[0]) / (now - self._shown_at))
        self._shown_at, self._shown = now, state
        lag = max(progress.master_offset - progress.max_offset, 0)
        if self._mode == "json":
            found = {"bytes": progress.bytes, "maxPhyOffset": progress.max_offset, "bytesPerSecond": rate}
            remark(to_json({"progress": "replicate", **found, "lagBytes": lag}))
        else:
            remark(f"at {progress.max_offset} of {progress.master_offset}, {lag} bytes behind, {rate} bytes/s")
