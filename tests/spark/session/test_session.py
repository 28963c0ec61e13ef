"""What a session leaves as it was, and what is heard of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmqctl.spark.session.session import Target, session

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[3]


def state() -> tuple[object, ...]:
    return signal.getsignal(signal.SIGINT), os.environ.get("JAVA_HOME"), os.environ.get("PYSPARK_PYTHON")


def test_ctrl_c_and_what_other_processes_find_stay_ours(no_session: None) -> None:
    before = state()
    with session(Target("local[1]"), os.environ) as spark:
        assert state() == before
        assert spark.range(3).count() == 3


IN_A_STORE = """
import os, sys
from rmqctl.spark.session.session import Target, session
from tests.support.listening import addresses_of_children

with session(Target("local[1]"), os.environ) as spark:
    spark.sparkContext.parallelize([1], 1).foreach(lambda _: sys.stderr.write("a worker's words"))
    spark.sql("SELECT 1").collect()
    print(*sorted(addresses_of_children()))
    classes = spark._jvm.java.lang.System.getProperty("java.class.path").split(":")
    print(*(entry or "the current folder" for entry in classes if not entry.startswith("/")))
    loggers = spark._jvm.org.apache.logging.log4j.LogManager
    scheduler = loggers.getLogger("org.apache.spark.scheduler.TaskSchedulerImpl")
    for words in ("Exception in statusUpdate", "no worker takes the tasks"):
        scheduler.warn(words)
"""
TRAP = "import os\nopen('trapped', 'w').close()\n"
IMPORTED_BY_WORKERS = (
    "gzip",
    "struct",
    "socket",
    "pickle",
    "pyspark",
    "numpy",
    "pyarrow",
    "rmqctl",
    "sitecustomize",
    "usercustomize",
)


def test_a_session_in_a_folder_of_someone_else_s(tmp_path: Path) -> None:
    """No module there is imported, nothing is written there; no other host reaches the JVM; what a worker prints is not
    heard, nor what the scheduler logs when a signal ends it.
    """
    here = tmp_path / "commitlog"
    for folder in (here, tmp_path / "bin", tmp_path / "jars"):
        folder.mkdir()
    for name in IMPORTED_BY_WORKERS:
        (here / f"{name}.py").write_text(TRAP)
    (tmp_path / "bin" / "spark-submit").write_text("#!/bin/sh\ntouch trapped\n")  # where PySpark looks for Spark first
    (tmp_path / "bin" / "spark-submit").chmod(0o755)
    before = sorted(tmp_path.rglob("*"))
    environ = {name: value for name, value in os.environ.items() if name not in ("SPARK_LOCAL_IP", "SPARK_HOME")} | {
        "PYTHONPATH": str(ROOT)
    }
    command = [sys.executable, "-P", "-c", IN_A_STORE]
    ended = subprocess.run(command, cwd=here, env=environ, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "127.0.0.1\n\n", "spark: no worker takes the tasks\n")
    assert sorted(tmp_path.rglob("*")) == before
