"""Prepare several stores at the same time, in threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence
    from concurrent.futures import Future

    S = TypeVar("S", bound=Hashable)

T = TypeVar("T")
AT_ONCE = 8  # a prepared store keeps its new files, its lock, and its plan in memory
STOP_AGAIN_SECONDS = 0.5


@contextmanager
def prepared(
    stores: Sequence[S],
    prepare: Callable[[S], T],
    stop: Callable[[], object],
    discard: Callable[[T], object] = lambda _: None,
) -> Iterator[Callable[[S], T]]:
    """Prepare stores in threads, at most AT_ONCE stores at the same time.

    The block gets a function that waits until a store is prepared, and returns the result of `prepare` or raises its
    error. Call this function once for each store, in the order of `stores`. If the block ends before, `stop` stops the
    work of the threads, and `discard` gets the results for the other stores that were prepared. A single store needs
    no thread.
    """
    if len(stores) == 1:
        yield prepare
        return
    context = click.get_current_context()
    executor = ThreadPoolExecutor(AT_ONCE, "store")
    waiting = iter(stores)
    begun: dict[S, Future[T]] = {}

    def in_thread(store: S) -> T:
        with context.scope(cleanup=False):  # click has a context for each thread
            return prepare(store)

    def result_of(store: S) -> T:
        for behind in islice(waiting, AT_ONCE - len(begun)):
            begun[behind] = executor.submit(in_thread, behind)
        wait([begun[store]])
        return begun.pop(store).result()

    try:
        yield result_of
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        while not all(one.done() for one in begun.values()):
            stop()  # a thread may have begun more work since
            wait(begun.values(), STOP_AGAIN_SECONDS)
        for one in begun.values():
            if not one.cancelled() and one.exception() is None:
                discard(one.result())
