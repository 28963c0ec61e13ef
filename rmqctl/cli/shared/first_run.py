"""A remark on stderr: the first run of a verb compiles the kernels."""

from __future__ import annotations

from collections.abc import Callable

from rmqctl.cli.output.render import remark

PATIENCE_SECONDS = 0.7


def warmed_up(warm_up: Callable[[], None]) -> None:
    """Run `warm_up`, which compiles the kernels or loads them from the cache.

    If `warm_up` needs much time, stderr reports the reason.
    """
    import threading

    from rmqctl.kernels.kernel import compiling
    from rmqctl.kernels.kernel_cache import find_cache
    from rmqctl.kernels.warm_up import cache_where

    def watch() -> None:
        while not done.wait(PATIENCE_SECONDS):
            if compiling():
                remark("compiling for this machine; this takes a few seconds once, then it is cached")
                return

    cache_where(find_cache)
    done = threading.Event()
    threading.Thread(target=watch, daemon=True).start()
    try:
        warm_up()
    finally:
        done.set()
