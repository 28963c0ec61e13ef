"""`job verify` without Spark: the tasks' functions are called here, in any order, and their answers packed as Spark
sends them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from rmqctl.forensics.audit.index_proof import FileProof, prove_file
from rmqctl.forensics.verify import LEVEL_ALL, Verification, VerifyReport
from rmqctl.spark.scan.cluster_scan import ClusterScan
from rmqctl.spark.scan.index_by_tasks import IndexByTasks
from rmqctl.spark.scan.log_split import Found, Reading, read_split
from rmqctl.spark.scan.split import Split
from rmqctl.spark.scan.store_tasks import StoreTask, task_of
from rmqctl.spark.scan.task_answers import packed, unpacked
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.commit_log import ScanSummary
from rmqctl.store.read.file_scan import RecordRun, ScanItem
from rmqctl.store.read.read_only_store import ReadOnlyStore

SPLIT_SIZE = 10_000


class ByTasks(NamedTuple):
    """The report of a verification, and whether the driver read the log again because the index was not proved."""

    report: VerifyReport
    read_again: bool


def read_here(splits: Sequence[Split], reading: Reading) -> dict[Split, Callable[[], Found]]:
    """As Spark's tasks do, the last one first."""
    return {split: partial(unpacked, packed(read_split(split, reading))) for split in reversed(splits)}


def verified_by_tasks(
    root: Path, level: int = LEVEL_ALL, conf: BrokerConf | None = None, *, split_size: int = SPLIT_SIZE
) -> ByTasks:
    """Verify a store by tasks that look up each queue, though small splits have few messages of a queue."""
    again = []

    def scan_again(summary: ScanSummary, builder: DispatchRequestBuilder | None) -> Iterator[ScanItem | RecordRun]:
        again.append(True)
        return ClusterScan(read_here, store.commit_log, root, split_size).scan(summary, builder)

    with (
        closing(ReadOnlyStore(root, conf)) as store,
        patch("rmqctl.forensics.audit.part_audit.MESSAGES_PER_QUEUE_MIN", 0),
    ):
        task = task_of(store)
        scan = ClusterScan(read_here, store.commit_log, root, split_size, compare_with=task)
        audit_index = partial(IndexByTasks, task=task, prove=_prove_here, parts=scan, scan=scan_again)
        verification = Verification(store, level, scan=scan.scan, audit_index=audit_index)
        verification.run()
        return ByTasks(verification.report, bool(again))


def _prove_here(task: StoreTask, names: Sequence[str]) -> list[FileProof]:
    return [unpacked(packed(task.run(partial(prove_file, name=name)))) for name in names]
