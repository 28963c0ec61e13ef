"""Read a log in Spark's tasks, and pass what they make to other tasks.

The first tasks read one split each. A function of the caller turns the items of the split into items for the driver,
and into pieces. Spark keeps the pieces on the disks of the executors. If Spark loses a piece, it runs the task again.
Then any number of tasks can get the pieces, in one shuffle each.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rmqctl.kernels import cq_unit_build, dispatch_scan, index_build, index_match, scan
from rmqctl.logfile.column_reader import ColumnReader
from rmqctl.spark.scan.cluster_scan import ClusterScan, scan_by_tasks
from rmqctl.spark.scan.log_split import Found, Reading
from rmqctl.spark.scan.split import opened, splits_of
from rmqctl.spark.scan.store_tasks import examined, task_of
from rmqctl.spark.scan.task_answers import Small, packed, unpacked
from rmqctl.spark.scan.task_kernels import warm_up_once
from rmqctl.spark.session.spark_error import spark_errors
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.commit_log import ScanSummary
from rmqctl.store.read.parallel_scan import scan_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark import RDD
    from pyspark.sql import SparkSession

    from rmqctl.spark.scan.split import Split
    from rmqctl.spark.scan.store_tasks import StoreTask
    from rmqctl.store.read.file_scan import RecordRun, ScanItem
    from rmqctl.store.read.read_only_store import ReadOnlyStore

    Route = Callable[[Any], Iterable[tuple[int, Callable[[Any], Any] | None]]]

T = TypeVar("T")
KERNELS = (scan, dispatch_scan, index_match, cq_unit_build, index_build)


class KeptPiece(NamedTuple):
    """A piece that Spark keeps: its header, and the compressed piece."""

    header: Any
    piece: Small


class SplitAnswer(NamedTuple):
    """The answer of a task: the number of a split, and its packed `Found`."""

    number: int
    found: bytes


class HowToGroup(NamedTuple):
    """The settings for reading splits, and the function that makes pieces."""

    store: StoreTask
    group: Callable[..., Any]
    with_keys: bool
    with_tags: bool


class LogShuffle:
    """Reads the log of one store in tasks, and passes pieces to other tasks.

    Every executor must have access to the store's folder under the same path. `parts` is the number of splits. In
    a Spark Connect session, tasks cannot keep pieces, because there are no RDDs.
    """

    def __init__(self, spark: SparkSession, store: ReadOnlyStore, split_size: int) -> None:
        self._spark = spark
        self._store = store
        self._split_size = split_size
        self._task = task_of(store)
        self._numbers = {
            split: number for number, split in enumerate(splits_of(store.commit_log, store.path.root, split_size))
        }
        self._kept: list[RDD[Any]] = []
        self.scan = scan_by_tasks(spark, store, split_size).scan
        self.parts = len(self._numbers)

    @property
    def keep_pieces(self) -> bool:
        """Return whether tasks can keep pieces for other tasks."""
        from pyspark.sql.utils import is_remote

        return not is_remote()

    def group(
        self, group_part: Callable[..., Any], *, with_keys: bool, with_tags: bool
    ) -> Iterator[ScanItem | RecordRun]:
        """Read each split in a task, call `group_part` there, and keep the pieces.

        Yield the items for the driver, in log order. If a task guessed a wrong begin of its split, the record runs of
        the split have no result. Raises Unreadable if a part of the log is missing or if Spark fails.
        """
        how = HowToGroup(self._task, group_part, with_keys, with_tags)

        def read(splits: Sequence[Split], _: Reading) -> dict[Split, Callable[[], Found]]:
            return self._read(splits, how)

        log = self._store.commit_log
        return ClusterScan(read, log, self._store.path.root, self._split_size).scan(ScanSummary(), None)

    def gather(self, route: Route, count: int, work: Callable[..., T]) -> list[T]:
        """Give pieces to `count` tasks, and return the results of the tasks.

        Tasks without a piece have no result. `route` gets the header of a piece, and yields the number of each task
        that gets the piece. With the number, `route` yields a function that returns what the task gets of the piece, or
        None for the whole piece. A task calls `work` with the store, its number, and a list of what it got, in any
        order.

        Raises Unreadable if Spark fails.
        """
        if not self._kept:
            return []
        made = self._spark.sparkContext.union(self._kept)
        passed = made.filter(_is_piece).flatMap(partial(passed_on, route=route)).partitionBy(count, _itself)
        found = passed.mapPartitions(partial(worked, task=self._task, work=work))
        return [unpacked(one) for one in self._collected(found)]

    def examine(self, works: Sequence[Callable[[ReadOnlyStore], T]]) -> list[T]:
        """Call each function with the store in a task, and return the results in order.

        Raises Unreadable if Spark fails.
        """
        return examined(self._spark, self._task, works)

    def forget(self) -> None:
        """Drop the kept pieces."""
        for kept in self._kept:
            kept.unpersist()
        self._kept = []

    def _read(self, splits: Sequence[Split], how: HowToGroup) -> dict[Split, Callable[[], Found]]:
        from pyspark import StorageLevel

        numbered = [(self._numbers[split], split) for split in splits]
        tasks = self._spark.sparkContext.parallelize(numbered, len(numbered))
        kept = tasks.flatMap(partial(grouped, how=how)).persist(StorageLevel.DISK_ONLY)
        self._kept.append(kept)
        found = {answer.number: answer.found for answer in self._collected(kept.filter(_is_answer))}
        return {split: partial(unpacked, found[number]) for number, split in numbered if number in found}

    def _collected(self, found: RDD[Any]) -> list[Any]:
        """Collect the results of tasks in another thread, so that Ctrl-C ends the wait."""
        executor = ThreadPoolExecutor(1, "shuffle")
        try:
            with spark_errors(f"{self._task.root}: Spark could not read the log"):
                return executor.submit(found.collect).result()
        finally:
            executor.shutdown(wait=False)


def grouped(numbered: tuple[int, Split], how: HowToGroup) -> Iterator[Any]:
    """Read a split in a task; yield the answer for the driver, and the pieces."""
    number, split = numbered
    warm_up_once(*KERNELS)
    builder = DispatchRequestBuilder(with_keys=how.with_keys, with_tags=how.with_tags)
    with opened(split) as file:
        reader = ColumnReader(check_bodies=False)
        part = scan_part(file, split.start, split.stop, reader, builder.take, exact=split.start == 0)
    pieces: list[tuple[Any, Any]] = []
    if part.first is not None:
        span = split.file_from_offset + part.first, split.file_from_offset + part.position
        items, pieces = how.group(number, span, part.items, builder, how.store.opened)
        part = part._replace(items=items)
    yield SplitAnswer(number, packed(Found(part, [])))
    yield from (KeptPiece(header, Small.of(piece)) for header, piece in pieces)


def passed_on(kept: KeptPiece, *, route: Route) -> Iterator[tuple[int, Small]]:
    """Yield the numbers of the tasks that get a piece, and what they get."""
    for number, cut in route(kept.header):
        yield number, kept.piece if cut is None else Small.of(cut(kept.piece.value()))


def worked(passed: Iterator[tuple[int, Small]], *, task: StoreTask, work: Callable[..., Any]) -> Iterator[bytes]:
    """Call `work` in a task with everything that has one number."""
    of_number: dict[int, list[Small]] = {}
    for number, piece in passed:
        of_number.setdefault(number, []).append(piece)
    if not of_number:
        return
    warm_up_once(*KERNELS)
    with task.opened() as store:
        for number, pieces in of_number.items():
            yield packed(work(store, number, [piece.value() for piece in pieces]))


def _is_answer(made: Any) -> bool:
    return isinstance(made, SplitAnswer)


def _is_piece(made: Any) -> bool:
    return not isinstance(made, SplitAnswer)


def _itself(number: int) -> int:
    return number
