"""A command, timed; or watched for the most memory that it has: resident pages that are no file's.

Watching costs time.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

POLL_SECONDS = 0.002
TIMEOUT_SECONDS = 900


class Run(NamedTuple):
    """Seconds from start to end, what it wrote to stdout, and its CPU seconds (user and system)."""

    seconds: float
    out: str
    cpu: float


def rmqctl() -> str:
    """The command beside this Python."""
    return shutil.which("rmqctl", path=str(Path(sys.executable).parent)) or "rmqctl"


def run(arguments: list[str], *, keep_output: bool = True) -> Run:
    """Run `rmqctl` with these arguments.

    Raises RuntimeError when it ends otherwise than clean, with findings, or repaired.
    """
    cpu_before, started = cpu_of_ended(), time.perf_counter()
    with _started(arguments, keep_output=keep_output) as process:
        out = process.communicate(timeout=TIMEOUT_SECONDS)[0] or ""
        seconds = time.perf_counter() - started
    _check(arguments, process)
    return Run(seconds, out, cpu_of_ended() - cpu_before)


def cpu_of_ended() -> float:
    """The CPU seconds of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def peak_memory(arguments: list[str]) -> int:
    """The most anonymous memory (bytes) that `rmqctl` has with these arguments. Raises RuntimeError as `run`."""
    peak = 0
    with _started(arguments, keep_output=False) as process:
        while process.poll() is None:
            peak = max(peak, _anonymous_bytes(process.pid))
            time.sleep(POLL_SECONDS)
    _check(arguments, process)
    return peak


def median_seconds(commands: dict[str, list[str]], runs: int) -> dict[str, float]:
    """Median of each whole command. They take turns, so that a busy moment of the machine meets all of them."""
    found = [{what: _seconds(arguments) for what, arguments in commands.items()} for _ in range(runs)]
    return {what: statistics.median(one[what] for one in found) for what in commands}


def _seconds(arguments: list[str]) -> float:
    """Seconds of a command without its output. Waiting with a time-out would ask only each 0.05 s whether it ended."""
    started = time.perf_counter()
    with _started(arguments, keep_output=False) as process:
        watchdog = threading.Timer(TIMEOUT_SECONDS, process.kill)
        watchdog.start()
        process.wait()
        seconds = time.perf_counter() - started
        watchdog.cancel()
    _check(arguments, process)
    return seconds


def _started(arguments: list[str], *, keep_output: bool) -> subprocess.Popen[str]:
    sink = subprocess.PIPE if keep_output else subprocess.DEVNULL
    # as an installed rmqctl, with its bytecode: to compile the modules takes as long as to import them
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.Popen([rmqctl(), *arguments], stdout=sink, stderr=subprocess.DEVNULL, text=True, env=environment)


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
