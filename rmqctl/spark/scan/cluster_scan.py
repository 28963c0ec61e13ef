"""Scan a log with Spark's tasks.

The driver yields the items of the log (messages, blanks and damage) in log order, as a scan without Spark does. In `job
verify`, a task also compares its part of the log with the queues and the index, and the driver receives only the
messages that it could not confirm, and what it found in the index.

A task guesses where the first record of the split begins, except in the first split of a file. If its part does not
begin where the previous part ended, the driver reads the split again (`PartJoin`). If the parts of a log cannot be
joined without gaps, the job fails.

The splits are read in waves, each a Spark job. A wave is limited in size, because the driver must receive all its
results. While the driver works on one wave, Spark's tasks read the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.errors import Unreadable
from rmqctl.forensics.audit.part_audit import CheckedRun
from rmqctl.spark.scan.log_split import Found, Reading, read_split
from rmqctl.spark.scan.split import MIB, SPLIT_MIB, Split, splits_of
from rmqctl.spark.scan.store_tasks import task_of
from rmqctl.spark.scan.task_answers import answers
from rmqctl.spark.session.spark_error import spark_errors
from rmqctl.store.read.file_scan import RecordRun
from rmqctl.store.read.parallel_scan import PartJoin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from rmqctl.forensics.audit.index_findings import IndexPart
    from rmqctl.format.columns import Numbers
    from rmqctl.spark.scan.store_tasks import StoreTask
    from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
    from rmqctl.store.read.commit_log import ScanSummary
    from rmqctl.store.read.file_scan import ScanItem, ZeroTail
    from rmqctl.store.read.read_only_store import ReadOnlyStore

SPLIT_SIZE = SPLIT_MIB * MIB
WAVE_SIZE = (
    2 * 1024 * 1024 * 1024
)  # bytes of the log; for small messages, the results have half the size, and Spark allows 1 GiB
ReadSplits = Callable[
    [Sequence[Split], Reading], dict[Split, Callable[[], Found]]
]  # each result is unpacked when it is needed


class ClusterScan:
    """A scan of the log of a store by Spark's tasks.

    Each task reads `split_size` bytes of the log. A wave is a group of splits that one Spark job reads: `read` runs its
    tasks. Every executor must have access to the store's folder under the same path.
    """

    def __init__(self, read: ReadSplits, store: ReadOnlyStore, split_size: int = SPLIT_SIZE) -> None:
        self.index_parts: list[IndexPart | None] = []  # what `compare` found in the index, in log order
        self._read = read
        self._log = store.commit_log
        self._task = task_of(store)
        self._splits = splits_of(self._log, store.path.root, split_size)
        at_once = max(WAVE_SIZE // split_size, 1)
        self._waves = [self._splits[begin : begin + at_once] for begin in range(0, len(self._splits), at_once)]

    def scan(self, summary: ScanSummary, builder: DispatchRequestBuilder | None) -> Iterator[ScanItem | RecordRun]:
        """Yield all messages, blanks and damage of the log, in log order.

        With a `builder`, record runs have DispatchColumns. Raises Unreadable if a part of the log is missing or if
        Spark fails.
        """
        return self._scan(summary, builder, None)

    def compare(self, summary: ScanSummary, builder: DispatchRequestBuilder | None) -> Iterator[ScanItem | RecordRun]:
        """Yield the items as `scan` does, compared with queues and index by the tasks.

        With a `builder`, record runs have a CheckedRun, or DispatchColumns if the task did not compare the queues.
        """
        return self._scan(summary, builder, self._task)

    def _scan(
        self, summary: ScanSummary, builder: DispatchRequestBuilder | None, task: StoreTask | None
    ) -> Iterator[ScanItem | RecordRun]:
        reading = Reading(False, False, False)
        if builder is not None:
            reading = Reading(True, builder.with_keys, builder.with_tags, task)
        self.index_parts = []
        found, files = self._found(reading), self._log.queue.files
        splits = {files[number].path: list(of_file) for number, of_file in groupby(self._splits, attrgetter("file"))}
        yield from self._log.scan_by(
            lambda file: self._items(splits.get(file.path, []), found, reading, builder), summary
        )

    def _items(
        self, splits: list[Split], results: Iterator[Found], reading: Reading, builder: DispatchRequestBuilder | None
    ) -> Iterator[ScanItem | RecordRun | ZeroTail]:
        """Yield the items of one log file, whose splits have the next `results`."""
        join = PartJoin()
        for split in splits:
            found = next(results)
            if join.skips(split.stop):
                continue
            if not join.joins(found.part):
                found = read_split(split, reading, join.position)
            join.add(found.part)
            self.index_parts.append(found.in_index)
            if builder is None:
                yield from found.part.items
                continue
            numbers = np.array([builder.number(*queue) for queue in found.queues], np.int32)
            yield from (_numbered(item, numbers) for item in found.part.items)

    def _found(self, reading: Reading) -> Iterator[Found]:
        executor = ThreadPoolExecutor(1, "wave")
        try:
            jobs = (executor.submit(self._read, wave, reading) for wave in self._waves)
            pending = deque(islice(jobs, 1))
            for wave in self._waves:
                found = pending.popleft().result()
                pending.extend(islice(jobs, 1))
                missing = [split for split in wave if split not in found]
                if missing:
                    what = f"Spark's tasks left out {len(missing)} of {len(wave)} splits"
                    raise Unreadable(what, path=missing[0].path, offset=missing[0].start)
                for split in wave:
                    yield found.pop(split)()
        finally:
            executor.shutdown(wait=False, cancel_futures=True)  # a running job ends with its session


def _numbered(item: ScanItem | RecordRun | ZeroTail, numbers: Numbers) -> ScanItem | RecordRun | ZeroTail:
    """Replace a task's queue numbers in a record run with the driver's.

    A queue may have different numbers in different tasks. `numbers` has the driver's number of each queue of the part.
    """
    if not isinstance(item, RecordRun):
        return item
    if isinstance(item.result, CheckedRun):
        return item._replace(result=item.result.numbered(numbers))
    messages = item.result.messages
    messages["queue"] = numbers[messages["queue"]]
    return item


def read_splits(spark: SparkSession, splits: Sequence[Split], reading: Reading) -> dict[Split, Callable[[], Found]]:
    """Read splits in one Spark job, and return functions that unpack each `Found`.

    Raises Unreadable if Spark fails.
    """
    with spark_errors(f"{splits[0].root}: Spark could not read the log"):
        found = answers(spark, [partial(read_split, split, reading) for split in splits])
    return {splits[number]: result for number, result in found.items()}
