"""Signals that reach Spark's JVM, too.

Ctrl-C, `timeout`'s SIGTERM and a terminal's hang-up go to the whole process group. The JVM ignores SIGINT and ends by
the others, often before the job does. What Spark says of its own end is then not what ended the job.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def is_interruption(error: BaseException) -> bool:
    """Return whether an error came of ending what a signal had interrupted, as py4j's do where it asks a JVM that is gone."""
    cause = error.__context__
    return isinstance(error, KeyboardInterrupt) or (cause is not None and is_interruption(cause))


@contextmanager
def signals_held() -> Iterator[None]:
    """Hold signals back while a JVM starts, which takes 2 s.

    A JVM that is abandoned meanwhile prints many lines. A signal takes effect afterwards; a second signal does at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}
    noted: list[int] = []

    def note(number: int, _: Any) -> None:
        noted.append(number)
        if len(noted) > 1:
            raise KeyboardInterrupt

    for number in before:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if noted:
            signal.raise_signal(noted[0])


@contextmanager
def ctrl_c_as_found() -> Iterator[None]:
    """Restore the handler of Ctrl-C after a block in which PySpark sets its own.

    PySpark's handler asks the JVM in the middle of another question, and py4j prints a traceback.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def say_nothing_of_its_end(spark: SparkSession) -> None:
    """Have no traceback printed by PySpark's thread for accumulators where the JVM goes away.

    Whoever waits for the JVM is told.
    """
    server = getattr(getattr(spark, "sparkContext", None), "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None
