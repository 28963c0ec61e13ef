"""A command, timed; or watched for the most memory that it has: resident pages that are no file's.

Watching costs time.
"""

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
    """Seconds from start to end, and what it wrote to stdout."""

    seconds: float
    out: str


def rmqctl() -> str:
    """The command beside this Python."""
    return shutil.which("rmqctl", path=str(Path(sys.executable).parent)) or "rmqctl"


def run(arguments: list[str], *, keep_output: bool = True) -> Run:
    """Run `rmqctl` with these arguments.

    Raises RuntimeError when it ends otherwise than clean, with findings, or repaired.
    """
    started = time.perf_counter()
    with _started(arguments, keep_output=keep_output) as process:
        out = process.communicate(timeout=TIMEOUT_SECONDS)[0] or ""
        seconds = time.perf_counter() - started
    _check(arguments, process)
    return Run(seconds, out)


def peak_memory(arguments: list[str]) -> int:
    """The most anonymous memory (bytes) that `rmqctl` has with these arguments. Raises RuntimeError as `run`."""
    peak = 0
    with _started(arguments, keep_output=False) as process:
        while process.poll() is None:
            peak = max(peak, _anonymous_bytes(process.pid))
            time.sleep(POLL_SECONDS)
    _check(arguments, process)
    return peak


def median_seconds(arguments: list[str], runs: int) -> float:
    """Median of the whole command."""
    return statistics.median(run(arguments, keep_output=False).seconds for _ in range(runs))


def _started(arguments: list[str], *, keep_output: bool) -> subprocess.Popen[str]:
    sink = subprocess.PIPE if keep_output else subprocess.DEVNULL
    return subprocess.Popen([rmqctl(), *arguments], stdout=sink, stderr=subprocess.DEVNULL, text=True)


def _check(arguments: list[str], process: subprocess.Popen[str]) -> None:
    if process.returncode not in (0, 1, 3):
        raise RuntimeError(f"rmqctl {' '.join(arguments)} ended with {process.returncode}")


def _anonymous_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    lines = (line.split() for line in status.splitlines())
    return next((int(words[1]) * 1024 for words in lines if words and words[0] == "RssAnon:"), 0)
