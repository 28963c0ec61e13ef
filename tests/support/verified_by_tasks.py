"""`job verify` without Spark: the tasks' functions are called here, in any order, and their answers packed as Spark
sends them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from rmqctl.forensics.verify import LEVEL_ALL, LEVEL_QUEUES, Verification, VerifyReport, verify
from rmqctl.spark.question.verify import index_parts
from rmqctl.spark.scan.cluster_scan import ClusterScan
from rmqctl.spark.scan.log_split import Found, Reading, read_split
from rmqctl.spark.scan.split import Split
from rmqctl.spark.scan.task_answers import packed, unpacked
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support.file_edits import LOG_FILE_SIZE

SPLIT_SIZE = 10_000


class ByTasks(NamedTuple):
    """The report of a verification, and whether the driver read the log again, because parts did not fit together."""

    report: VerifyReport
    read_again: bool


def read_here(splits: Sequence[Split], reading: Reading) -> dict[Split, Callable[[], Found]]:
    """As Spark's tasks do, the last one first."""
    return {split: partial(unpacked, packed(read_split(split, reading))) for split in reversed(splits)}


def verified_by_tasks(
    root: Path, level: int = LEVEL_ALL, conf: BrokerConf | None = None, *, split_size: int = SPLIT_SIZE
) -> ByTasks:
    """Verify a store by tasks that look up each queue, though small splits have few messages of a queue."""
    with (
        closing(ReadOnlyStore(root, conf)) as store,
        patch("rmqctl.forensics.audit.part_audit.MESSAGES_PER_QUEUE_MIN", 0),
    ):
        scan = ClusterScan(read_here, store, split_size)
        parts = partial(index_parts, store, scan)
        verification = Verification(store, level, scan=scan.compare, index_parts=parts)
        with patch.object(scan, "scan", wraps=scan.scan) as again:
            verification.run()
        return ByTasks(verification.report, again.called)


@dataclass(frozen=True)
class Said:
    """A finding without its words."""

    code: str
    path: str
    file_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    count: int = 1


def said(root: Path, level: int = LEVEL_ALL, conf: BrokerConf | None = None) -> set[Said]:
    """The findings of verify, here and by tasks. A message and the unit in its place may be a finding each; nothing
    else is said twice.
    """
    store = ReadOnlyStore(root, conf)
    findings = verify(store, level).findings
    assert verified_by_tasks(root, level, conf, split_size=LOG_FILE_SIZE).report.findings == findings
    found = Counter(
        Said(one.code, one.path, one.file_offset, one.topic, one.queue_id, one.queue_offset, one.count)
        for one in findings
    )
    store.close()
    assert all(times == 1 or (times == 2 and place.code == "unit-mismatch") for place, times in found.items())
    return set(found)


def notes(root: Path, level: int = LEVEL_QUEUES) -> list[str]:
    """What verify thinks worth knowing."""
    store = ReadOnlyStore(root)
    found = verify(store, level).notes
    assert verified_by_tasks(root, level).report.notes == found
    store.close()
    return found
