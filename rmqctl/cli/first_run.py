"""What the first run of all says while it compiles."""

from __future__ import annotations

from collections.abc import Callable

from rmqctl.cli.render import remark

PATIENCE_SECONDS = 0.7


def prepared(prepare: Callable[[], None]) -> None:
    """Run `prepare`, which has kernels made ready; where that compiles, say so before the user wonders."""
    import threading

    from rmqctl.format.kernel import compiling
    from rmqctl.logfile.kernel_cache import find_folder
    from rmqctl.store.kernels import keep_in

    def say() -> None:
        if compiling():
            remark("the first run of a verb compiles for this machine, which takes some seconds; it is kept for the next time")

    keep_in(find_folder())
    timer = threading.Timer(PATIENCE_SECONDS, say)
    timer.daemon = True
    timer.start()
    try:
        prepare()
    finally:
        timer.cancel()
