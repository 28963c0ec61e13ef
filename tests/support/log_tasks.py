"""Spark's tasks of a rebuild, without Spark: they are called here, in another order, and what they send is packed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rmqctl.spark.scan.cluster_scan import ClusterScan
from rmqctl.spark.scan.log_shuffle import HowToGroup, SplitAnswer, grouped, passed_on, worked
from rmqctl.spark.scan.log_split import Found, Reading
from rmqctl.spark.scan.split import Split, splits_of
from rmqctl.spark.scan.store_tasks import task_of
from rmqctl.spark.scan.task_answers import packed, unpacked
from rmqctl.store.read.commit_log import ScanSummary
from rmqctl.store.read.file_scan import RecordRun, ScanItem
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support.verified_by_tasks import read_here

if TYPE_CHECKING:
    from rmqctl.spark.scan.log_shuffle import Route

T = TypeVar("T")


class TasksHere:
    """As `LogShuffle`; the last split is read first."""

    keep_pieces = True

    def __init__(self, store: ReadOnlyStore, root: Path, split_size: int) -> None:
        self._log, self._root, self._split_size = store.commit_log, root, split_size
        self._task = task_of(store)
        self._numbers = {split: number for number, split in enumerate(splits_of(store.commit_log, root, split_size))}
        self._pieces: list[bytes] = []
        self.parts = len(self._numbers)
        self.read_again = False
        self.forgotten = False

    def scan(self, summary: ScanSummary, builder: Any) -> Iterator[ScanItem | RecordRun]:
        self.read_again = True
        return ClusterScan(read_here, self._log, self._root, self._split_size).scan(summary, builder)

    def group(self, group_part: Callable[..., Any], *, with_keys: bool, with_tags: bool) -> Iterator[Any]:
        how = HowToGroup(self._task, group_part, with_keys, with_tags)

        def read(splits: Sequence[Split], _: Reading) -> dict[Split, Callable[[], Found]]:
            found = {}
            for split in reversed(splits):
                for made in grouped(unpacked(packed((self._numbers[split], split))), unpacked(packed(how))):
                    if isinstance(made, SplitAnswer):
                        found[split] = made.found
                    else:
                        self._pieces.append(packed(made))
            return {split: partial(unpacked, found[split]) for split in splits}

        return ClusterScan(read, self._log, self._root, self._split_size).scan(ScanSummary(), None)

    def gather(self, route: Route, count: int, work: Callable[..., T]) -> list[T]:
        route = unpacked(packed(route))
        passed = [one for piece in self._pieces for one in passed_on(unpacked(piece), route=route)]
        assert all(0 <= number < count for number, _ in passed)
        found = worked(iter(passed), task=unpacked(packed(self._task)), work=unpacked(packed(work)))
        return [unpacked(one) for one in found]

    def examine(self, works: Sequence[Callable[[ReadOnlyStore], T]]) -> list[T]:
        return [unpacked(packed(self._task.run(unpacked(packed(work))))) for work in works]

    def forget(self) -> None:
        self._pieces, self.forgotten = [], True
