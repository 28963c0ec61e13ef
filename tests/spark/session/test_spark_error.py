"""One line of what Spark says at length."""

from __future__ import annotations

import pytest

from rmqctl.errors import BadRequest, NotAStore, RmqctlError, Unreadable
from rmqctl.spark.session.spark_error import of_spark, one_line

OF_A_TASK = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/site-packages/pyspark/worker.py", line 2044, in main
    process()
rmqctl.errors.NotAStore: /mnt/a/store: no such folder (try /mnt/a)
"""
OF_A_PLAN = """\
[PYTHON_DATA_SOURCE_ERROR] Failed to generate Python data source read partitions: Traceback (most recent call last):
  File "/x/data_source.py", line 9, in partitions
    raise BadRequest("splitMiB is 'x'")
rmqctl.errors.BadRequest: splitMiB is 'x'
 SQLSTATE: 38000"""
OF_ANOTHER_TRACEBACK = """Job aborted
Traceback (most recent call last):
  File "/x/y.py", line 9, in read
ModuleNotFoundError: No module named 'numba'
"""
OF_JAVA = """An error occurred while calling o130.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 1.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:4568)
Caused by: java.io.IOException: Mkdirs failed to create file:/proc/x
\tat org.apache.hadoop.fs.ChecksumFileSystem.create(ChecksumFileSystem.java:774)
"""
OF_A_QUERY = """
[PARSE_SYNTAX_ERROR] Syntax error at or near 'selec'. SQLSTATE: 42601 (line 1, pos 0)

== SQL ==
selec 1
"""


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (OF_A_TASK, "NotAStore: /mnt/a/store: no such folder (try /mnt/a)"),
        (OF_A_PLAN, "BadRequest: splitMiB is 'x'"),
        (OF_ANOTHER_TRACEBACK, "ModuleNotFoundError: No module named 'numba'"),
        (OF_JAVA, "Mkdirs failed to create file:/proc/x"),
        (OF_A_QUERY, "[PARSE_SYNTAX_ERROR] Syntax error at or near 'selec'. SQLSTATE: 42601 (line 1, pos 0)"),
        ("", ""),
    ],
)
def test_one_line(said: str, line: str) -> None:
    assert one_line(RuntimeError(said)) == line


@pytest.mark.parametrize(
    ("said", "kind", "line"),
    [
        (OF_A_TASK, NotAStore, "/mnt/a/store: no such folder (try /mnt/a)"),
        (OF_A_PLAN, BadRequest, "splitMiB is 'x'"),
        (OF_JAVA, Unreadable, "job export: Mkdirs failed to create file:/proc/x"),
        ("rmqctl.errors.ExitCode: 3", Unreadable, "job export: rmqctl.errors.ExitCode: 3"),
    ],
)
def test_our_own_errors_are_ours_again(said: str, kind: type[RmqctlError], line: str) -> None:
    found = of_spark(RuntimeError(said), "job export")
    assert type(found) is kind
    assert str(found) == line
