"""The end of a worker of PySpark's, which nobody needs to hear of."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def end_quietly() -> None:
    """In a task: what its worker prints from now on is not shown. Elsewhere nothing happens.

    A worker that waits for its next task when the session ends prints a traceback, where it finds its driver gone before it is ended
    itself. What goes wrong in a task reaches the driver as an exception.
    """
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 -- as long as the process lives
