"""Signals that also reach Spark's JVM.

Ctrl-C, the SIGTERM of `timeout` and the hang-up of a terminal go to the whole process group. The JVM ignores SIGINT.
The other signals end the JVM, often before the job ends. Spark then reports the end of the JVM, but this is not what
ended the job.
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
    """Return whether an interruption is the cause of an error.

    Such an error occurs while interrupted work ends. For example, py4j asks a JVM that does not exist any more.
    """
    cause = error.__context__
    return isinstance(error, KeyboardInterrupt) or (cause is not None and is_interruption(cause))


@contextmanager
def signals_held() -> Iterator[None]:
    """Hold signals back while a JVM starts, which takes 2 s.

    If the start of a JVM is abandoned, the JVM prints many lines. The first signal takes effect after the block. A
    second signal takes effect immediately.
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

    PySpark's handler asks the JVM while another question is open, and then py4j prints a traceback.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def say_nothing_of_its_end(spark: SparkSession) -> None:
    """Keep PySpark from printing a traceback when the JVM ends.

    PySpark's thread for accumulators would print the traceback. The code that waits for the JVM gets an error anyway.
    """
    server = getattr(getattr(spark, "sparkContext", None), "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None
