"""Examine whole stores, each in one Spark task.

A task sends only its result to the driver. The executors read the stores, so the speed does not depend on the driver.
Stores with small logs share a Spark job, because a job for each costs the driver more than its task costs the
executors. At most JOBS_MAX jobs run at once, in any order.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rmqctl.errors import RmqctlError
from rmqctl.kernels import cq_unit_compare, dispatch_scan, index_match, queue_offset_range, queue_simulate, scan
from rmqctl.kernels.warm_up import warm_up
from rmqctl.logfile.system.remote_storage import root_path, root_text
from rmqctl.spark.scan.split import Split, opened, whole_file
from rmqctl.spark.scan.task_answers import answers
from rmqctl.spark.scan.task_kernels import warm_up_once
from rmqctl.spark.session.spark_error import spark_errors
from rmqctl.store.read.read_only_store import ReadOnlyStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from rmqctl.store.config.broker_conf import BrokerConf

# what `verify` and `doctor` need, with the simulated start of a broker and the plan of a repair
KERNELS = (scan, dispatch_scan, cq_unit_compare, index_match, queue_offset_range, queue_simulate)
JOBS_MAX = 256  # a job needs a thread; if Spark has fewer cores, its tasks wait
# stores share a job up to so many bytes of log: the tasks take much longer than the job costs the driver
JOB_SIZE = 1 << 30
JOB_STORES_MAX = 256
T = TypeVar("T")


class StoreTask(NamedTuple):
    """The input of a task that examines a store."""

    root: str  # path or URL
    conf: BrokerConf
    follow_links: bool
    log_only: bool
    first: Split | None  # the first file of the log as the driver sees it, if there is one

    def run(self, work: Callable[[ReadOnlyStore], T]) -> T:
        """Open the store in a task, and return the result of `work`.

        Raises Unreadable if the store cannot be read, or if the task and the driver see different stores.
        """
        warm_up_once(*KERNELS)
        with self.opened() as store:
            return work(store)

    @contextmanager
    def opened(self) -> Iterator[ReadOnlyStore]:
        """Open the store in a task, for the block.

        Raises Unreadable as `run` does.
        """
        if self.first is not None:
            with opened(self.first):  # raises if it is not the driver's file
                pass
        path = root_path(self.root)
        with closing(ReadOnlyStore(path, self.conf, follow_links=self.follow_links, log_only=self.log_only)) as store:
            yield store


def warm_up_tasks() -> None:
    """Compile or load the kernels of the tasks, in the driver.

    Otherwise, each task on the driver's machine would compile them.
    """
    warm_up(*KERNELS)


def task_of(store: ReadOnlyStore) -> StoreTask:
    """Return the input of a task that opens a store with the driver's settings."""
    root, files = store.path.root.absolute(), store.commit_log.queue.files
    first = whole_file(store.commit_log, files[0], 0, root) if files else None
    if files:
        files[0].close()  # the driver may have very many stores
    return StoreTask(root_text(root), store.conf, store.storage.follow_links, store.path.log_only, first)


@contextmanager
def in_tasks(
    spark: SparkSession, work: Mapping[ReadOnlyStore, Callable[[ReadOnlyStore], T]]
) -> Iterator[dict[ReadOnlyStore, Callable[[], T]]]:
    """Begin to examine stores, with one task for each store.

    The task calls the function that `work` has for the store. The block gets, for each store, a function that waits for
    the task and returns its result, or raises RmqctlError if the store could not be examined. If stores share a job,
    their results are there when the job ends. When the block ends, jobs that have not started are cancelled.
    """
    executor = ThreadPoolExecutor(JOBS_MAX, "stores")
    results: dict[ReadOnlyStore, Callable[[], T]] = {}
    try:
        for stores in groups(work):
            job = executor.submit(_examine_group, spark, executor, [(task_of(store), work[store]) for store in stores])
            results |= {store: partial(_result, job, number) for number, store in enumerate(stores)}
        yield results
    finally:
        # a running job ends with its session, if rmqctl has begun the session
        executor.shutdown(wait=False, cancel_futures=True)


def groups(stores: Iterable[ReadOnlyStore]) -> Iterator[list[ReadOnlyStore]]:
    """Yield the stores in order, in groups that each share a job."""
    group: list[ReadOnlyStore] = []
    size = 0
    for store in stores:
        if group and (size + store.commit_log.size > JOB_SIZE or len(group) == JOB_STORES_MAX):
            yield group
            group, size = [], 0
        group.append(store)
        size += store.commit_log.size
    if group:
        yield group


def _result(group: Future[list[Future[T]]], number: int) -> T:
    return group.result()[number].result()


def _examine_group(
    spark: SparkSession, executor: ThreadPoolExecutor, group: Sequence[tuple[StoreTask, Callable[[ReadOnlyStore], T]]]
) -> list[Future[T]]:
    """Examine stores in one job, and begin one more job for each store that fails.

    If a task fails repeatedly, Spark ends the job, so a task of a shared job returns None if its store cannot be
    examined. In a job of its own, Spark tries a store on other executors after a failure, and the error is that of the
    store alone.
    """
    found = _together(spark, group) if len(group) > 1 else [None]
    return [
        executor.submit(_alone, spark, task, work) if result is None else _done(*result)
        for (task, work), result in zip(group, found, strict=True)
    ]


def _together(
    spark: SparkSession, group: Sequence[tuple[StoreTask, Callable[[ReadOnlyStore], T]]]
) -> Sequence[tuple[T] | None]:
    try:
        with spark_errors("Spark could not examine the stores"):
            found = answers(spark, [partial(_attempt, task, work) for task, work in group])
    except (RmqctlError, OSError):  # for example, an executor was killed at the same store again and again
        return [None] * len(group)
    return [found[number]() for number in range(len(group))]


def _attempt(task: StoreTask, work: Callable[[ReadOnlyStore], T]) -> tuple[T] | None:
    try:
        return (task.run(work),)
    except (RmqctlError, OSError):
        return None


def _done(result: T) -> Future[T]:
    done: Future[T] = Future()
    done.set_result(result)
    return done


def _alone(spark: SparkSession, task: StoreTask, work: Callable[[ReadOnlyStore], T]) -> T:
    with spark_errors(f"{task.root}: Spark could not examine the store"):
        return answers(spark, [partial(StoreTask.run, task, work)])[0]()
