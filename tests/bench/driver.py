"""The cost of `job verify` of one store for the driver: CPU by getrusage, and the bytes of the tasks' answers."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from rmqctl.spark.question.verify import verify
from rmqctl.spark.scan import task_answers
from rmqctl.spark.session.session import Target, session
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.bench.stores import KEYED_MESSAGES, keyed_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER_HEADINGS = (
    "driver of job verify, 4 GiB, two keys a message",
    "records",
    "seconds",
    "CPU seconds",
    "CPU ns a record",
    "bytes a record",
)
CALLERS = ("rmqctl.spark.scan.cluster_scan.answers", "rmqctl.spark.scan.store_tasks.answers")


def driver_rows(work: Path, runs: int) -> list[list[str]]:
    """A row for each size of bodies and each level, in a warm session: the JVM's own CPU time is not in it."""
    with session(Target(master="local[2]"), os.environ) as spark:
        return [_row(spark, work, body_size, level, runs) for body_size in KEYED_MESSAGES for level in (1, 2, 3)]


def _row(spark: SparkSession, work: Path, body_size: int, level: int, runs: int) -> list[str]:
    root = keyed_store(work, body_size)
    found = [_spent(spark, root, level) for _ in range(runs + 1)][1:]
    seconds, cpu, sent, records = (median(values) for values in zip(*found, strict=True))
    what = f"bodies of {body_size} bytes, level {level}"
    costs = [f"{cpu:.3f}", f"{cpu / records * 1e9:.1f}", f"{sent / records:.3f}"]
    return [what, f"{records:,}", f"{seconds:.2f}", *costs]


def _spent(spark: SparkSession, root: Path, level: int) -> tuple[float, float, int, int]:
    """Seconds, CPU seconds, bytes of answers and records of one verification."""
    sent: list[int] = []

    def counted(spark: SparkSession, calls: Sequence[Callable[[], Any]]) -> dict[int, Callable[[], Any]]:
        found = task_answers.answers(spark, calls)
        sent.extend(len(answer.args[0].data) for answer in found.values() if isinstance(answer, partial))
        return found

    with ExitStack() as stack:
        for name in CALLERS:
            stack.enter_context(patch(name, counted))
        store = stack.enter_context(closing(ReadOnlyStore(root)))
        begin, before = time.perf_counter(), _cpu()
        report = verify(spark, store, level=level)
        seconds, cpu = time.perf_counter() - begin, _cpu() - before
    if report.findings:
        raise RuntimeError(f"a store of a real broker has findings: {report.findings[0]}")
    return seconds, cpu, sum(sent), report.summary.messages


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
