"""What a session leaves as it was, and what is heard of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from rmqctl.jobs.session import Target, session
from tests.jobs.spark_process import LOOPBACK

pytestmark = pytest.mark.spark


def state() -> tuple[object, ...]:
    return signal.getsignal(signal.SIGINT), os.environ.get("JAVA_HOME"), os.environ.get("PYSPARK_PYTHON")


def test_ctrl_c_and_what_other_processes_find_stay_ours(no_session: None) -> None:
    before = state()
    with session(Target("local[1]"), os.environ) as spark:
        assert state() == before
        assert spark.range(3).count() == 3


LOUD = """
import os, sys
from rmqctl.jobs.session import Target, session

with session(Target("local[1]"), os.environ) as spark:
    spark.sparkContext.parallelize([1], 1).foreach(lambda _: sys.stderr.write("a worker's words"))
"""


def test_what_a_worker_prints_is_not_heard() -> None:
    ended = subprocess.run([sys.executable, "-c", LOUD], env={**os.environ, **LOOPBACK}, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
