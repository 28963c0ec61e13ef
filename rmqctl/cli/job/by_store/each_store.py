"""Examine several stores with Spark, even if one store cannot be examined."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rmqctl.cli.job.spark_options import spark_session
from rmqctl.cli.output.complaint import report_error
from rmqctl.cli.output.render import progress
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.option_class import kept
from rmqctl.cli.shared.options import note_unfinished_change
from rmqctl.errors import RmqctlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rmqctl.store.read.read_only_store import ReadOnlyStore

T = TypeVar("T")


class Failed(NamedTuple):
    """A store that could not be examined: the exit code, and the reason."""

    exit_code: int
    error: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object for the store, without the key `store`."""
        return {"exitCode": self.exit_code, "error": self.error}


def results(
    stores: Iterable[Path],
    open_one: Callable[[Path], ReadOnlyStore],
    begin: Callable[[SparkSession, list[ReadOnlyStore]], AbstractContextManager[Callable[[ReadOnlyStore], T]]],
) -> Iterator[tuple[Path, T | Failed]]:
    """Open all stores, and yield the path and the result of each store, in order.

    `begin` starts the examination of all open stores. The function from `begin` waits for the result of one store.
    Errors are reported in the order of the stores. Spark starts only if a store was opened.
    """
    found: list[tuple[Path, ReadOnlyStore | Exception]] = []
    for path in stores:
        try:
            found.append((path, open_one(path)))
        except (RmqctlError, OSError) as error:
            found.append((path, error))
    opened = [store for _, store in found if not isinstance(store, Exception)]
    with ExitStack() as stack:
        if opened:
            result_of = stack.enter_context(begin(stack.enter_context(spark_session()), opened))
        for path, store in found:
            result: T | Failed
            try:
                if isinstance(store, Exception):
                    raise store
                result = result_of(store)
            except (RmqctlError, OSError) as error:
                result = Failed(report_error(error), str(error))
            yield path, result


def examined(
    stores: Iterable[Path],
    open_one: Callable[[Path], ReadOnlyStore],
    verb: str,
    work_on: Callable[[ReadOnlyStore], Callable[[ReadOnlyStore], T]],
) -> Iterator[tuple[Path, T | Failed]]:
    """Examine each store in a task of Spark, and yield its path and result.

    The driver calls `work_on` with a store, to get the function that the task calls with the same store. The progress
    has the name `verb`. Errors are reported as in `results`.
    """

    def begin(spark: SparkSession, opened: list[ReadOnlyStore]) -> AbstractContextManager[Callable[[ReadOnlyStore], T]]:
        return begun_tasks(spark, {store: work_on(store) for store in opened}, verb)

    return results(stores, open_one, begin)


@contextmanager
def begun_tasks(
    spark: SparkSession, work: Mapping[ReadOnlyStore, Callable[[ReadOnlyStore], T]], verb: str
) -> Iterator[Callable[[ReadOnlyStore], T]]:
    """Start a Spark task for each store in `work`.

    Yield a function that waits for the result of one store. The function reports the progress of `verb`, and an
    unfinished change of rmqctl, on stderr.
    """
    from rmqctl.spark.scan.store_tasks import in_tasks, warm_up_tasks

    if work:
        warmed_up(warm_up_tasks)  # once, before the tasks on this machine need the kernels
    with in_tasks(spark, work) as jobs:

        def result_of(store: ReadOnlyStore) -> T:
            with progress(kept("progress_mode"), store.commit_log.size, verb) as told:
                result = jobs[store]()
                told(store.commit_log.size)
            note_unfinished_change(store)
            return result

        yield result_of
