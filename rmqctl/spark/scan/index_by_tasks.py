"""Compare the index with the log by Spark's tasks.

The tasks that read the log also compare their parts with the index. One more task for each index file checks the chains
of the file. If the results cannot be joined, the driver reads the log a second time, and compares it with the index as
`rmqctl verify` does. So the findings are the same.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Protocol

from rmqctl.forensics.audit.index_audit import IndexAudit, tags_notes
from rmqctl.forensics.audit.index_proof import FileProof, compare, join_checks, prove_file
from rmqctl.spark.scan.store_tasks import examined
from rmqctl.store.read.commit_log import ScanSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from rmqctl.forensics.audit.index_proof import PartProof
    from rmqctl.forensics.finding import Finding
    from rmqctl.forensics.verify import Scan
    from rmqctl.spark.scan.store_tasks import StoreTask
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns, DispatchRequestBuilder
    from rmqctl.store.read.read_only_store import ReadOnlyStore


def prove_files(spark: SparkSession, task: StoreTask, names: Sequence[str]) -> list[FileProof]:
    """Check the index files with the names `names` in one Spark job.

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
