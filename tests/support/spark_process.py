"""Processes of Spark's own, from the pip package, on loopback; and `rmqctl` in a process beside them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from tests.conftest import Result

T = TypeVar("T")

START_SECONDS = 180
JOB_SECONDS = 300
POLL_SECONDS = 0.01
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # half the time of a processor up to the first answer
LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}


class SparkProcess:
    """One of pyspark's scripts with its arguments, and what it says."""

    def __init__(self, script: str, arguments: list[str], environ: Mapping[str, str], log: Path) -> None:
        path = shutil.which(script, path=str(Path(sys.executable).parent))
        assert path is not None
        self._log = log
        with log.open("w") as file:
            self._process = subprocess.Popen([path, *arguments], env=environ, stdout=file, stderr=subprocess.STDOUT)
        self.pid = self._process.pid

    def __enter__(self) -> SparkProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(START_SECONDS)

    def said(self, pattern: str) -> str:
        """The first group of a pattern, once it stands in the log. Raises TimeoutError where it does not come."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            found = re.search(pattern, self._log.read_text())
            if found is not None:
                return found[1]
            time.sleep(POLL_SECONDS)
        raise TimeoutError(self._log.read_text())


def without_our_code(folder: Path) -> dict[str, str]:
    """An environment whose Pythons have rmqctl only where it is sent to them: what is found without that cannot be
    imported.
    """
    stub = folder / "not-sent"
    stub.mkdir()
    (stub / "rmqctl.py").write_text("raise ImportError('rmqctl was not sent')\n")
    return {**os.environ, **LOOPBACK, "PYTHONPATH": str(stub)}


def started_rmqctl(
    arguments: tuple[object, ...], environ: Mapping[str, str], *, is_leader: bool = False
) -> subprocess.Popen[str]:
    """`rmqctl` in a process of its own: Spark's settings are read when one begins.

    `is_leader`: of a group of its own, too.
    """
    command = [sys.executable, "-m", "rmqctl", *map(str, arguments)]
    group = 0 if is_leader else None
    return subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=group
    )


class Done(NamedTuple):
    """What a command line of several left, and when (epoch ms)."""

    result: Result
    begin: int
    end: int


def in_one_session(
    lines: Sequence[Sequence[object]], environ: Mapping[str, str], *, master: str = "", remote: str = ""
) -> list[Done]:
    """What these command lines of `rmqctl` leave in one session of Spark's, in a process of its own."""
    found = ended(started_session(lines, environ, master=master, remote=remote))
    assert (found.code, found.err) == (0, "")
    return all_done(found)


def started_session(
    lines: Sequence[Sequence[object]], environ: Mapping[str, str], *, master: str = "", remote: str = ""
) -> subprocess.Popen[str]:
    """These command lines of `rmqctl`, at work in one session of Spark's: a process with a group of its own."""
    words = json.dumps([[str(word) for word in line] for line in lines])
    command = [sys.executable, str(Path(__file__).with_name("one_session.py")), json.dumps([master, remote]), words]
    return subprocess.Popen(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def all_done(session: Result) -> list[Done]:
    """Return the results of the command lines of a session that has ended."""
    rows = map(json.loads, session.out.splitlines())
    return [Done(Result(code, out, err), begin, end) for code, out, err, begin, end in rows]


def awaited(process: subprocess.Popen[str], look: Callable[[], T | None]) -> T:
    """The first result of `look` that is true. Raises TimeoutError where the process ends before, or none comes."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if found := look():
            return found
        time.sleep(POLL_SECONDS)
    process.kill()
    raise TimeoutError(f"it did not come: {process.communicate()}")


def ended(process: subprocess.Popen[str]) -> Result:
    """Wait for the end of a process, and return its result."""
    try:
        out, err = process.communicate(timeout=JOB_SECONDS)
    finally:
        process.kill()
    assert "Traceback" not in err, err
    return Result(process.returncode, out, err)
