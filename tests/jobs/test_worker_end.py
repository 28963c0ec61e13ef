"""Workers of PySpark's end without a word."""

from __future__ import annotations

import os
import sys

import pytest

from rmqctl.jobs.session import Target, session
from rmqctl.jobs.worker_end import end_quietly

pytestmark = pytest.mark.spark


def _stderr_in_task(_: int) -> str:
    end_quietly()
    return sys.stderr.name


def test_in_a_task_stderr_goes_nowhere_elsewhere_it_stays() -> None:
    before = sys.stderr
    end_quietly()
    with session(Target(master="local[1]"), os.environ) as spark:
        found = spark.sparkContext.parallelize([1], 1).map(_stderr_in_task).collect()
    assert found == [os.devnull]
    assert sys.stderr is before
