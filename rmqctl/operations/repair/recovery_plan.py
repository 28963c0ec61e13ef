"""The plan of `recover` for a store.

`recover` ends the log where a broker's recovery would end the log, and compares each queue with the log. A queue that
agrees with the log stays unchanged. If all wrong units of a queue point after the end of the log, the queue is cut. A
queue with other wrong units is rebuilt. After `recover`, each message of the log has its unit, and each unit has its
message. After a plain restart of a broker, messages may have no unit, or units may point to no message.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.forensics.audit import state_audit
from rmqctl.format.checkpoint import Checkpoint
from rmqctl.format.cq_unit import CQ_UNIT
from rmqctl.format.message import Blank
from rmqctl.operations.plan import AddLogFile, RebuildIndex, RebuildQueue, RepairPlan, SetCheckpoint, Step
from rmqctl.operations.rebuild.moved_records import MovedRecords
from rmqctl.operations.repair.analysis import PLACEHOLDERS_LIMIT, RecoveryAnalysis
from rmqctl.operations.repair.leaves import with_all_leaves
from rmqctl.operations.repair.missing_files import missing_records
from rmqctl.operations.repair.needed_rebuilds import with_needed_rebuilds
from rmqctl.operations.repair.rehearsal import compared, rehearse
from rmqctl.operations.repair.renamed_files import check_none_set_aside
from rmqctl.operations.repair.truncate_steps import cut_steps, index_steps, log_steps
from rmqctl.store.config import store_path
from rmqctl.store.journal.changes import Delete, Resize
from rmqctl.store.read.consume_queue import ConsumeQueue
from rmqctl.store.read.store_file_sizes import geometry_of_store
from rmqctl.store.read.version_guess import signs_of_5
from rmqctl.store.recovery.data_loss import DataLoss, QueueOutcome
from rmqctl.store.recovery.rules import Mode
from rmqctl.text import counted, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmqctl.forensics.finding import Finding
    from rmqctl.format.profile import Profile
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import Fingerprint, ReadOnlyStore
    from rmqctl.store.recovery.simulation import RestartOutcome


BEHIND_LOG, ELSEWHERE = "dangling-unit", "unit-mismatch"
CUT = frozenset({BEHIND_LOG, "unit-behind-end"})  # a cut repairs these; others need a rebuild
FOLDERS_OF_FILES = (store_path.COMMITLOG, *store_path.QUEUE_PARTS)
# findings that no change of a queue repairs: on units of damaged records that a restart does not read, and on records
# with a wrong QUEUEOFFSET; brokers serve both
LEFT = frozenset({"unit-lost-message", "bad-queue-offset"})


@dataclass(frozen=True)
class RecoveryPlan:
    """The plan of `recover`, and the result of a plain restart of the broker.

    `seconds` is the duration of the planning. `keepable` counts good messages after damage, which `--keep-going` would
    keep. `placeholders_bytes` is how many bytes of the log get placeholders. `gone` counts, for each queue, messages
    that were lost before the repair: no log file has their bytes.
    """

    repair: RepairPlan
    restart: RestartOutcome
    keepable: int
    placeholders_bytes: int
    gone: Mapping[QueueKey, int]
    seconds: float

    @property
    def missing(self) -> int:
        """Return how many messages were lost before the repair."""
        return sum(self.gone.values())

    @property
    def fewer(self) -> int:
        """Return how many messages brokers serve now, but not after the repair.

        Messages that are gone already, or that the next start loses, do not count.
        """
        restart = self.restart
        starts = restart.refused is None and restart.hangs is None
        now = {(queue.topic, queue.queue_id): queue.lost for queue in restart.queues} if starts else {}
        return sum(
            max(queue.lost - max(self.gone.get(key, 0), now.get(key, 0)), 0)
            for queue in self.repair.queues
            for key in [(queue.topic, queue.queue_id)]
        )

    @property
    def placeholders_files(self) -> int:
        """Return how many missing log files the repair creates for placeholders."""
        return sum(isinstance(step.action, AddLogFile) for step in self.repair.steps)

    def to_json(self) -> dict[str, Any]:
        """Return the values that `recover -o json` prints besides the repair plan."""
        restart = self.restart
        return {
            "mode": restart.mode.value,
            "profile": restart.profile.name,
            "brokerVersion": restart.profile.version,
            "startFile": restart.start_file_path,
            "startReason": restart.start_file.why if restart.start_file else None,
            "endReason": self.repair.end_reason,
            "records": self.repair.records,
            "keepable": self.keepable,
            "missing": {"records": self.missing},
            "leaves": [{"code": code, "count": count} for code, count in sorted(self.repair.leaves.items())],
            "placeholders": self.repair.placeholders.served,
            "placeholdersBytes": self.placeholders_bytes,
            "placeholdersFiles": self.placeholders_files,
            "restart": restart.to_json(),
            "seconds": round(self.seconds, 6),
        }


class _Tried(NamedTuple):
    """An analysis, its repair plan, and a simulated start on the present store.

    `now` is the result of the simulated start. `hangs_at` is the physical offset at which a broker would hang after the
    repair, or None.
    """

    look: RecoveryAnalysis
    repair: RepairPlan
    now: RestartOutcome
    hangs_at: int | None


class RecoveryPlanner:
    """Plans the repair of a store by the recovery rules of a broker.

    `profile` is the profile of the broker. RecoveryAnalysis explains `mode` and `threads`. `fingerprint` is the state
    of the store before its queues were listed, or None if `plan` lists them.
    """

    def __init__(
        self,
        store: ReadOnlyStore,
        profile: Profile,
        mode: Mode | None,
        threads: int,
        *,
        keep_going: bool = False,
        placeholders_limit: int = PLACEHOLDERS_LIMIT,
        fingerprint: Fingerprint | None = None,
    ) -> None:
        self._store = store
        self._fingerprint = fingerprint
        self._profile = profile
        self._mode = mode
        self._threads = threads
        self._keep_going = keep_going
        self._placeholders_limit = placeholders_limit

    def warm_up(self) -> None:
        """Compile or load the kernels, unless the store is small."""
        RecoveryAnalysis.warm_up(self._store)

    def plan(self) -> RecoveryPlan:
        """Analyse the store, and return the repair plan.

        Raises OSError, Unreadable, and BadRequest if placeholders need more bytes than `placeholders_limit`.
        """
        check_none_set_aside(self._store)
        fingerprint = self._store.fingerprint() if self._fingerprint is None else self._fingerprint
        with self._store.storage.keeping_small_files():
            self.warm_up()
            started = time.perf_counter()
            tried = self._try(fingerprint, None)
            if tried.hangs_at is not None:
                shorter = self._try(fingerprint, tried.hangs_at)
                tried = tried if shorter.hangs_at is not None else shorter  # no start is won by losing more
            # a renamed file may have the bytes that are missing
            gone = missing_records(self._store, tried.repair.queues) if not tried.look.renamed else {}
        seconds = time.perf_counter() - started
        return RecoveryPlan(tried.repair, tried.now, tried.look.keepable, tried.look.placeholders_bytes, gone, seconds)

    def _try(self, fingerprint: Fingerprint, end_at: int | None) -> _Tried:
        """Make a repair plan, and simulate a broker's start after the repair.

        If `end_at` is not None, the planned log ends at or before this physical offset.
        """
        replaced_at: frozenset[int] = frozenset()
        while True:
            with closing(self._look(end_at, replaced_at)) as look:
                look.run()
                if look.met <= replaced_at:
                    return self._plan_of(look, fingerprint)
            replaced_at |= look.met

    def _plan_of(self, look: RecoveryAnalysis, fingerprint: Fingerprint) -> _Tried:
        now, corrected = look.starts()
        planned = _Steps(self._store, look, self._profile).plan(fingerprint)
        repair, built = with_needed_rebuilds(self._store, planned, self._threads)
        repair = with_all_leaves(self._store, repair)
        is_whole = not look.passed_over and now.refused is None and now.hangs is None
        if not repair.steps and is_whole:  # no start of a broker changes it
            return _Tried(look, repair, now, None)
        rehearsal = rehearse(self._store, repair, self._profile, dict(built), look.whole_from, self._threads)
        return _Tried(look, compared(self._store, repair, now, corrected, rehearsal), now, rehearsal.normal.hangs_at)

    def _look(self, end_at: int | None, replaced_at: frozenset[int]) -> RecoveryAnalysis:
        return RecoveryAnalysis(
            self._store,
            self._profile,
            self._mode,
            self._threads,
            keep_going=self._keep_going,
            replaced_at=replaced_at,
            end_at=end_at,
            placeholders_limit=self._placeholders_limit,
        )


class _Steps:
    """The steps of a repair plan, made from an analysis."""

    def __init__(self, store: ReadOnlyStore, look: RecoveryAnalysis, profile: Profile) -> None:
        self._store = store
        self._look = look
        self._profile = profile
        self._cuts: dict[QueueKey, int] = {}
        self._moved: list[Finding] = []
        self._moved_notes: list[str] = []

    def plan(self, fingerprint: Fingerprint) -> RepairPlan:
        """Return the repair plan. `fingerprint` is the store's state before the analysis."""
        look = self._look
        end = look.end.offset
        queue_steps = [*self._queue_steps()]
        steps = [
            *self._foreign_steps(),
            *self._log_steps(end),
            *self._placeholder_steps(),
            *queue_steps,
            *self._index_steps(end),
        ]
        steps += [*self._beside_steps(bool(steps))]
        rebuilt = {
            (step.action.topic, step.action.queue_id) for step in queue_steps if isinstance(step.action, RebuildQueue)
        }
        outcomes = tuple(self._outcomes(rebuilt))
        return RepairPlan(
            self._store.commit_log.min_offset,
            end,
            look.end.reason,
            look.records,
            self._loss(),
            outcomes,
            tuple(steps),
            (*look.queues.notes, *look.notes, *self._moved_notes, *self._note_passed_over(), *self._note_version()),
            fingerprint,
            look.placeholders.blocks,
            self._leaves(rebuilt, {step.action.path for step in steps if isinstance(step.action, Delete)}),
        )

    def _leaves(self, rebuilt: set[QueueKey], deleted: set[str]) -> Mapping[str, int]:
        """Count, by code, the findings that remain after the repair.

        The count leaves out rebuilt queues. A later trial rebuild shows the findings about rebuilt queues.
        """
        look, store = self._look, self._store
        left = Counter(damage.code for damage in look.left)
        left += look.rejected
        left.update(damage.code for damage in store.foreign if damage.path not in deleted)
        left.update(finding.code for finding in self._moved)
        for finding in look.queues.findings:
            if finding.code in LEFT and (finding.topic, finding.queue_id) not in rebuilt:
                left[finding.code] += finding.count
        missing = [*state_audit.audit_log_start(store, look.oldest, look.newest, look.queues.spanning_units)]
        if missing and not state_audit.is_start_cleaned(store):
            left.update({finding.code: finding.count for finding in missing})
        return left

    def _loss(self) -> DataLoss:
        """Return the lost messages: messages after the log's end, and replaced messages."""
        behind, replaced = self._look.losses.total(), self._look.replaced
        return DataLoss(behind.records + replaced.records, behind.bytes + replaced.bytes)

    def _note_passed_over(self) -> Iterator[str]:
        if self._look.passed_over:
            root, places = self._store.path.root, counted(self._look.passed_over, "damaged place")
            where = (
                f"damage remains: {places} before the place where this recovery begins; brokers serve the records "
                "there as they are"
            )
            yield (
                f"{where}; `rmqctl verify {quoted(root)}` shows them, "
                f"`rmqctl recover {quoted(root)} --keep-going` puts placeholders there"
            )

    def _note_version(self) -> Iterator[str]:
        """Yield a note if `abort` is the only sign that 5.x wrote the store.

        Each start of a 5.x broker creates `abort.bak`, but a copy of a store may lack `abort.bak`.
        """
        if signs_of_5(self._store) == [store_path.PID_IN_ABORT]:
            yield "that 5.x wrote this store shows in `abort` alone, which goes: from then on give `--profile 5.3`"

    def _foreign_steps(self) -> Iterator[Step]:
        """Yield the steps that delete foreign files if a broker would not start.

        A foreign file does not belong to the store, but is in a folder of the log or the queues.
        """
        if self._look.restart.refused is not None:
            for damage in self._store.foreign:
                if damage.code == "foreign-file" and damage.path.split("/")[0] in FOLDERS_OF_FILES:
                    yield Step(Delete(damage.path), f"{damage.detail}: a broker may not load the store with it")

    def _placeholder_steps(self) -> Iterator[Step]:
        """Yield the steps that write placeholders.

        Placeholders are written after the steps for the log, because short log files must be extended first.
        """
        files = self._store.commit_log.queue
        there = {file.name for file in files.files}
        for path, blocks in groupby(self._look.placeholders.blocks, lambda block: block.path):
            if path in there:
                for block in blocks:
                    yield Step(block, f"{block.code} at {block.physical_offset}; the records after it stay")
                continue
            pieces = tuple(blocks)
            before = files.at_or_before(pieces[0].physical_offset)
            yield Step(
                AddLogFile(path, files.file_size, before.name if before else path, pieces),
                "it is missing; the records after it stay",
            )

    def _log_steps(self, end: int) -> Iterator[Step]:
        last = self._store.commit_log.at(end)
        is_full = isinstance(last, Blank) and last.end == self._store.commit_log.queue.end
        return log_steps(self._store.commit_log.queue, end, keep_tail=is_full)

    def _queue_steps(self) -> Iterator[Step]:
        by_queue: dict[QueueKey, list[Finding]] = {}
        left: dict[QueueKey, list[Finding]] = {}
        for finding in self._look.queues.findings:
            if finding.topic is not None and finding.queue_id is not None:
                of_kind = left if finding.code in LEFT else by_queue
                of_kind.setdefault((finding.topic, finding.queue_id), []).append(finding)
        moved = MovedRecords(self._store, by_queue)
        self._moved_notes = [str(record) for record in moved.records]
        self._moved = [finding for key in moved.queues for finding in by_queue.pop(key)]
        for key, findings in sorted(by_queue.items()):
            self._look.losses.units(key, _without_message(findings))
            cut = self._cut_steps(key, findings)
            if all(finding.code == "file-length" for finding in findings) and self._is_on_grid(key):
                yield from self._length_steps(key, findings)
            elif cut is None:
                yield Step(RebuildQueue(*key), _in_words(findings), _counted([*findings, *left.get(key, [])]))
            else:
                yield from cut
        if self._profile.expired_queue_begins_at_end:
            for key in sorted(set(self._store.queues) - set(by_queue)):
                yield from self._empty_file_steps(key)

    def _is_on_grid(self, key: QueueKey) -> bool:
        queue = self._store.queues[key]
        return all(file.file_from_offset % queue.unit_size == 0 for file in queue.queue.files)

    def _length_steps(self, key: QueueKey, findings: list[Finding]) -> Iterator[Step]:
        """Yield the steps that give files the length with which brokers load them."""
        geometry = geometry_of_store(self._store)
        is_plain = isinstance(self._store.queues[key], ConsumeQueue)
        size = geometry.consumequeue_file_size if is_plain else geometry.batchconsumequeue_file_size
        for finding in findings:
            is_queue = not finding.path.startswith(store_path.CONSUMEQUEUE_EXT)
            yield Step(Resize(finding.path, size if is_queue else geometry.consumequeue_ext_file_size), finding.detail)

    def _empty_file_steps(self, key: QueueKey) -> Iterator[Step]:
        """Yield the steps that delete a queue's last files if they have no unit.

        5.x does not load a queue whose last file has no unit (see
        `rmqctl.store.recovery.rules.empty_last_file_refusal`).
        """
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
        if (
            not isinstance(queue, ConsumeQueue)
            or len(starts) < len(findings)
            or any(finding.code not in CUT for finding in findings)
        ):
            return None
        cut = min(starts)
        behind = sum(finding.count for finding in findings if finding.code == BEHIND_LOG)
        if cut + behind < queue.end_by_scan().max_offset or self._look.kept.of(key)[1] not in (0, cut):
            return None
        self._cuts[key] = cut
        return cut_steps(queue, cut, _in_words(findings))

    def _index_steps(self, end: int) -> Iterator[Step]:
        """Yield the step that rebuilds the index, if a rebuild is needed.

        At an abnormal start, a broker deletes index files that end after the checkpoint's time. After an abnormal
        start, a broker indexes only the messages that its recovery reads.
        """
        if not self._store.conf.index_enabled:
            return
        is_abnormal = self._look.restart.mode is Mode.ABNORMAL
        if self._look.restart.dropped_index_files():
            yield Step(RebuildIndex(), "after an abnormal end the checkpoint does not vouch for the newest file")
        elif is_abnormal and self._index_end() < self._look.last[0]:
            yield Step(RebuildIndex(), "it ends before the log does")
        elif self._look.placeholders.blocks:
            yield Step(RebuildIndex(), "placeholders do not have all keys of the messages that they replace")
        elif steps := [*index_steps(self._store.index, end)]:
            yield from steps
        elif self._look.index is not None and self._look.index.findings:
            yield Step(
                RebuildIndex(), _in_words(self._look.index.findings) if self._store.index.files else "there is none"
            )

    def _index_end(self) -> int:
        """Return the physical offset of the last index entry, or -1."""
        header = self._store.index.files[-1].header() if self._store.index.files else None
        return -1 if header is None else header.end_phy_offset

    def _beside_steps(self, any_other: bool) -> Iterator[Step]:
        """Yield the step that sets the checkpoint, and the step that deletes `abort`.

        If `abort` does not exist, a broker assumes that the store was shut down cleanly. `any_other` is True if the
        plan changes more than the checkpoint and `abort`.
        """
        log_end = self._store.commit_log.queue.end
        wrong = next(state_audit.audit_checkpoint(self._store, self._look.newest, self._look.last[1], log_end), None)
        if not any_other and not self._store.path.has_abort and wrong is None:
            return
        found = self._store.checkpoint()
        last_at, stored = self._look.last
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

    def _outcomes(self, rebuilt: set[QueueKey]) -> Iterator[QueueOutcome]:
        lost_of = self._look.replaced_of + Counter(self._look.losses.of_queues())
        log_start = self._store.commit_log.min_offset
        for key in sorted([*self._store.queues, *(rebuilt - self._store.queues.keys())]):  # almost in order already
            lost = lost_of[key]
            if key in rebuilt:
                first, end, count = self._look.kept.of(key)
                queue = self._store.queues.get(key)
                end = end if queue is None or isinstance(queue, ConsumeQueue) else self._look.kept.end_of_batches(key)
                yield QueueOutcome(*key, first if count else 0, end, lost)
                continue
            queue = self._store.queues[key]
            low, high = queue.min_and_max(log_start)
            high = self._cuts.get(key, high)
            yield QueueOutcome(*key, min(low, high), high, lost)


def _without_message(findings: list[Finding]) -> int:
    """Count the units that point after the log's end and whose messages are lost.

    A message is lost if the log has no other message with the same queue offset.
    """
    edges: list[tuple[int, str, int]] = []
    for finding in findings:
        if finding.queue_offset is not None and finding.code in (BEHIND_LOG, ELSEWHERE):
            edges += [(finding.queue_offset, finding.code, 1), (finding.queue_offset + finding.count, finding.code, -1)]
    found = before = 0
    inside: Counter[str] = Counter()
    for at, code, step in sorted(edges):
        if inside[BEHIND_LOG] and not inside[ELSEWHERE]:
            found += at - before
        inside[code] += step
        before = at
    return found


def _counted(findings: list[Finding]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for finding in findings:
        counts[finding.code] += finding.count
    return counts


def _in_words(findings: list[Finding]) -> str:
    counts = _counted(findings)
    return ", ".join(f"{count} {code}" for code, count in sorted(counts.items()))
