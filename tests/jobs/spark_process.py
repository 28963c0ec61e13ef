"""Processes of Spark's own, from the pip package, on loopback; and `rmqctl` in a process beside them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import Result

START_SECONDS = 180
JOB_SECONDS = 300
POLL_SECONDS = 0.01
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
    """An environment whose Pythons have rmqctl only where it is sent to them: what is found without that cannot be imported."""
    stub = folder / "not-sent"
    stub.mkdir()
    (stub / "rmqctl.py").write_text("raise ImportError('rmqctl was not sent')\n")
    return {**os.environ, **LOOPBACK, "PYTHONPATH": str(stub)}


def started_rmqctl(arguments: tuple[object, ...], environ: Mapping[str, str]) -> subprocess.Popen[str]:
    """`rmqctl` in a process of its own: Spark's settings are read when one begins."""
    command = [sys.executable, "-m", "rmqctl", *map(str, arguments)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> Result:
    """What a process left."""
    try:
        out, err = process.communicate(timeout=JOB_SECONDS)
    finally:
        process.kill()
    assert "Traceback" not in err
    return Result(process.returncode, out, err)
