"""A command, timed, with the most memory that it had: resident pages that are no file's."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

POLL_SECONDS = 0.002
TIMEOUT_SECONDS = 900


class Run(NamedTuple):
    """Seconds from start to end, peak of anonymous memory in bytes, and what it wrote to stdout."""

    seconds: float
    peak: int
    out: str


def rmqctl() -> str:
    """The command beside this Python."""
    return shutil.which("rmqctl", path=str(Path(sys.executable).parent)) or "rmqctl"


def run(arguments: list[str], *, keep_output: bool = True) -> Run:
    """Run `rmqctl` with these arguments. Raises RuntimeError when it ends otherwise than clean or with findings."""
    sink = subprocess.PIPE if keep_output else subprocess.DEVNULL
    started = time.perf_counter()
    process = subprocess.Popen([rmqctl(), *arguments], stdout=sink, stderr=subprocess.DEVNULL, text=True)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _anonymous_bytes(process.pid))
        time.sleep(POLL_SECONDS)
        if time.perf_counter() - started > TIMEOUT_SECONDS:
            process.kill()
    seconds = time.perf_counter() - started
    out = process.communicate()[0] or ""
    if process.returncode not in (0, 1):
        raise RuntimeError(f"rmqctl {' '.join(arguments)} ended with {process.returncode}")
    return Run(seconds, peak, out)


def median_seconds(arguments: list[str], runs: int, *, keep_output: bool = False) -> float:
    """Median of the whole command."""
    return statistics.median(run(arguments, keep_output=keep_output).seconds for _ in range(runs))


def _anonymous_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    lines = (line.split() for line in status.splitlines())
    return next((int(words[1]) * 1024 for words in lines if words and words[0] == "RssAnon:"), 0)
