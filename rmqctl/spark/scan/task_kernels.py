"""Compile or load kernels in Spark's tasks."""

from __future__ import annotations

import gc
from functools import cache
from typing import TYPE_CHECKING

from rmqctl.kernels.kernel_cache import find_cache
from rmqctl.kernels.warm_up import cache_where, warm_up

if TYPE_CHECKING:
    from rmqctl.kernels.warm_up import KernelModule


@cache
def warm_up_once(*modules: KernelModule) -> None:
    """Compile or load the kernels in a task, once for each process.

    The kernels are cached in a folder of the user who runs the task.
    """
    cache_where(find_cache)
    warm_up(*modules)
    # PySpark collects garbage after each task; with the compiler's objects, that would take twice as long as the task
    gc.freeze()
