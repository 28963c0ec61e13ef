"""A process that has a store open, as a broker has: it holds the lock of the store's file `lock`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PROGRAM = """
import fcntl, sys, time
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
    print("held", flush=True)
    if len(sys.argv) > 2:
        time.sleep(float(sys.argv[2]))
    else:
        sys.stdin.read()
"""


@contextmanager
def lock_held(store: Path, seconds: float | None = None) -> Iterator[int]:
    """Its pid. The lock is held for these seconds, by default to the end of the block."""
    words = [sys.executable, "-c", _PROGRAM, str(store / "lock"), *([] if seconds is None else [str(seconds)])]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield holder.pid
        holder.communicate()
