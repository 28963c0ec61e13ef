"""Signals that are sent to rmqctl and to Spark's JVM.

Ctrl-C, the SIGTERM of `timeout` and the hang-up of a terminal go to the whole process group. The JVM ignores SIGINT
(Ctrl-C). SIGTERM and SIGHUP end it, often before rmqctl can end the job, and Spark's error then does not name the
signal.
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

    `error` is then a KeyboardInterrupt, or was raised during the handling of one: while the job ends, py4j raises an
    error if the JVM has ended.
    """
    cause = error.__context__
    return isinstance(error, KeyboardInterrupt) or (cause is not None and is_interruption(cause))


@contextmanager
def signals_held() -> Iterator[None]:
    """Delay signals while a JVM starts, which takes 2 s.

    A JVM whose start is interrupted prints many lines, and may run forever without rmqctl. The first signal takes
    effect after the block, and further ones are ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}
    noted: list[int] = []

    def note(number: int, _: Any) -> None:
        noted.append(number)

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
    """Restore the handler of Ctrl-C after the block.

    In the block, PySpark sets its own, which may call the JVM while another call is still open: py4j then prints a
    traceback.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def say_nothing_of_its_end(spark: SparkSession) -> None:
    """Stop PySpark from printing a traceback when the JVM ends.

    PySpark's thread for accumulators prints it. The code that waits for the JVM gets an error anyway.
    """
    server = getattr(getattr(spark, "sparkContext", None), "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None
