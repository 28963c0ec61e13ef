"""Verify several stores at once with Spark.

A task verifies a whole store, and sends only the report to the driver. Therefore the driver has no part in the work,
and the stores are verified as fast as the executors can read them. A store that has more than a quarter of all bytes
would keep one task busy for too long. Spark's tasks read such a store by splits, and the driver compares the log with
the queues and the index.
"""

from __future__ import annotations

import gc
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.forensics.verify import Verification, VerifyReport
from rmqctl.kernels.kernel_cache import find_folder
from rmqctl.kernels.warm_up import cache_in
from rmqctl.logfile.system.remote_storage import root_path, root_text
from rmqctl.spark.scan.split import Split, opened, whole_file
from rmqctl.spark.scan.task_answers import answers
from rmqctl.spark.session.spark_error import spark_errors
from rmqctl.store.read.read_only_store import ReadOnlyStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from rmqctl.store.config.broker_conf import BrokerConf

WHOLE_MAX = 4  # a store with more than 1/4 of all bytes is read by splits
JOBS_MAX = 64  # Spark jobs at once, one a store; more tasks than cores wait in Spark


class StoreCheck(NamedTuple):
    """What a task needs to verify a whole store.

    `root` is the path or the URL of the store. `first` is the first file of the log as the driver sees it, or None if
    the log has no file. With `receipts`, the receipts of `rmqctl clean` are believed.
    """

    root: str
    conf: BrokerConf
    follow_links: bool
    first: Split | None
    level: int
    receipts: bool

    def run(self) -> VerifyReport:
        """Verify the store in a task.

        Raises Unreadable if the store cannot be read, or if the task sees another store than the driver.
        """
        cache_in(find_folder())
        if self.first is not None:
            with opened(self.first):  # raises if it is not the driver's file
                pass
        path = root_path(self.root)
        with closing(ReadOnlyStore(path, self.conf, follow_links=self.follow_links, log_only=self.level == 1)) as store:
            found = Verification(store, self.level, receipts=self.receipts)
            found.warm_up()
            gc.freeze()  # PySpark collects garbage after each task: without the compiler's objects
            found.run()
            return found.report


def check_of(store: ReadOnlyStore, *, level: int, receipts: bool) -> StoreCheck:
    """Return the check of a store that a task shall make."""
    root, files = store.path.root.absolute(), store.commit_log.queue.files
    first = whole_file(files[0], 0, root) if files else None
    return StoreCheck(root_text(root), store.conf, store.storage.follow_links, first, level, receipts)


def is_whole(store: ReadOnlyStore, stores: Sequence[ReadOnlyStore]) -> bool:
    """Return whether one task verifies a store of `stores`."""
    return store.commit_log.size * WHOLE_MAX <= sum(one.commit_log.size for one in stores)


@contextmanager
def reports_of(
    spark: SparkSession, stores: Sequence[ReadOnlyStore], *, level: int, receipts: bool
) -> Iterator[dict[ReadOnlyStore, Callable[[], VerifyReport]]]:
    """Begin to verify each store of `stores` for which one task is enough.

    `is_whole` selects the stores. The block gets a function for each of them, which waits for the report and returns
    it. The function raises RmqctlError if the store could not be verified. Jobs that still wait when the block ends are
    cancelled.
    """
    whole = [store for store in stores if is_whole(store, stores)]
    executor = ThreadPoolExecutor(min(len(whole), JOBS_MAX) or 1, "store")
    try:
        jobs: dict[ReadOnlyStore, Future[VerifyReport]] = {
            store: executor.submit(_in_task, spark, check_of(store, level=level, receipts=receipts)) for store in whole
        }
        yield {store: job.result for store, job in jobs.items()}
    finally:
        executor.shutdown(wait=False, cancel_futures=True)  # a running job ends with its session


def _in_task(spark: SparkSession, check: StoreCheck) -> VerifyReport:
    with spark_errors(f"{check.root}: Spark could not verify the store"):
        return answers(spark, [partial(StoreCheck.run, check)])[0]()
