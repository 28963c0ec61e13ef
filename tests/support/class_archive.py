"""The classes that Spark loads, in an archive that later JVMs map: each begins with half the time of a processor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.spark_process import LOOPBACK, QUICK_JVM

MAKING_SECONDS = 900
_QUESTION = """
import os
from rmqctl.spark.session.session import Target, session

with session(Target("local[1]"), os.environ) as spark:
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "number int, name string")
    frame.groupBy("name").agg({"number": "sum"}).join(frame, "name").orderBy("name").collect()
    java = spark.sparkContext._gateway.proc
java.stdin.close()
java.wait()
"""


def with_archive(path: Path) -> str:
    """Make the archive by a session that answers a question, which needs a minute of a processor; the options of later
    JVMs.

    A JVM with another Java or class path goes on without the archive, and says nothing of that.
    """
    environ = {**os.environ, **LOOPBACK, "SPARK_SUBMIT_OPTS": f"{QUICK_JVM} -XX:ArchiveClassesAtExit={path}"}
    command = [sys.executable, "-c", _QUESTION]
    subprocess.run(command, env=environ, capture_output=True, timeout=MAKING_SECONDS, check=True)
    assert path.exists()
    return f"{QUICK_JVM} -XX:SharedArchiveFile={path} -Xlog:disable"
