"""`rmqctl job verify`: the checks of `rmqctl verify`, with Spark.

The findings are the same. Of several stores, each small one is verified by one task. Many tasks read the log of a large
store or of a single one, and compare it with the queues and the index; the driver examines only the messages that they
could not confirm.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rmqctl.forensics.audit.index_audit import examine, without_gaps
from rmqctl.forensics.verify import LEVEL_ALL, Verification
from rmqctl.kernels.kernel_cache import find_cache
from rmqctl.kernels.warm_up import cache_where
from rmqctl.spark.scan.cluster_scan import SPLIT_SIZE, ClusterScan, read_splits
from rmqctl.store.read.commit_log import ScanSummary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from rmqctl.forensics.audit.index_findings import IndexPart
    from rmqctl.forensics.verify import VerifyReport
    from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
    from rmqctl.store.read.read_only_store import ReadOnlyStore

WHOLE_MAX = 4


def index_parts(store: ReadOnlyStore, scan: ClusterScan, builder: DispatchRequestBuilder) -> list[IndexPart]:
    """Return what the tasks of `scan` found in the index, in log order.

    If their parts do not fit together, the tasks read the log again, and the driver examines it as one part. Raises
    Unreadable if the log cannot be read.
    """
    parts = without_gaps(store, builder, scan.index_parts)
    return parts or [examine(store, builder, scan.scan(ScanSummary(), builder))]


def verify(
    spark: SparkSession, store: ReadOnlyStore, *, level: int = LEVEL_ALL, split_size: int = SPLIT_SIZE
) -> VerifyReport:
    """Verify a store with Spark.

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
    scan = ClusterScan(partial(read_splits, spark), store, split_size)
    parts = partial(index_parts, store, scan)
    return Verification(store, level, scan=scan.compare, index_parts=parts, receipts=receipts)


def small_stores(stores: Sequence[ReadOnlyStore]) -> list[ReadOnlyStore]:
    """Return the stores that are each verified by one Spark task.

    Their logs have at most a quarter of the bytes of all logs together, or have DLedger's headers.
    """
    total = sum(store.commit_log.size for store in stores)
    return [store for store in stores if store.commit_log.has_entries or store.commit_log.size * WHOLE_MAX <= total]


def whole_report(store: ReadOnlyStore, *, level: int, receipts: bool) -> VerifyReport:
    """Verify a store in one task, and return the report."""
    found = Verification(store, level, receipts=receipts)
    found.run()
    return found.report
