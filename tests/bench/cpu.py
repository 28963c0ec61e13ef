"""The CPU time of a process and of all below it, ended or not."""

from __future__ import annotations

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """The CPU seconds of this process and of all below it: commands, the JVM and the processes of its tasks."""
    times: dict[int, int] = {}
    below: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        times[int(path.name)] = sum(map(int, words[11:15]))
        below.setdefault(int(words[1]), []).append(int(path.name))
    found, pending = 0, [os.getpid()]
    while pending:
        one = pending.pop()
        found += times.get(one, 0)
        pending += below.get(one, [])
    return found / TICKS
