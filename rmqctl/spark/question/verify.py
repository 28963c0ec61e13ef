"""`rmqctl job verify`: the checks of `rmqctl verify`, with Spark.

The findings are the same as those of `rmqctl verify`. If there are several stores, each small store is verified by one
task. Many tasks read the log of a large store or of a single store, and compare it with the queues and the index. The
driver examines only the messages that the tasks could not confirm.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Protocol

from rmqctl.forensics.audit.index_audit import IndexAudit, tags_notes
from rmqctl.forensics.audit.index_proof import FileProof, compare, join_checks, prove_file
from rmqctl.forensics.verify import LEVEL_ALL, Verification
from rmqctl.kernels.kernel_cache import find_cache
from rmqctl.kernels.warm_up import cache_where
from rmqctl.spark.scan.cluster_scan import SPLIT_SIZE, scan_by_tasks
from rmqctl.spark.scan.store_tasks import examined, task_of
from rmqctl.store.read.commit_log import ScanSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from rmqctl.forensics.audit.index_proof import PartProof
    from rmqctl.forensics.finding import Finding
    from rmqctl.forensics.verify import Scan, VerifyReport
    from rmqctl.spark.scan.store_tasks import StoreTask
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns, DispatchRequestBuilder
    from rmqctl.store.read.read_only_store import ReadOnlyStore

WHOLE_MAX = 4


def prove_files(spark: SparkSession, task: StoreTask, names: Sequence[str]) -> list[FileProof]:
    """Check the index files with the names `names` in one Spark job.

    The tasks that read the log also compare their parts with the index. One more task for each index file checks the
    chains of the file. If the results cannot be joined, the driver reads the log a second time, and compares it with
    the index as `rmqctl verify` does. So the findings are the same.

    Raises Unreadable if Spark fails.
    """
    return examined(spark, task, [partial(prove_file, name=name) for name in names])


class ComparedScan(Protocol):
    """A scan whose tasks compare their parts of the log with the index."""

    index_parts: list[PartProof]


class IndexByTasks:
    """The comparison of the index with the log, from the results of tasks.

    `parts` is the scan whose tasks compare the log with the index. The scan must have ended when `finish` is called.
    `prove` runs the tasks for the index files. If the results cannot be joined, `scan` reads the log again, and
    its record runs must have dispatch columns.
    """

    def __init__(
        self,
        store: ReadOnlyStore,
        builder: DispatchRequestBuilder,
        *,
        task: StoreTask,
        prove: Callable[[StoreTask, Sequence[str]], Sequence[FileProof]],
        parts: ComparedScan,
        scan: Scan,
    ) -> None:
        self.findings: list[Finding] = []
        self._store = store
        self._builder = builder
        self._parts = parts
        self._scan = scan
        self._notes: list[str] = []
        executor = ThreadPoolExecutor(1, "index")
        self._files = executor.submit(prove, task, [file.file.name for file in store.index.files])
        executor.shutdown(wait=False)  # a running job ends with its session

    def on_messages(self, described: DispatchColumns) -> None:
        """Do nothing, because the tasks compare the messages with the index."""

    def finish(self) -> None:
        """Join the results of the tasks, or compare the index with the log here."""
        files = self._files.result()
        found = join_checks(self._store, files, self._parts.index_parts)
        if found is None:
            self._compare_here()
            return
        self.findings += found.findings
        last = max((proof.last for proof in files), default=0)
        self._notes += tags_notes(self._store, found.tags, last)

    def notes(self) -> Iterator[str]:
        """Yield remarks on the index."""
        yield from self._notes

    def _compare_here(self) -> None:
        """Read the log again, and compare all its messages with the index."""
        audit = IndexAudit(self._store, self._builder)
        compare(audit, self._builder, self._scan(ScanSummary(), self._builder))
        self.findings += audit.findings
        self._notes += audit.notes()


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
