"""`rmqctl job verify`: the log read by Spark's tasks, joined with queues and index on the driver; finding by finding as `rmqctl verify`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rmqctl.forensics.verify import LEVEL_ALL, Verification
from rmqctl.jobs.cluster_scan import ClusterScan
from rmqctl.jobs.split_source import read_splits

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rmqctl.forensics.verify import VerifyReport
    from rmqctl.store.read_only_store import ReadOnlyStore

SPLIT_SIZE = 128 * 1024 * 1024  # bytes: a task costs 50 ms beside its reading


def verify(
    spark: SparkSession, store: ReadOnlyStore, cache: Path | None, *, level: int = LEVEL_ALL, split_size: int = SPLIT_SIZE
) -> VerifyReport:
    """Verify a store whose folder every executor sees under the same path; tasks keep kernels in `cache`. Raises Unreadable."""
    scan = ClusterScan(partial(read_splits, spark), store.commit_log, store.path.root, cache, split_size).scan
    verification = Verification(store, level, scan=scan)
    verification.run()
    return verification.report
