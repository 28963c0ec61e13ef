"""The steps that make a store agree with its analysis.

A queue that agrees with the log stays unchanged. If all its wrong units point after the end of the log, it is cut; with
others, it is rebuilt.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from rmqctl.forensics.audit import state_audit
from rmqctl.forensics.doctor.queue_clues import misnamed_records
from rmqctl.format.checkpoint import Checkpoint
from rmqctl.format.cq_unit import CQ_UNIT
from rmqctl.format.message import Blank
from rmqctl.operations.plan import AddLogFile, RebuildIndex, RebuildQueue, SetCheckpoint, Step, queues_to_rebuild
from rmqctl.operations.rebuild.strays import Stray, one_bit_off
from rmqctl.operations.repair.leaves import LEFT
from rmqctl.operations.repair.truncation import cut_steps, index_steps, log_steps
from rmqctl.store.config import store_path
from rmqctl.store.journal.changes import Delete, Resize
from rmqctl.store.read.consume_queue import ConsumeQueue
from rmqctl.store.read.store_file_sizes import geometry_of_store, queue_file_size
from rmqctl.store.recovery.data_loss import QueueOutcome
from rmqctl.store.recovery.rules import Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rmqctl.forensics.finding import Finding
    from rmqctl.operations.repair.analysis import RecoveryAnalysis
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

BEHIND_LOG, MISMATCH = "dangling-unit", "unit-mismatch"
CUT = frozenset({BEHIND_LOG, "unit-behind-end"})  # a cut repairs these; others need a rebuild


class RecoverySteps:
    """Makes the steps of a repair plan from an analysis. Raises OSError."""

    def __init__(self, store: ReadOnlyStore, analysis: RecoveryAnalysis, *, begins_at_end: bool) -> None:
        self._store = store
        self._analysis = analysis
        self._kept = analysis.kept
        self._begins_at_end = begins_at_end  # Profile.expired_queue_begins_at_end
        self._cuts: dict[QueueKey, int] = {}  # the ends of the queues that are cut
        self.units_behind: dict[QueueKey, int] = {}  # units behind the log's end without a message elsewhere
        of_queue: dict[QueueKey, list[Finding]] = {}
        for finding in analysis.kept.queues.findings:
            if finding.topic is not None and finding.queue_id is not None and finding.code not in LEFT:
                of_queue.setdefault((finding.topic, finding.queue_id), []).append(finding)
        self.misnamed = MisnamedRecords(store, of_queue)
        self._of_queue = {key: found for key, found in sorted(of_queue.items()) if key not in self.misnamed.queues}
        self.steps = [*analysis.start.foreign_steps(), *self._log_steps(), *self._placeholder_steps()]
        self.steps += [*self._queue_steps(), *self._index_steps()]
        self.steps += [*self._beside_steps(any_other=bool(self.steps))]

    def _placeholder_steps(self) -> Iterator[Step]:
        # after the steps for the log, because short log files must be extended first
        files = self._store.commit_log.queue
        there = {file.name for file in files.files}
        for path, blocks in groupby(self._analysis.replaced.placeholders.blocks, lambda block: block.path):
            if path in there:
                for block in blocks:
                    yield Step(block, f"{block.code} at {block.physical_offset}; the records after it stay")
                continue
            pieces = tuple(blocks)
            before = files.at_or_before(pieces[0].physical_offset)
            added = AddLogFile(path, files.file_size, before.name if before else path, pieces)
            yield Step(added, "it is missing; the records after it stay")

    def _log_steps(self) -> Iterator[Step]:
        end = self._analysis.end.offset
        last = self._store.commit_log.at(end)
        is_full = isinstance(last, Blank) and last.end == self._store.commit_log.queue.end
        is_zero = end >= self._analysis.summary.zeros_from
        return log_steps(self._store.commit_log.queue, end, keep_tail=is_full or is_zero)

    def _queue_steps(self) -> Iterator[Step]:
        for key, findings in self._of_queue.items():
            self.units_behind[key] = _without_message(findings)
            cut = self._cut_steps(key, findings)
            if all(finding.code == "file-length" for finding in findings) and self._is_on_grid(key):
                yield from self._length_steps(key, findings)
            elif cut is None:
                yield Step(RebuildQueue(*key), _in_words(findings))
            else:
                yield from cut
        if self._begins_at_end:
            for key in sorted(set(self._store.queues) - set(self._of_queue)):
                yield from self._empty_file_steps(key)

    def _is_on_grid(self, key: QueueKey) -> bool:
        queue = self._store.queues[key]
        return all(file.file_from_offset % queue.unit_size == 0 for file in queue.queue.files)

    def _length_steps(self, key: QueueKey, findings: list[Finding]) -> Iterator[Step]:
        """Give files the length with which brokers load them."""
        geometry = geometry_of_store(self._store)
        for finding in findings:
            is_extension = finding.path.startswith(store_path.CONSUMEQUEUE_EXT)
            of_queue = queue_file_size(geometry, self._store.queues[key])
            size = geometry.consumequeue_ext_file_size if is_extension else of_queue
            yield Step(Resize(finding.path, size), finding.detail)

    def _empty_file_steps(self, key: QueueKey) -> Iterator[Step]:
        # 5.x does not load a queue whose last file has no unit (`rules.empty_last_file_refusal`)
        queue = self._store.queues[key]
        if not isinstance(queue, ConsumeQueue) or len(queue.queue.files) < 2:
            return
        used = queue.end_by_scan().max_offset * CQ_UNIT.size
        for file in queue.queue.files[1:]:
            if file.file_from_offset >= used:
                yield Step(Delete(file.name), "a queue's last file without a unit: 5.x does not load it")

    def _cut_steps(self, key: QueueKey, findings: list[Finding]) -> Iterator[Step] | None:
        """Return the steps that cut a queue, or None if a rebuild is needed.

        A cut is enough if all wrong units are at the end of the queue.
        """
        queue = self._store.queues.get(key)
        starts = [finding.queue_offset for finding in findings if finding.queue_offset is not None]
        is_at_end = len(starts) == len(findings) and all(finding.code in CUT for finding in findings)
        if not isinstance(queue, ConsumeQueue) or not is_at_end:
            return None
        cut = min(starts)
        behind = sum(finding.count for finding in findings if finding.code == BEHIND_LOG)
        if cut + behind < queue.end_by_scan().max_offset or self._kept.spans.of(key)[1] not in (0, cut):
            return None
        self._cuts[key] = cut
        return cut_steps(queue, cut, _in_words(findings))

    def _index_steps(self) -> Iterator[Step]:
        """Rebuild the index, if needed.

        At an abnormal start, a broker deletes index files that end after the checkpoint's time, and then indexes only
        the messages that its recovery reads.
        """
        if not self._store.index.is_asked(self._store.conf):
            return
        is_abnormal = self._analysis.start.now.mode is Mode.ABNORMAL
        if self._analysis.start.now.dropped_index_files():
            yield Step(RebuildIndex(), "after an abnormal end the checkpoint does not vouch for the newest file")
        elif is_abnormal and self._index_end() < self._kept.last_at:
            yield Step(RebuildIndex(), "it ends before the log does")
        elif self._analysis.replaced.placeholders.blocks:
            yield Step(RebuildIndex(), "placeholders do not have all keys of the messages that they replace")
        elif steps := [*index_steps(self._store.index, self._analysis.end.offset)]:
            yield from steps
        elif findings := self._kept.index_findings:
            yield Step(RebuildIndex(), _in_words(findings) if self._store.index.files else "there is none")

    def _index_end(self) -> int:
        header = self._store.index.files[-1].header() if self._store.index.files else None
        return -1 if header is None else header.end_phy_offset

    def _beside_steps(self, *, any_other: bool) -> Iterator[Step]:
        """Set the checkpoint, and delete `abort`.

        Without `abort`, a broker assumes that the store was shut down cleanly. `any_other` is True if the plan changes
        more than these two.
        """
        log_end = self._store.commit_log.queue.end
        last_at, newest, stored = self._kept.last_at, self._kept.stored.newest, self._kept.stored.last
        wrong = next(state_audit.audit_checkpoint(self._store, newest, stored, log_end), None)
        if not any_other and not self._store.path.has_abort and wrong is None:
            return
        found = self._store.checkpoint()
        index_time = max(min(found.index_msg_timestamp, stored), 0) if found else 0
        # 0 makes 5.5 go by the times, which are right now too; a store that has the offset may need it (accelerated)
        reached = last_at if found and found.logics_physical_offset > 0 else 0
        flushed = found.master_flushed_offset if found else 0
        values = Checkpoint(stored, stored, index_time, flushed, last_at, reached)
        if wrong is not None or found is None or found._replace(confirm_phy_offset=last_at) != values:
            why = wrong.detail if wrong is not None else "all of the log, and its queues, are on the disk"
            yield Step(SetCheckpoint(values, is_wrong=wrong is not None), why)
        if self._store.path.has_abort:
            yield Step(Delete(store_path.ABORT), "the store is as after a clean shutdown")

    def outcomes(self) -> Iterator[QueueOutcome]:
        """Yield what becomes of each queue, before a trial rebuild tells better."""
        kept, log_start = self._kept.spans, self._store.commit_log.min_offset
        rebuilt = queues_to_rebuild(self.steps)
        lost_of = self._analysis.replaced.of_queues + Counter(self._analysis.losses.of_queues(self.units_behind))
        for key in sorted([*self._store.queues, *(rebuilt - self._store.queues.keys())]):  # almost in order already
            queue = self._store.queues.get(key)
            if key in rebuilt:
                first, end, count = kept.of(key)
                end = end if queue is None or isinstance(queue, ConsumeQueue) else kept.end_of_batches(key)
                yield QueueOutcome(*key, first if count else 0, end, lost_of[key])
            elif queue is not None:
                low, high = queue.min_and_max(log_start)
                high = self._cuts.get(key, high)
                yield QueueOutcome(*key, min(low, high), high, lost_of[key])


def _without_message(findings: list[Finding]) -> int:
    # messages are lost if the log has no other one with the same queue offset
    edges: list[tuple[int, str, int]] = []
    for finding in findings:
        if finding.queue_offset is not None and finding.code in (BEHIND_LOG, MISMATCH):
            edges += [(finding.queue_offset, finding.code, 1), (finding.queue_offset + finding.count, finding.code, -1)]
    found = before = 0
    inside: Counter[str] = Counter()
    for at, code, step in sorted(edges):
        if inside[BEHIND_LOG] and not inside[MISMATCH]:
            found += at - before
        inside[code] += step
        before = at
    return found


def _in_words(findings: Iterable[Finding]) -> str:
    counts: Counter[str] = Counter()
    for finding in findings:
        counts[finding.code] += finding.count
    return ", ".join(f"{count} {code}" for code, count in sorted(counts.items()))


class MisnamedRecords:
    """The misnamed records that explain findings on queues of `store`.

    Two queues then seem to be wrong: the record's own queue, whose unit leads to it, and the queue that it names, which
    has no unit for it. A rebuild would move the message into the named queue, in the place of another message. Brokers
    serve it from its own queue, so `recover` changes neither.

    `of_queue` has the findings of each queue. `records` are the misnamed records, and `queues` the queues for which
    they explain all findings. Raises OSError.
    """

    def __init__(self, store: ReadOnlyStore, of_queue: Mapping[QueueKey, list[Finding]]) -> None:
        self._store = store
        self.records = [*self._misnamed(misnamed_records(of_queue))]
        explained = {(record.physical_offset, key) for record in self.records for key in (record.said, record.of)}
        self.queues = {
            key
            for key, findings in of_queue.items()
            if all((finding.physical_offset, key) in explained for finding in findings)
        }

    def _misnamed(self, places: Mapping[int, list[tuple[QueueKey, Finding]]]) -> Iterator[Stray]:
        for at, found in places.items():
            slots = {finding.queue_offset for _, finding in found}
            if len(found) != 2 or len(slots) != 1 or not {key for key, _ in found} <= self._store.queues.keys():
                continue
            own = [key for key, finding in found if self._leads(key, finding.queue_offset, at)]
            named = [key for key, _ in found if key not in own]
            if len(own) == 1 and named[0] in one_bit_off(own[0]):
                yield Stray(named[0], own[0], at)

    def _leads(self, key: QueueKey, queue_offset: int | None, physical_offset: int) -> bool:
        unit = self._store.unit(*key, queue_offset) if queue_offset is not None else None
        return unit is not None and unit.physical_offset == physical_offset
