"""Compile all kernels into the cache, in several processes."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed  # noqa: TID251 -- each gets PYTHONSAFEPATH
from multiprocessing import get_context  # noqa: TID251 -- each gets PYTHONSAFEPATH

from rmqctl.kernels.kernel_cache import KernelCache, find_cache
from rmqctl.kernels.warm_up import cache_where, warm_up

# the slowest modules first, so that all processes end at about the same time
MODULES = (
    "line_encode", "json_lines", "row_scan", "dispatch_scan", "index_match", "filter_scan", "group_scan",
    "scan", "index_build", "queue_simulate", "cq_unit_compare", "cq_unit_build", "queue_offset_range",
    "send_hash",
)  # fmt: skip


def warm_up_all(cache: KernelCache, on_done: Callable[[int, int], None]) -> list[str]:
    """Compile each kernel that `cache` does not have.

    Returns the names of the modules that could not be cached, for example because the disk is full. Each process opens
    the cache by itself (`find_cache`). After each module, `on_done` is called with the number of finished modules and
    the number of all modules.
    """
    workers = min(len(os.sched_getaffinity(0)), len(MODULES))
    with ProcessPoolExecutor(workers, get_context("spawn"), signal.signal, (signal.SIGINT, signal.SIG_DFL)) as pool:
        try:
            compiling = [pool.submit(_compile, name) for name in MODULES]
            for done, each in enumerate(as_completed(compiling), 1):
                each.result()
                on_done(done, len(MODULES))
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
    return [name for name in MODULES if not cache.has([name])]


def _compile(name: str) -> None:
    cache_where(find_cache)
    warm_up(importlib.import_module(f"rmqctl.kernels.{name}"))
