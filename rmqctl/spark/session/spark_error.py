"""The reason for a Spark failure, in one line."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmqctl import errors
from rmqctl.errors import RmqctlError, Unreadable
from rmqctl.spark.session.jvm_signals import is_interruption

if TYPE_CHECKING:
    from collections.abc import Iterator

_OURS = re.compile(r"\brmqctl\.errors\.(\w+): (.+)")
# the last line of a Python traceback: what a worker, or the planner of a data source, raised
_RAISED = re.compile(r"^(?:\w+\.)*(?P<kind>\w+): (?P<what>.+)$", re.MULTILINE)
_HINTS = (
    (
        re.compile(r"ModuleNotFoundError: No module named"),
        (
            "the Python of the executors needs what `pip install .` installs in the clone of rmqctl, and pyarrow; "
            "PYSPARK_PYTHON sets which Python they use"
        ),
    ),
    (
        re.compile(r'Cannot run program ".*python'),
        "the executors have no such Python; set PYSPARK_PYTHON to one that all of them have",
    ),
)
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.+)$", re.MULTILINE)


def one_line(error: Exception) -> str:
    """Return the reason for an error of Spark, in one line.

    It is the exception at the end of the text's last Python traceback; without one, the last `Caused by` of a Java
    exception; else the first line.
    """
    text = str(error).strip()
    _, traceback, behind = text.rpartition("Traceback (most recent call last):")
    raised = _RAISED.search(behind) if traceback else None
    if raised is not None:
        return f"{raised['kind']}: {raised['what']}"
    causes = _CAUSE.findall(text)
    return str(causes[-1] if causes else text.split("\n", 1)[0])


def own_error(error: Exception) -> RmqctlError | None:
    """Return the rmqctl error that a task or a data source raised, or None.

    It has the class of the raised error, and so its exit code.
    """
    ours = _OURS.search(str(error))
    kind = getattr(errors, ours[1], None) if ours else None
    return kind(ours[2]) if ours and isinstance(kind, type) and issubclass(kind, RmqctlError) else None


def of_spark(error: Exception, what: str) -> RmqctlError:
    """Turn an error of Spark into an rmqctl error.

    This is the one that a task or a data source raised (`own_error`), else Unreadable, with `what` and the reason in
    the message.
    """
    hint = next((hint for pattern, hint in _HINTS if pattern.search(str(error))), "")
    return own_error(error) or Unreadable(f"{what}: {one_line(error)}", hint=hint)


@contextmanager
def spark_errors(what: str) -> Iterator[None]:
    """Turn Spark's exceptions in the block into rmqctl's errors (`of_spark`).

    One that an interruption caused becomes a KeyboardInterrupt. Other OSErrors stay unchanged.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        if is_interruption(error):
            raise KeyboardInterrupt from error
        if isinstance(error, OSError):
            raise
        raise of_spark(error, what) from error


def quiet_query_logs() -> None:
    """Stop PySpark from logging a query that Spark refuses: it also raises."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
