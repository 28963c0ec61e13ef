"""Examine whole stores, each in one Spark job with one task.

A task sends only its result to the driver. The executors read the stores, so the speed does not depend on the driver.
At most JOBS_MAX stores are examined at once, in any order.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rmqctl.kernels import cq_unit_compare, dispatch_scan, index_match, queue_offset_range, queue_simulate, scan
from rmqctl.kernels.warm_up import warm_up
from rmqctl.logfile.system.remote_storage import root_path, root_text
from rmqctl.spark.scan.split import Split, opened, whole_file
from rmqctl.spark.scan.task_answers import answers
from rmqctl.spark.scan.task_kernels import warm_up_once
from rmqctl.spark.session.spark_error import spark_errors
from rmqctl.store.read.read_only_store import ReadOnlyStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from rmqctl.store.config.broker_conf import BrokerConf

# what `verify` and `doctor` need, with the simulated start of a broker and the plan of a repair
KERNELS = (scan, dispatch_scan, cq_unit_compare, index_match, queue_offset_range, queue_simulate)
JOBS_MAX = 256  # a job needs a thread; if Spark has fewer cores, its tasks wait
T = TypeVar("T")


class StoreTask(NamedTuple):
    """The input of a task that examines a store.

    `root` is the path or the URL of the store. `first` is the first file of the log as the driver sees it, or None if
    the log has no file.
    """

    root: str
    conf: BrokerConf
    follow_links: bool
    log_only: bool
    first: Split | None

    def run(self, work: Callable[[ReadOnlyStore], T]) -> T:
        """Open the store in a task, and return the result of `work`.

        Raises Unreadable if the store cannot be read, or if the task and the driver see different stores.
        """
        warm_up_once(*KERNELS)
        with self.opened() as store:
            return work(store)

    @contextmanager
    def opened(self) -> Iterator[ReadOnlyStore]:
        """Open the store in a task, and close the store after the block.

        Raises Unreadable if the store cannot be read, or if the task and the driver see different stores.
        """
        if self.first is not None:
            with opened(self.first):  # raises if it is not the driver's file
                pass
        path = root_path(self.root)
        with closing(ReadOnlyStore(path, self.conf, follow_links=self.follow_links, log_only=self.log_only)) as store:
            yield store


def warm_up_tasks() -> None:
    """Compile or load the kernels of the tasks.

    The driver calls this function first. Otherwise, each task on the driver's machine would compile the kernels.
    """
    warm_up(*KERNELS)


def task_of(store: ReadOnlyStore) -> StoreTask:
    """Return the input of a task that opens a store with the driver's settings."""
    root, files = store.path.root.absolute(), store.commit_log.queue.files
    first = whole_file(files[0], 0, root) if files else None
    if files:
        files[0].close()  # the driver may have very many stores
    return StoreTask(root_text(root), store.conf, store.storage.follow_links, store.path.log_only, first)


@contextmanager
def in_tasks(
    spark: SparkSession, work: Mapping[ReadOnlyStore, Callable[[ReadOnlyStore], T]]
) -> Iterator[dict[ReadOnlyStore, Callable[[], T]]]:
    """Begin to examine stores, with one task for each store.

    The task of a store calls the function that `work` has for the store. For each store, the block gets a function that
    waits for the task and returns the task's result. If a store could not be examined, its function raises RmqctlError.
    When the block ends, jobs that have not started are cancelled.
    """
    executor = ThreadPoolExecutor(min(len(work), JOBS_MAX) or 1, "store")
    try:
        jobs = {store: executor.submit(_examined_by, spark, task_of(store), one) for store, one in work.items()}
        yield {store: job.result for store, job in jobs.items()}
    finally:
        # a running job ends with its session, if rmqctl has begun the session
        executor.shutdown(wait=False, cancel_futures=True)


def _examined_by(spark: SparkSession, task: StoreTask, work: Callable[[ReadOnlyStore], T]) -> T:
    (found,) = examined(spark, task, [work])
    return found


def examined(spark: SparkSession, task: StoreTask, works: Sequence[Callable[[ReadOnlyStore], T]]) -> list[T]:
    """Call each function with the store in a task, and return the results in order.

    Raises RmqctlError if a task or Spark fails.
    """
    if not works:
        return []
    with spark_errors(f"{task.root}: Spark could not examine the store"):
        found = answers(spark, [partial(StoreTask.run, task, work) for work in works])
        return [found[number]() for number in range(len(works))]
