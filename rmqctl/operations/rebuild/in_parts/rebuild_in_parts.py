"""A rebuild whose queue files and index files are written by tasks.

1. Each task reads a part of the log, and sorts its messages by queue (`grouped_part`).
2. Each task writes some ranges of queues (`queue_range`). Other tasks write one index file each (`index_part`).
3. The driver checks that the ranges of a queue follow each other, and moves the files into the staging folder.

The driver receives a few numbers for each range, each index file and each part of the log. The new files are the same
as those of `Rebuild`.

Only `Rebuild` can build a queue whose messages do not follow each other, for example after damage, and a queue that
ends with strays (`strays`). For such queues, the driver reads the log a second time, and builds them itself. The driver
builds everything itself if messages name LMQ queues, if the queues have an extension, if log files overlap, or if the
tasks cannot write to the folder of the store.
"""

from __future__ import annotations

import errno
import time
from collections import defaultdict
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from rmqctl.forensics.audit.index_proof import join_checks, prove_file
from rmqctl.format.cq_unit import CQ_UNIT
from rmqctl.format.message import Damage
from rmqctl.logfile import file_tree
from rmqctl.operations.rebuild.built_queue import QueueCounts, not_as_made
from rmqctl.operations.rebuild.in_parts.grouped_part import DescribedRun, Grouping, PartSummary, PileHeader, group_part
from rmqctl.operations.rebuild.in_parts.index_part import IndexGeometry, IndexPlan, build_index_file
from rmqctl.operations.rebuild.in_parts.queue_range import TASKS_FOLDER, RangeSettings, RangeState, build_pile
from rmqctl.operations.rebuild.index_builder import made_at
from rmqctl.operations.rebuild.rebuild import Rebuild, dispatched_message
from rmqctl.store.config import store_path
from rmqctl.store.read.commit_log import FILE_OVERLAP
from rmqctl.store.read.file_scan import RecordRun
from rmqctl.store.write.index_writer import name_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rmqctl.forensics.audit.index_proof import JoinedChecks, PartProof
    from rmqctl.forensics.finding import Finding
    from rmqctl.logfile.system.staging_storage import StagingStorage
    from rmqctl.operations.rebuild.in_parts.grouped_part import KeysHeader
    from rmqctl.operations.rebuild.in_parts.index_part import BuiltIndexFile
    from rmqctl.operations.rebuild.in_parts.log_tasks import LogTasks
    from rmqctl.operations.rebuild.in_parts.queue_range import BuiltPile, BuiltRange, Refused
    from rmqctl.operations.rebuild.rebuild import IndexCheck
    from rmqctl.operations.rebuild.selection import Selection
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.file_scan import ScanItem
    from rmqctl.store.read.read_only_store import ReadOnlyStore

RANGE_UNITS = 1_000_000  # at least; a range has whole files
PARTS_PER_PILE, PILES_MAX = 4, 2000
# the errors of an executor that does not have the store's folder, or may not write to it
CANNOT_WRITE = frozenset((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR))


class _Counted(NamedTuple):
    """The results of the first tasks: items of the log, and summaries of parts."""

    items: list[ScanItem | RecordRun]
    parts: dict[int, PartSummary]


class RebuildInParts(Rebuild):
    """Rebuilds queues and index of `store` by `tasks`.

    `staging` and `selection` are those of `Rebuild`. A rebuild in parts cannot be continued after an interruption.
    """

    def __init__(self, store: ReadOnlyStore, selection: Selection, staging: Path | None, tasks: LogTasks) -> None:
        super().__init__(store, selection, staging, scan=tasks.scan)
        self._tasks = tasks
        self._audit: _PartsAudit | None = None
        self._made_by_tasks: frozenset[QueueKey] = frozenset()

    def begin_audit(self) -> IndexCheck | None:
        """Begin to compare the existing index with the log, in the tasks."""
        if self.selection.index and self._store.index.files:
            self._audit = _PartsAudit(self._store, self._tasks, self.selection, super().begin_audit)
        return self._audit

    def run(self, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Build the queues and the index; return False if `is_over` stopped it."""
        started = time.perf_counter()
        try:
            if not self._run_in_parts():
                return self._run_here(is_over)
        finally:
            self._tasks.forget()
        self.result.seconds = time.perf_counter() - started
        return True

    def _run_here(self, is_over: Callable[[], bool]) -> bool:
        if self._audit is not None:
            self._audit.begin_here()
        return super().run(is_over)

    def _run_in_parts(self) -> bool:
        """Build everything by tasks, except the queues that only the driver can build.

        The result is False if the driver must build everything. Then the result of the rebuild is unchanged.
        """
        grouping = self._grouping()
        counted = self._counted(grouping)
        if counted is None:
            return False
        if self._storage is not None:
            self._storage.make_folder(self._storage.root / TASKS_FOLDER)
        plan = _index_plan(counted, self.geometry.index_entries - 1, only_ends=self._storage is None)
        piles, files = self._piles(counted, grouping), self._index_files(plan)
        queues = _by_queue(piles)
        if self._is_refused([*(pile.refused for pile in piles), *(file.refused for file in files)]):
            self._remove_task_folder()
            return False
        left_out = self._left_out(queues, counted)
        if left_out is None:
            self._remove_task_folder()
            return False
        self._take(counted.items)
        self._take_index(files, plan)
        whole = {key: ranges for key, ranges in queues.items() if _is_whole(ranges)}
        odd = frozenset(key for key, ranges in queues.items() if key not in whole and not _is_left_out(ranges))
        self._install(whole)
        if odd:
            self._build_here(odd)
        self._conclude([_whole_counts(ranges) for ranges in whole.values()], left_out)
        self._remove_task_folder()
        return True

    def _grouping(self) -> Grouping:
        file_units = self.geometry.consumequeue_file_size // CQ_UNIT.size
        units_per_range = -(-RANGE_UNITS // file_units) * file_units
        piles = min(-(-self._tasks.parts // PARTS_PER_PILE), PILES_MAX) or 1
        return Grouping(self.selection.queues, self.selection.index, self._audit is not None, units_per_range, piles)

    def _counted(self, grouping: Grouping) -> _Counted | None:
        """Let tasks read the log. The result is None if the driver must build everything."""
        if not self._tasks.keep_pieces or self._with_ext:
            return None
        found = _Counted([], {})
        group = partial(group_part, grouping=grouping)
        keys = self.selection.index
        for item in self._tasks.group(group, with_keys=keys, with_tags=keys and self.selection.tags):
            if isinstance(item, RecordRun):
                if item.result is None:
                    return None
                part = item.result.part
                if part is not None and part.names_light_queues:
                    return None
                found.parts.update({} if part is None else {part.split: part})
            elif _needs_driver(item):
                return None
            found.items.append(item)
        if self._audit is not None:
            proofs = (part.in_index for _, part in sorted(found.parts.items()))
            self._audit.parts = [proof for proof in proofs if proof is not None]
        return found

    @property
    def _staging(self) -> str | None:
        """Return the folder for new files, or None if nothing is written."""
        return None if self._storage is None else str(self._storage.root.absolute())

    def _piles(self, counted: _Counted, grouping: Grouping) -> list[BuiltPile]:
        if not self.selection.queues:
            return []
        route = partial(_pile_of, splits=frozenset(counted.parts))
        size = self.geometry.consumequeue_file_size
        settings = RangeSettings(self.wanted, size, self.log_range, self._staging)
        work = partial(build_pile, settings=settings)
        return self._tasks.gather(route, grouping.piles, work)

    def _index_files(self, plan: IndexPlan) -> list[BuiltIndexFile]:
        if not self.selection.index or not plan.files:
            return []
        geometry = IndexGeometry(self.geometry.index_slots, self.geometry.index_entries)
        work = partial(build_index_file, geometry=geometry, staging=self._staging)
        found = self._tasks.gather(plan.route, plan.files, work)
        return sorted(found, key=lambda file: file.number)

    def _is_refused(self, refused: Sequence[Refused | None]) -> bool:
        """Return whether an executor may not write to the store's folder.

        Raises OSError if the system refused a write for another reason, for example because the disk is full.
        """
        found = [one for one in refused if one is not None]
        for one in found:
            if one.errno not in CANNOT_WRITE:
                raise OSError(one.errno, one.strerror, one.path)
        if found:
            self.result.built_here = f"a task could not write to {found[0].path}: {found[0].strerror}"
        return bool(found)

    def _left_out(self, queues: Mapping[QueueKey, Sequence[BuiltRange]], counted: _Counted) -> dict[str, int] | None:
        """Return the number of messages of each topic whose queues are not rebuilt.

        The result is None if only `QueueBuilder` can count these messages.
        """
        in_no_queue = {
            (topic.decode("utf-8", "replace"), queue_id)
            for part in counted.parts.values()
            for topic, queue_id in part.in_no_queue
        }
        found: dict[str, int] = {}
        for key, ranges in queues.items():
            if self.wanted.builds(key) or key[0] in self.wanted.batch_topics:
                continue
            if key in in_no_queue or not _is_left_out(ranges):
                return None
            found[key[0]] = found.get(key[0], 0) + sum(one.messages for one in ranges)
        return found

    def _take(self, items: Iterable[ScanItem | RecordRun]) -> None:
        """Count the messages and the damage of the log."""
        log = self.result.log
        for item in items:
            if not isinstance(item, RecordRun):
                self._see(item)
                continue
            run: DescribedRun = item.result
            log.messages += run.messages
            for place in run.rolled_back:
                self._queues.lose(*place)
            log.position = max(log.position, item.end)

    def _take_index(self, files: Sequence[BuiltIndexFile], plan: IndexPlan) -> None:
        """Count the entries of the index, and move its files into the staging folder."""
        index = self.result.index
        index.entries = plan.entries
        index.full_until = files[-1].full_until if files else 0
        if self._storage is None:
            return
        name = ""
        for file in files:
            if file.path is not None:
                name = name_after(name, made_at(file.begin_timestamp))
                self._storage.rename(Path(file.path), self._storage.root / store_path.INDEX / name)
                index.end_timestamp = file.end_timestamp

    def _install(self, queues: Mapping[QueueKey, Sequence[BuiltRange]]) -> None:
        """Move the files of whole queues into the staging folder."""
        self._made_by_tasks = frozenset(queues)
        if self._storage is None:
            return
        for key, ranges in queues.items():
            below = Path(store_path.CONSUMEQUEUE, key[0], str(key[1]))
            sources = [Path(one.folder) / below for one in ranges if one.folder is not None]
            _move_files(self._storage, sources, self._storage.root / below)

    def _build_here(self, keys: frozenset[QueueKey]) -> None:
        """Build the queues `keys` on the driver, from a second scan of the log."""
        staging = None if self._storage is None else self._storage.root
        rest = Rebuild(self._store, replace(self.selection, index=False, keys=keys), staging, scan=self._tasks.scan)
        rest.run()
        self.result.queues += rest.result.queues
        self.result.strays += rest.result.strays

    def _check_queue(self, counts: QueueCounts, storage: StagingStorage) -> None:
        """Check a queue. The task that wrote a queue has already compared its bytes."""
        if counts.key not in self._made_by_tasks:
            super()._check_queue(counts, storage)
            return
        size = self.geometry.consumequeue_file_size
        units = size // CQ_UNIT.size
        folder = storage.root / store_path.CONSUMEQUEUE / counts.topic / str(counts.queue_id)
        sizes = [entry.size for entry in storage.listing(folder)]
        if sizes != [size] * ((counts.max_offset - 1) // units - counts.min_offset // units + 1):
            raise not_as_made(storage.display(folder))

    def _remove_task_folder(self) -> None:
        """Remove what tasks have left.

        If a late task still writes, the folder stays in the staging folder.
        """
        try:
            if self._storage is not None:
                file_tree.remove(self._storage, self._storage.root / TASKS_FOLDER)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise


class _PartsAudit:
    """The comparison of the existing index with the log, made by the tasks.

    `parts` are the comparisons of the parts of the log, in log order. `begin_here` begins a comparison on the driver.
    """

    def __init__(
        self, store: ReadOnlyStore, tasks: LogTasks, selection: Selection, begin: Callable[[], IndexCheck | None]
    ) -> None:
        self.findings: list[Finding] = []
        self.parts: list[PartProof] = []
        self._store = store
        self._tasks = tasks
        self._selection = selection
        self._begin = begin
        self._here: IndexCheck | None = None

    def begin_here(self) -> None:
        """Compare the index on the driver, because the driver reads all messages."""
        self._here = self._begin()

    def finish(self) -> None:
        """Join the comparisons. If they cannot be joined, read the log again."""
        if self._here is None and (found := self._joined()) is not None:
            self.findings += found.findings
            return
        check = self._here or self._compared_here()
        if check is not None:
            check.finish()
            self.findings += check.findings

    def _joined(self) -> JoinedChecks | None:
        names = [file.file.name for file in self._store.index.files]
        files = self._tasks.examine([partial(prove_file, name=name) for name in names])
        return join_checks(self._store, files, self.parts)

    def _compared_here(self) -> IndexCheck | None:
        rebuild = Rebuild(self._store, replace(self._selection, queues=False), None, scan=self._tasks.scan)
        check = rebuild.begin_audit()
        rebuild.run()
        return check


def _pile_of(header: PileHeader | KeysHeader, *, splits: frozenset[int]) -> Iterator[tuple[int, None]]:
    """Yield the pile of a piece, if its part of the log counts."""
    if isinstance(header, PileHeader) and header.split in splits:
        yield header.pile, None


def _index_plan(counted: _Counted, capacity: int, *, only_ends: bool) -> IndexPlan:
    starts, entries = {}, 0
    for split, part in sorted(counted.parts.items()):
        starts[split] = entries
        entries += part.entries
    return IndexPlan(starts, capacity, entries, only_ends)


def _by_queue(piles: Iterable[BuiltPile]) -> dict[QueueKey, list[BuiltRange]]:
    """Return the ranges of each queue, in the order of their numbers."""
    found: defaultdict[QueueKey, list[BuiltRange]] = defaultdict(list)
    for pile in piles:
        for one in pile.ranges:
            found[one.key].append(one)
    return {key: sorted(ranges, key=lambda one: one.number) for key, ranges in found.items()}


def _needs_driver(item: ScanItem) -> bool:
    """Return whether only the driver can handle an item.

    If files overlap, the order of the messages is not the order of the log. A message outside a record run comes from
    a part that the driver read again.
    """
    return (isinstance(item, Damage) and item.code == FILE_OVERLAP) or dispatched_message(item) is not None


def _is_left_out(ranges: Sequence[BuiltRange]) -> bool:
    return all(one.state is RangeState.LEFT_OUT for one in ranges)


def _is_whole(ranges: Sequence[BuiltRange]) -> bool:
    """Return whether tasks have built all ranges of a queue, without gaps.

    The ranges must follow each other in the queue and in the log.
    """
    return (
        all(one.state is RangeState.BUILT for one in ranges)
        and ranges[0].can_be_first
        and all(
            before.counts.max_offset == after.counts.min_offset and before.counts.end <= after.first_physical_offset
            for before, after in pairwise(ranges)
        )
    )


def _whole_counts(ranges: Sequence[BuiltRange]) -> QueueCounts:
    """Return the counts of a queue from those of its ranges."""
    first, last = ranges[0].counts, ranges[-1].counts
    parts = [one.counts for one in ranges]
    return QueueCounts(
        *first.key,
        min_offset=first.min_offset,
        max_offset=last.max_offset,
        same=sum(part.same for part in parts),
        bytes=sum(part.bytes for part in parts),
        moved=sum(part.moved for part in parts),
        end=last.end,
        store_timestamp=last.store_timestamp,
    )


def _move_files(storage: StagingStorage, sources: Sequence[Path], target: Path) -> None:
    """Move the files of a queue's ranges into one folder. Raises OSError."""
    if len(sources) == 1:
        storage.make_folder(target.parent)
        storage.rename(sources[0], target)
        return
    storage.make_folder(target)
    for source in sources:
        for entry in storage.listing(source):
            storage.rename(entry.path, target / entry.name)
