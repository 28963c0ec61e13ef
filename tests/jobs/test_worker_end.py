"""Workers of PySpark's end without a word."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from rmqctl.jobs.worker_end import end_quietly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def _stderr_in_task(_: int) -> str:
    end_quietly()
    return sys.stderr.name


def test_in_a_task_stderr_goes_nowhere_elsewhere_it_stays(spark: SparkSession) -> None:
    before = sys.stderr
    end_quietly()
    assert spark.sparkContext.parallelize([1], 1).map(_stderr_in_task).collect() == [os.devnull]
    assert sys.stderr is before
