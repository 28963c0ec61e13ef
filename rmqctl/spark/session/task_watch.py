"""The progress of a session's tasks, reported while the caller waits."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LOOK_SECONDS = 0.2


@contextmanager
def watched(spark: SparkSession, told: Callable[[int, int], None]) -> Iterator[None]:
    """Report the progress of the tasks while the block runs.

    A thread calls `told` with the numbers of finished and of all tasks of the running stages. Not with Spark Connect,
    whose server does not give these numbers.
    """
    from pyspark.errors import PySparkException

    try:
        context = spark.sparkContext
    except PySparkException:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(context, told, ended), name="rmqctl-tasks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _watch(context: SparkContext, told: Callable[[int, int], None], ended: threading.Event) -> None:
    from py4j.protocol import Py4JError

    before = None
    with suppress(Py4JError, OSError):  # the JVM has ended: the code that waits for the tasks gets an error
        tracker = context.statusTracker()
        while not ended.wait(LOOK_SECONDS):
            stages = [
                stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number)) is not None
            ]
            now = sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
            if stages and now != before:
                told(*now)
                before = now
