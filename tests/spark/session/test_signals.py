"""A signal to the whole process group, as Ctrl-C, `timeout` and a terminal's hang-up send it: one line, and no JVM is
left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import unpack
from tests.support.spark_process import LOOPBACK, POLL_SECONDS, START_SECONDS, ended, started_rmqctl

pytestmark = pytest.mark.spark

ENDLESS = "SELECT sum(id % 7) AS s FROM range(1000000000000000)"


class Job:
    """`rmqctl` as the leader of a group; its processes are known by their environment."""

    def __init__(self, *arguments: object) -> None:
        self._mark = uuid.uuid4().hex.encode()
        environ = {**os.environ, **LOOPBACK, "RMQCTL_TEST_MARK": self._mark.decode()}
        self.process = started_rmqctl(("job", *arguments), environ, is_leader=True)

    def wait_for(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not what():
            assert time.monotonic() < deadline
            assert self.process.poll() is None
            time.sleep(POLL_SECONDS)

    def has(self, *words: bytes) -> Callable[[], bool]:
        """Whether a process of its has these words in its command line."""
        return lambda: any(all(word in line for word in words) for line in self._command_lines())

    def is_interrupted(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)
        found = ended(self.process)
        assert (found.code, found.out, found.err) == (130, "", "\nrmqctl: interrupted\n")
        deadline = time.monotonic() + START_SECONDS
        while self._command_lines():
            assert time.monotonic() < deadline
            time.sleep(POLL_SECONDS)

    def _command_lines(self) -> list[bytes]:
        return [line for path in Path("/proc").glob("[0-9]*") if (line := self._command_line(path))]

    def _command_line(self, path: Path) -> bytes:
        try:
            return (path / "cmdline").read_bytes() if self._mark in (path / "environ").read_bytes() else b""
        except OSError:  # it has ended, or is another user's
            return b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", [b"org.apache.spark.launcher.Main", b"SparkSubmit"])
def test_while_the_session_starts(number: signal.Signals, moment: bytes, tmp_path: Path) -> None:
    """By Spark's launcher, and by its JVM."""
    job = Job("verify", unpack("533-basic", tmp_path), "--master", "local[2]")
    job.wait_for(job.has(b"java", moment))
    job.is_interrupted(number)


@pytest.mark.parametrize(("number", "stores"), [(signal.SIGHUP, 1), (signal.SIGINT, 8)])
def test_while_tasks_read_the_log(number: signal.Signals, stores: int, tmp_path: Path) -> None:
    roots = [unpack("533-basic", tmp_path / str(store)) for store in range(stores)]
    job = Job("verify", *roots, "--master", "local[2]")
    job.wait_for(job.has(b"pyspark.daemon"))
    job.is_interrupted(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_while_the_answer_is_waited_for(number: signal.Signals, tmp_path: Path) -> None:
    job = Job("sql", ENDLESS, unpack("533-basic", tmp_path), "--master", "local[2]", "--progress", "json")
    assert job.process.stderr is not None
    assert job.process.stderr.readline().startswith('{"progress":"sql","tasks":')
    job.is_interrupted(number)


FORGOTTEN = """
import os
from concurrent.futures import ThreadPoolExecutor
from rmqctl.cli import main
from rmqctl.spark.session.session import Target, session

def job(_):
    with session(Target("local[1]"), os.environ) as spark:
        ThreadPoolExecutor(1).submit(spark.sparkContext._jvm.java.lang.Thread.sleep, 10**9)
    return 0

main.run = job
main.main()
"""


def test_a_thread_that_waits_for_the_jvm_does_not_keep_python() -> None:
    """Spark forgets a job that begins while Spark is being stopped."""
    environ = {**os.environ, **LOOPBACK}
    done = subprocess.run([sys.executable, "-c", FORGOTTEN], env=environ, timeout=START_SECONDS, check=False)
    assert done.returncode == 0
