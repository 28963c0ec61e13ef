"""`rmqctl job verify`: the checks of `rmqctl verify`, with Spark.

Spark's tasks read the log. The driver compares the log with the queues and the index. The findings are the same as
those of `rmqctl verify`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.forensics.verify import LEVEL_ALL, Verification
from rmqctl.kernels.kernel_cache import find_folder
from rmqctl.kernels.warm_up import cache_in
from rmqctl.spark.scan.cluster_scan import SPLIT_SIZE, scan_by_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqctl.forensics.verify import VerifyReport
    from rmqctl.store.read.read_only_store import ReadOnlyStore


def verify(
    spark: SparkSession, store: ReadOnlyStore, *, level: int = LEVEL_ALL, split_size: int = SPLIT_SIZE
) -> VerifyReport:
    """Verify a store with Spark, and return the report.

    Every executor must have access to the store's folder under the same path. Raises Unreadable if the store cannot be
    read.
    """
    cache_in(find_folder())
    found = verification(spark, store, level=level, split_size=split_size)
    found.run()
    return found.report


def verification(
    spark: SparkSession, store: ReadOnlyStore, *, level: int, split_size: int, receipts: bool = True
) -> Verification:
    """Return the verification of a store, prepared but not started."""
    return Verification(store, level, scan=scan_by_tasks(spark, store, split_size), receipts=receipts)
