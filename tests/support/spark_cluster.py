"""A standalone cluster of Spark's on loopback: a master and two workers from the pip package, one core and 1 GiB each.

What took part in a job is read off Spark's own event log; processes are found below the workers, by /proc.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqctl.spark.session.session import java_home
from tests.support.spark_process import (
    LOOPBACK,
    POLL_SECONDS,
    QUICK_JVM,
    Done,
    SparkProcess,
    awaited,
    in_one_session,
    started_rmqctl,
    without_our_code,
)

WORKERS, END_SECONDS = 2, 60
_DEPLOY = "org.apache.spark.deploy"
# jobs wait for both executors: tasks so short as a test's would all be done by the first
_DEFAULTS = """\
spark.cores.max {workers}
spark.eventLog.compress false
spark.eventLog.dir file://{events}
spark.eventLog.enabled true
spark.eventLog.rolling.enabled false
spark.executor.extraJavaOptions {jvm}
spark.master.rest.enabled false
spark.scheduler.maxRegisteredResourcesWaitingTime 60s
spark.scheduler.minRegisteredResourcesRatio 1.0
"""


@dataclass(frozen=True)
class Cluster:
    """One that runs: its URL, what a driver's environment must have, and where its jobs are logged."""

    url: str
    environ: dict[str, str]
    workers: list[int]
    events: Path

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """`rmqctl` with these arguments, as a driver of the cluster, when executors of killed drivers have ended."""
        deadline = time.monotonic() + END_SECONDS
        while any(_children(worker) for worker in self.workers) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return started_rmqctl(arguments, self.environ)

    def run(self, lines: Sequence[Sequence[object]]) -> list[Done]:
        """What command lines leave, each a job of one driver."""
        return in_one_session(lines, self.environ, master=self.url)

    def jobs_events(self) -> list[dict[str, Any]]:
        """What Spark logged of the newest application."""
        newest = max(self.events.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        return [json.loads(line) for line in newest.read_text().splitlines()]

    def tasks(self, begin: int, end: int) -> Counter[str]:
        """How many tasks of the newest application succeeded that were begun in that time (epoch ms), by the id of
        their executor.

        An executor is a process of its own.
        """
        return Counter(event["Task Info"]["Executor ID"] for event in self._good_tasks(begin, end))

    def result_bytes(self, begin: int, end: int) -> list[int]:
        """The bytes that each of these tasks sent to the driver, with what Spark adds."""
        return [event["Task Metrics"]["Result Size"] for event in self._good_tasks(begin, end)]

    def _good_tasks(self, begin: int, end: int) -> list[dict[str, Any]]:
        ends = [event for event in self.jobs_events() if event["Event"] == "SparkListenerTaskEnd"]
        good = [event for event in ends if event["Task End Reason"]["Reason"] == "Success"]
        return [event for event in good if begin <= event["Task Info"]["Launch Time"] <= end]

    def lost_tasks(self) -> int:
        """Count the tasks of the newest application that were lost with their executor."""
        ends = [event for event in self.jobs_events() if event["Event"] == "SparkListenerTaskEnd"]
        return sum(event["Task End Reason"]["Reason"] == "ExecutorLostFailure" for event in ends)

    def kill_an_executor_at_work(self, job: subprocess.Popen[str], writes: Path | None = None) -> int:
        """Kill -9 the first executor that is at a task of a job, before that task ends; its pid.

        With `writes`, the first whose JVM has a file below this folder open. Raises TimeoutError where there is none.
        """
        executor, daemon = awaited(job, lambda: self._at_work(writes))
        os.kill(daemon, signal.SIGSTOP)  # so that the task cannot end before its executor does
        for pid in [executor, *_children(daemon), daemon]:
            os.kill(pid, signal.SIGKILL)
        return executor

    def _at_work(self, writes: Path | None) -> tuple[int, int] | None:
        """An executor and its `pyspark.daemon`, which is started for a task."""
        for executor in (pid for worker in self.workers for pid in _children(worker)):
            daemons = [pid for pid in _children(executor) if b"pyspark.daemon" in _command_line(pid)]
            if daemons and (writes is None or any(path.is_relative_to(writes) for path in _open_files(executor))):
                return executor, daemons[0]
        return None


@contextmanager
def started(folder: Path) -> Iterator[Cluster]:
    """A cluster that keeps its files in `folder`, up to the end of the block."""
    events, settings, jvm = folder / "events", folder / "settings.conf", os.environ.get("SPARK_SUBMIT_OPTS", QUICK_JVM)
    events.mkdir()
    settings.write_text(_DEFAULTS.format(workers=WORKERS, events=events, jvm=jvm))
    of_daemons = {"SPARK_DAEMON_JAVA_OPTS": jvm, "JAVA_HOME": str(java_home(os.environ, folder / "java"))}
    environ = without_our_code(folder) | of_daemons
    with ExitStack() as stack:
        # a folder of settings would be on the class path, and no archive of classes fits a path with files in a folder
        named = ["--properties-file", str(settings)]
        at = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *named]
        master = stack.enter_context(
            SparkProcess("spark-class", [f"{_DEPLOY}.master.Master", *at], environ, folder / "master.log")
        )
        url = master.said(r"Starting Spark master at (spark://\S+)")
        workers = []
        for number in range(WORKERS):
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}")]
            arguments = [f"{_DEPLOY}.worker.Worker", *at, *size, url]
            workers.append(
                stack.enter_context(SparkProcess("spark-class", arguments, environ, folder / f"worker-{number}.log"))
            )
        for worker in workers:
            worker.said(r"(Successfully registered with master)")
        of_drivers = {**os.environ, **LOOPBACK, "PYSPARK_SUBMIT_ARGS": shlex.join([*named, "pyspark-shell"])}
        yield Cluster(url, of_drivers, [worker.pid for worker in workers], events)


def kill_executors(job: subprocess.Popen[str]) -> int:
    """Kill -9 all executors of a driver whose master is `local-cluster`; how many they were."""
    found = [pid for jvm in _children(job.pid) for pid in _children(jvm) if b"ExecutorBackend" in _command_line(pid)]
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return len(found)


def _children(pid: int) -> list[int]:
    """Processes that any thread of a process started."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(word) for words in lists for word in words.split()]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _open_files(pid: int) -> list[Path]:
    found = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found.append(link.readlink())
    return found
