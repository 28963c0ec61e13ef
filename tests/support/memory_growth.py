"""Measure the memory that repeated work leaves behind."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

RUNS, SETTLED = 1000, 100


def memory_growth(run: Callable[[], None]) -> int:
    """The bytes that 1000 runs leave behind, the first 101 aside."""
    memory = 0
    for number in range(RUNS):
        run()
        if number == SETTLED:
            gc.collect()
            tracemalloc.start()
            memory = tracemalloc.get_traced_memory()[0]
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - memory
    tracemalloc.stop()
    return grown
