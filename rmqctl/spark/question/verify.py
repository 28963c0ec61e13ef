"""`rmqctl job verify`: the checks of `rmqctl verify`, with Spark.

The findings are the same as those of `rmqctl verify`. If there are several stores, each small store is verified by one
task. Many tasks read the log of a large store or of a single store, and compare it with the queues and the index. The
driver examines only the messages that the tasks could not confirm.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rmqctl.forensics.verify import LEVEL_ALL, Verification
from rmqctl.kernels.kernel_cache import find_cache
from rmqctl.kernels.warm_up import cache_where
from rmqctl.spark.scan.cluster_scan import SPLIT_SIZE, scan_by_tasks
from rmqctl.spark.scan.index_by_tasks import IndexByTasks, prove_files
from rmqctl.spark.scan.store_tasks import task_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from rmqctl.forensics.verify import VerifyReport
    from rmqctl.store.read.read_only_store import ReadOnlyStore

WHOLE_MAX = 4


def verify(
    spark: SparkSession, store: ReadOnlyStore, *, level: int = LEVEL_ALL, split_size: int = SPLIT_SIZE
) -> VerifyReport:
    """Verify a store with Spark, and return the report.

    Every executor must have access to the store's folder under the same path. Raises Unreadable if the store cannot be
    read.
    """
    cache_where(find_cache)
    found = verification(spark, store, level=level, split_size=split_size)
    found.run()
    return found.report


def verification(
    spark: SparkSession, store: ReadOnlyStore, *, level: int, split_size: int, receipts: bool = True
) -> Verification:
    """Return the verification of a store, prepared but not started."""
    task = task_of(store)
    checked = scan_by_tasks(spark, store, split_size, compare_with=task)
    audit_index = partial(
        IndexByTasks,
        task=task,
        prove=partial(prove_files, spark),
        parts=checked,
        scan=scan_by_tasks(spark, store, split_size).scan,
    )
    return Verification(store, level, scan=checked.scan, audit_index=audit_index, receipts=receipts)


def small_stores(stores: Sequence[ReadOnlyStore]) -> list[ReadOnlyStore]:
    """Return the stores that are each verified by one Spark task.

    The log of a small store has at most a quarter of the bytes of all logs together.
    """
    total = sum(store.commit_log.size for store in stores)
    return [store for store in stores if store.commit_log.size * WHOLE_MAX <= total]


def whole_report(store: ReadOnlyStore, *, level: int, receipts: bool) -> VerifyReport:
    """Verify a store in one task, and return the report."""
    found = Verification(store, level, receipts=receipts)
    found.run()
    return found.report
