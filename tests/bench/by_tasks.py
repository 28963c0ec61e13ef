"""What it gains that tasks hash, digest or confirm messages before Spark groups them.

The same questions on all records, and by tasks, in turns in one warm session.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rmqctl.spark.question import diff, duplicates, lost
from rmqctl.spark.question.log_records import LogRecords, ask
from rmqctl.spark.scan.coverage import range_of
from rmqctl.spark.session.session import Target, session
from rmqctl.spark.source.data_source import register
from rmqctl.spark.source.message_source import BlockSource, MessageSource, SendSource, UnconfirmedSource
from tests.bench.cpu import cpu_seconds
from tests.bench.large_log import FILE_SIZE, FILES, large_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BY_TASKS_HEADINGS = (
    "4 GiB, bodies of 1 KiB, a UNIQ_KEY a message", "CPU seconds, all records", "CPU seconds, by tasks", "of it",
    "bytes a message to Spark, all records", "by tasks",
)  # fmt: skip
SPLIT = {"splitMiB": "128"}
PROVED = ("kind", "detail")
DIFF_COLUMNS = ("physicalOffset", *diff.FINGERPRINT)
# of each question: what Spark got before, and what it gets now
SOURCES: dict[str, tuple[tuple[type[MessageSource], Sequence[str]], tuple[type[MessageSource], Sequence[str]]]] = {
    "duplicates": ((MessageSource, duplicates.COLUMNS), (SendSource, duplicates.SEND_FIELDS)),
    "diff": ((MessageSource, DIFF_COLUMNS), (BlockSource, diff.PART_FIELDS)),
    "lost": ((MessageSource, lost.COLUMNS), (UnconfirmedSource, lost.COLUMNS)),
}


def by_tasks_rows(work: Path, runs: int, files: int = FILES, file_size: int = FILE_SIZE) -> list[list[str]]:
    """A row for each question, on a log of so many files of this size."""
    store = large_log(work, "sent", files, file_size, unique=True)
    with session(Target(master="local[2]"), os.environ) as spark:
        register(spark)
        found = {what: _cpu_of(ways, runs) for what, ways in _questions(spark, str(store)).items()}
    return [_row(what, store, *cpu) for what, cpu in found.items()]


def _row(what: str, store: Path, before: float, now: float) -> list[str]:
    options = {"path": str(store), "ranges": "true", "allTopics": "false", "bodies": "false", **SPLIT}
    messages = [_sent(source, options, columns) for source, columns in SOURCES[what]]
    return [f"job {what}", f"{before:.2f}", f"{now:.2f}", f"{now / before:.2f}", *(f"{size:.2f}" for size in messages)]


def _questions(spark: SparkSession, root: str) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """The same question on all records, and by tasks."""
    sent, compared, queued = (
        LogRecords(spark, [root], SPLIT, columns) for columns in (duplicates.COLUMNS, DIFF_COLUMNS, lost.COLUMNS)
    )
    units = spark.read.format("rocketmq-queues").load(root)
    topics = spark.createDataFrame([], "store string, topic string")

    def first(found: DataFrame) -> Any:
        return duplicates.first(found, 1).collect()

    def count(found: DataFrame) -> int:
        return found.count()

    return {
        "duplicates": (
            lambda: ask([sent], lambda records: first(duplicates.duplicates(records)))[0],
            lambda: duplicates.ask_duplicates(sent, first, all_topics=False)[0],
        ),
        "diff": (
            lambda: ask([compared, compared], lambda a, b: count(diff.unequal(a, b)))[0],
            lambda: diff.ask_unequal(compared, compared, count, bodies=False)[0],
        ),
        "lost": (
            lambda: ask([queued], lambda records: lost.lost(records, units, topics).collect())[0],
            lambda: lost.ask_lost(queued, lambda _: units, topics)[0],
        ),
    }


def _cpu_of(ways: tuple[Callable[[], Any], ...], runs: int) -> tuple[float, float]:
    """The median CPU seconds of both ways, after one run that does not count. Raises RuntimeError if answers differ."""
    seconds: list[list[float]] = []
    for _ in range(runs + 1):
        seconds.append([])
        answers = []
        for way in ways:
            before = cpu_seconds()
            answers.append(way())
            seconds[-1].append(cpu_seconds() - before)
        if answers[0] != answers[1]:
            raise RuntimeError(f"two ways, two answers: {answers}")
    before, now = (median(some) for some in zip(*seconds[1:], strict=True))
    return before, now


def _sent(source: type[MessageSource], options: Mapping[str, str], columns: Sequence[str]) -> float:
    """The bytes a message that tasks give to Spark."""
    made = source(options, list(dict.fromkeys((*PROVED, *columns))))
    batches = [batch for task in made.tasks() for batch in _sizes(made, task)]
    messages = sum(count for _, count in batches)
    return sum(size for size, _ in batches) / messages


def _sizes(source: MessageSource, task: Any) -> list[tuple[int, int]]:
    """The bytes of each record batch, and the messages that its range counts."""
    found = []
    for batch in source.read(task):
        kinds, details = (batch.column(name).to_pylist() for name in PROVED) if len(batch) == 1 else ((), ())
        ranges = [detail for kind, detail in zip(kinds, details, strict=True) if kind == "range"]
        found.append((batch.nbytes, sum(range_of(detail).counts.messages for detail in ranges)))
    return found
