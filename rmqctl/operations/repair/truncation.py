"""End the log at a record boundary.

A broker that ends the log (truncateDirtyFiles, truncateDirtyLogicFiles) leaves the bytes behind the end in the file,
and after a later crash they can become part of the log again (RocketMQ's issue 10666). A truncation therefore deletes
the log files after the new end, and without `keep_tail` sets the rest of the last one to zero. Queues are cut at the
first unit that points after the new end. If an index file points there, the index is rebuilt.

To plan this, the log after the new end is read, and a few units of each queue. An extension (consumequeue_ext) is not
changed: brokers cut it after the last address in use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqctl.errors import BadRequest, Unreadable, read_hint
from rmqctl.format.checkpoint import Checkpoint
from rmqctl.format.message import Blank, Damage
from rmqctl.kernels import dispatch_scan, queue_offset_range, queue_simulate, scan
from rmqctl.kernels.warm_up import warm_up
from rmqctl.operations.plan import RebuildIndex, RebuildQueue, RepairPlan, SetCheckpoint, Step
from rmqctl.store.config.store_path import CONSUMEQUEUE
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.journal.changes import Delete, Resize, Zero
from rmqctl.store.read.commit_log import UNREADABLE, is_served
from rmqctl.store.read.consume_queue import ConsumeQueue
from rmqctl.store.recovery.data_loss import LossCounter, QueueOutcome
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.logfile.mapped_file_queue import MappedFileQueue
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.file_scan import RecordRun
    from rmqctl.store.read.index.index_service import IndexService
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class Truncation:
    """Plans how to end the log at the physical offset `to`.

    `plan` raises BadRequest if no record of the log begins or ends at `to`.
    """

    def __init__(self, store: ReadOnlyStore, to: int, threads: int, *, keep_tail: bool = False) -> None:
        self._store = store
        self._to = to
        self._threads = threads
        self._keep_tail = keep_tail
        self._builder = DispatchRequestBuilder(with_keys=False)
        self._losses = LossCounter(self._builder, store.commit_log.message_at)
        self._units_behind: dict[QueueKey, int] = {}
        self._last = (0, 0)  # physical offset and store time of the last message before the end
        self._reached = store.commit_log.min_offset
        self._stamps = store.fingerprint()
        self._boundaries: list[int] = []
        self._is_boundary = False
        self._in_tail = 0  # good messages directly after the end, in the same file
        self._is_tail_over = False

    def warm_up(self) -> None:
        """Compile or load the kernels, unless the store is small."""
        warm_up(scan, dispatch_scan, queue_offset_range, queue_simulate, size=self._store.allocated)

    def plan(self) -> RepairPlan:
        """Return the plan that ends the log at the physical offset `to`.

        Raises OSError, Unreadable, and BadRequest if no record begins or ends at `to`.
        """
        self.warm_up()
        log, to = self._store.commit_log, self._to
        if not log.min_offset <= to <= log.queue.end:
            hint = f"its messages reach from {log.min_offset} to {log.end()[0]}"
            raise BadRequest("the log cannot end", path=str(self._store.path.root), offset=to, hint=hint)
        for item in self._builder.scan(log, threads=self._threads, start=max(to - 1, log.min_offset)):
            self._see(item)
        if not self._is_boundary and to not in (log.min_offset, log.queue.end):
            raise self._no_boundary()
        steps = [*log_steps(log.queue, to, keep_tail=self._keep_tail)]
        ends = []
        for key, queue in sorted(self._store.queues.items()):
            cut, more = self._queue_steps(key, queue)
            steps += more
            ends.append((key, min(queue.min_offset(log.min_offset), cut), cut))
        steps += index_steps(self._store.index, to)
        if steps:
            steps += self._checkpoint_steps()
        lost_of = self._losses.of_queues(self._units_behind)
        outcomes = tuple(QueueOutcome(*key, low, high, lost_of.get(key, 0)) for key, low, high in ends)
        end = min(to, self._reached)
        lost, notes = self._losses.total(self._units_behind), tuple(self._note_revived())
        return RepairPlan(log.min_offset, end, None, None, lost, outcomes, tuple(steps), notes, self._stamps)

    def check_nothing_good_is_lost(self) -> None:
        """Raise BadRequest if a good message is after the log's new end.

        `plan` must be called first.
        """
        if self._losses.good:
            what = (
                f"{counted(self._losses.good, 'good message')} {'stands' if self._losses.good == 1 else 'stand'} "
                "after the first damage"
            )
            hint = f"`rmqctl recover --keep-going` keeps them; --to {self._to} drops them"
            raise BadRequest(what, path=self._store.commit_log.path_of(self._to), offset=self._to, hint=hint)

    def _see(self, item: Blank | Damage | RecordRun) -> None:
        if isinstance(item, Damage):
            if item.code in UNREADABLE and item.end > self._to:
                raise Unreadable(item.detail, path=item.path, offset=item.physical_offset, hint=read_hint(item.detail))
            self._bound(item.physical_offset, item.end)
            if is_served(item) and item.physical_offset < self._to:
                self._reached = max(self._reached, item.end)
            if item.physical_offset >= self._to:
                self._losses.damage(item)
                self._is_tail_over = True
            return
        self._reached = max(self._reached, item.end)
        if isinstance(item, Blank):
            self._bound(item.physical_offset, item.end)
            self._is_tail_over |= item.physical_offset >= self._to
            return
        messages = item.result.messages
        places = messages["physical_offset"]
        at = int(np.searchsorted(places, self._to))
        if places[0] <= self._to <= item.end:
            self._bound(int(places[max(at - 1, 0)]), int(places[at]) if at < len(places) else item.end)
            self._is_boundary |= at < len(places) and int(places[at]) == self._to
        if at:
            self._last = int(places[at - 1]), int(messages[at - 1]["store_timestamp"])
        self._losses.messages(messages[at:])
        self._in_tail += 0 if self._is_tail_over else len(messages) - at

    def _bound(self, begin: int, end: int) -> None:
        if begin <= self._to <= end:
            self._boundaries = [begin, end]
            self._is_boundary |= self._to in (begin, end)

    def _note_revived(self) -> Iterator[str]:
        # a starting broker adds good records to the log that directly follow its end
        if self._keep_tail and self._in_tail:
            stay = (
                f"{counted(self._in_tail, 'good message')} after {self._to} "
                f"{'stays' if self._in_tail == 1 else 'stay'} in the file"
            )
            yield (
                f"{stay}: for rmqctl, and for a broker from its next start on, the log goes on there. Without "
                "--keep-tail they are zeroed"
            )

    def _no_boundary(self) -> BadRequest:
        near = " and ".join(str(offset) for offset in self._boundaries)
        hint = f"the nearest are {near}" if near else "`rmqctl dump` lists the records"
        return BadRequest(
            "no record begins or ends there", path=self._store.commit_log.path_of(self._to), offset=self._to, hint=hint
        )

    def _queue_steps(self, key: QueueKey, queue: UnitQueue) -> tuple[int, list[Step]]:
        first, last = queue.first_where(lambda unit: unit.physical_offset >= self._to), queue.last()
        if first is None or last is None or last.physical_offset < self._to:  # `recover` repairs other wrong units
            return queue.max_offset, []
        self._units_behind[key] = queue.max_offset - first.queue_offset
        why = f"{counted(queue.max_offset - first.queue_offset, 'unit')} of messages after the log's end, {self._to}"
        if isinstance(queue, ConsumeQueue):
            return first.queue_offset, [*cut_steps(queue, first.queue_offset, why)]
        return first.queue_offset, [Step(RebuildQueue(*key), why)]

    def _checkpoint_steps(self) -> list[Step]:
        # none of its times may be later than the store time of the last remaining message
        found = self._store.checkpoint()
        if found is None:
            return []
        last_at, stored = self._last
        physic, logics, index = (min(time, stored) for time in found[:3])
        confirmed, reached = (min(offset, last_at) for offset in found[-2:])
        values = Checkpoint(physic, logics, index, found.master_flushed_offset, confirmed, reached)
        return [Step(SetCheckpoint(values), "it would vouch for messages that are gone")] if values != found else []


def log_steps(files: MappedFileQueue, end: int, *, keep_tail: bool = False) -> Iterator[Step]:
    """Yield the steps that end the log at the physical offset `end`.

    The log files after `end` are deleted, and the others get their full length. Without `keep_tail`, all bytes after
    `end` in the last log file become zero.
    """
    for file in files.files:
        if file.file_from_offset > end or (file.size == 0 and file is files.files[-1]):
            yield Step(Delete(file.name), f"it lies after the log's end, {end}")
            continue
        if file.size_on_disk != files.file_size:
            yield Step(Resize(file.name, files.file_size), f"it has {file.size_on_disk} bytes: no broker loads it")
        if file.end > end and not keep_tail:
            position = end - file.file_from_offset
            data_end = min(file.data_end(position), files.file_size)
            if data_end > position:
                what = f"{data_end - position} bytes after the log's end, {end}"
                yield Step(Zero(file.name, position, data_end), what)


def cut_steps(queue: ConsumeQueue, queue_offset: int, why: str) -> Iterator[Step]:
    """Yield the steps that end a queue at `queue_offset`.

    Without a remaining unit, the whole queue is deleted.
    """
    position = queue_offset * queue.unit_size
    first = queue.queue.files[0].file_from_offset if queue.queue.files else 0
    if position <= first:
        yield Step(Delete(f"{CONSUMEQUEUE}/{queue.topic}/{queue.queue_id}"), why)
        return
    for file in queue.queue.files:
        if file.file_from_offset >= position:
            yield Step(Delete(file.name), why)
        elif file.end > position:
            start = position - file.file_from_offset
            end = -(-file.data_end(start) // queue.unit_size) * queue.unit_size
            yield Step(Zero(file.name, start, min(max(end, start + queue.unit_size), file.size)), why)


def index_steps(index: IndexService, end: int) -> Iterator[Step]:
    """Rebuild the index if it points after the log's end."""
    headers = [file.header() for file in index.files]
    if any(header is not None and header.index_count > 1 and header.end_phy_offset >= end for header in headers):
        yield Step(RebuildIndex(), f"it leads after the log's end, {end}")
