"""What `recover` is going to do with a store.

The log ends where the broker's recovery ends it; up to there every queue is compared with it. What agrees stays as it is; a queue that
only reaches too far is cut; any other that does not agree is made anew. So, other than after a broker's restart, no message of
the log is without its unit, and no unit without its message.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rmqctl.forensics import state_audit
from rmqctl.forensics.recovery_look import RecoveryLook
from rmqctl.format import properties
from rmqctl.format.checkpoint import Checkpoint
from rmqctl.format.cq_unit import CQ_UNIT
from rmqctl.format.message import Blank
from rmqctl.format.plural import counted
from rmqctl.store import store_path
from rmqctl.store.changes import Delete, Resize
from rmqctl.store.consume_queue import ConsumeQueue
from rmqctl.store.cuts import cut_steps, index_steps, log_steps
from rmqctl.store.geometry import geometry_of_store
from rmqctl.store.profile_guess import signs_of_5
from rmqctl.store.recovery import Mode
from rmqctl.store.repair_plan import AddLogFile, Loss, QueueOutcome, RebuildIndex, RebuildQueue, RepairPlan, SetCheckpoint, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.forensics.finding import Finding
    from rmqctl.format.profile import Profile
    from rmqctl.store.read_only_store import QueueKey, ReadOnlyStore, Stamps
    from rmqctl.store.restart import RestartOutcome

BEHIND_LOG, ELSEWHERE = "dangling-unit", "unit-mismatch"
CUT = frozenset({BEHIND_LOG, "unit-behind-end"})  # what a cut mends; anything else asks for the queue to be made anew
FOLDERS_OF_FILES = (store_path.COMMITLOG, *store_path.QUEUE_PARTS)
LEFT = frozenset({"unit-lost-message"})  # units of damaged records that a restart does not look at: their messages are still served


@dataclass(frozen=True)
class RecoveryPlan:
    """Ours, and what the broker's own restart would come to; `seconds` is the look at the store alone.

    `keepable`: so many good messages behind damage would stay with --keep-going.
    """

    repair: RepairPlan
    restart: RestartOutcome
    keepable: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """What `recover -o json` says beside the plan itself."""
        restart = self.restart
        return {
            "mode": restart.mode.value,
            "profile": restart.profile.name,
            "startFile": restart.start_file_path,
            "startReason": restart.start_file.why if restart.start_file else None,
            "endReason": self.repair.end_reason,
            "records": self.repair.records,
            "keepable": self.keepable,
            "marks": self.repair.marks.served,
            "restart": restart.to_json(),
            "seconds": round(self.seconds, 6),
        }


class RecoveryPlanner:
    """Makes the plan for a store as a broker of `profile` would recover it; see RecoveryLook."""

    def __init__(self, store: ReadOnlyStore, profile: Profile, mode: Mode | None, threads: int, *, keep_going: bool = False) -> None:
        self._store = store
        self._profile = profile
        self._mode = mode
        self._threads = threads
        self._keep_going = keep_going

    @staticmethod
    def prepare() -> None:
        """Have the kernels ready."""
        RecoveryLook.prepare()

    def plan(self) -> RecoveryPlan:
        """Look at the store, and say what there is to do. Raises Unreadable, OSError."""
        self.prepare()
        started = time.perf_counter()
        stamps = self._store.stamps()
        look = RecoveryLook(self._store, self._profile, self._mode, self._threads, keep_going=self._keep_going)
        look.run()
        repair = _Steps(self._store, look, self._profile).plan(stamps)
        return RecoveryPlan(repair, look.restart.finish(), look.keepable, time.perf_counter() - started)


class _Steps:
    """What follows from a look."""

    def __init__(self, store: ReadOnlyStore, look: RecoveryLook, profile: Profile) -> None:
        self._store = store
        self._look = look
        self._profile = profile
        self._cuts: dict[QueueKey, int] = {}

    def plan(self, stamps: Stamps) -> RepairPlan:
        """The plan; `stamps` are the store's as they were before the look."""
        look = self._look
        end = look.end.offset
        queue_steps = [*self._queue_steps()]
        steps = [*self._foreign_steps(), *self._log_steps(end), *self._mark_steps(), *queue_steps, *self._index_steps(end)]
        steps += [*self._beside_steps(bool(steps))]
        rebuilt = {(step.deed.topic, step.deed.queue_id) for step in queue_steps if isinstance(step.deed, RebuildQueue)}
        return RepairPlan(
            self._store.commit_log.min_offset,
            end,
            look.end.reason,
            look.records,
            self._loss(),
            tuple(self._outcomes(rebuilt)),
            tuple(steps),
            (*look.queues.notes, *look.notes, *self._note_passed_over(), *self._note_version()),
            stamps,
            look.marks.blocks,
        )

    def _loss(self) -> Loss:
        """What is behind the end, and what marks stand for."""
        behind, marked = self._look.losses.total(), self._look.marked
        return Loss(behind.records + marked.records, behind.bytes + marked.bytes)

    def _note_passed_over(self) -> Iterator[str]:
        if self._look.passed_over:
            root, places = self._store.path.root, counted(self._look.passed_over, "damaged place")
            where = f"damage remains: {places} in front of where this recovery begins, which brokers serve as they are"
            yield f"{where}; `rmqctl verify {root}` shows them, `rmqctl recover {root} --keep-going` puts marks there"

    def _note_version(self) -> Iterator[str]:
        """5.x itself leaves `abort.bak`; a copy may lack it."""
        if signs_of_5(self._store) == [store_path.PID_IN_ABORT]:
            yield "that 5.x wrote this store shows in `abort` alone, which goes: from then on give `--profile 5.3`"

    def _foreign_steps(self) -> Iterator[Step]:
        """What does not belong into the folders of log and queues, where it keeps a broker from loading the store."""
        if self._look.restart.refused is not None:
            for damage in self._store.foreign:
                if damage.code == "foreign-file" and damage.path.split("/")[0] in FOLDERS_OF_FILES:
                    yield Step(Delete(damage.path), f"{damage.detail}: a broker may not load the store with it")

    def _mark_steps(self) -> Iterator[Step]:
        """Behind the log's own steps: a file that is too short has its length by then."""
        files = self._store.commit_log.queue
        there = {file.name for file in files.files}
        for path, blocks in groupby(self._look.marks.blocks, lambda block: block.path):
            if path in there:
                for block in blocks:
                    yield Step(block, f"{block.code} at {block.physical_offset}; what is behind it stays")
                continue
            pieces = tuple(blocks)
            before = files.at_or_before(pieces[0].physical_offset)
            yield Step(AddLogFile(path, files.file_size, before.name if before else path, pieces), "it is missing; what is behind it stays")

    def _log_steps(self, end: int) -> Iterator[Step]:
        last = self._store.commit_log.at(end)
        is_full = isinstance(last, Blank) and last.end == self._store.commit_log.queue.end
        return log_steps(self._store.commit_log.queue, end, keep_tail=is_full)

    def _queue_steps(self) -> Iterator[Step]:
        by_queue: dict[QueueKey, list[Finding]] = {}
        for finding in self._look.queues.findings:
            if finding.topic is not None and finding.queue_id is not None and finding.code not in LEFT:
                by_queue.setdefault((finding.topic, finding.queue_id), []).append(finding)
        for key, findings in sorted(by_queue.items()):
            self._look.losses.units(key, _without_message(findings))
            cut = self._cut_steps(key, findings)
            if all(finding.code == "file-length" for finding in findings):
                yield from self._length_steps(key, findings)
            elif cut is None:
                yield Step(RebuildQueue(*key), _in_words(findings))
            else:
                yield from cut
        if self._profile.expired_queue_begins_at_end:
            for key in sorted(set(self._store.queues) - set(by_queue)):
                yield from self._empty_file_steps(key)

    def _length_steps(self, key: QueueKey, findings: list[Finding]) -> Iterator[Step]:
        """All units are right, but files have a length that no broker loads."""
        geometry = geometry_of_store(self._store)
        is_plain = isinstance(self._store.queues[key], ConsumeQueue)
        size = geometry.consumequeue_file_size if is_plain else geometry.batchconsumequeue_file_size
        for finding in findings:
            yield Step(Resize(finding.path, size), finding.detail)

    def _empty_file_steps(self, key: QueueKey) -> Iterator[Step]:
        """5.x does not load a queue whose last file has no unit (see recovery.empty_last_file_refusal)."""
        queue = self._store.queues[key]
        if not isinstance(queue, ConsumeQueue):
            return
        used = queue.end_by_scan() * CQ_UNIT.size
        for file in queue.queue.files[1:]:
            if file.file_from_offset >= used:
                yield Step(Delete(file.name), "a queue's last file without a unit: 5.x does not load it")

    def _cut_steps(self, key: QueueKey, findings: list[Finding]) -> Iterator[Step] | None:
        """Where the queue only has units that are to go from one on, what cuts it there; None: it is to be made anew."""
        queue = self._store.queues.get(key)
        starts = [finding.queue_offset for finding in findings if finding.queue_offset is not None]
        if not isinstance(queue, ConsumeQueue) or len(starts) < len(findings) or any(finding.code not in CUT for finding in findings):
            return None
        cut = min(starts)
        behind = sum(finding.count for finding in findings if finding.code == BEHIND_LOG)
        if cut + behind < queue.end_by_scan() or self._look.kept.of(key)[1] not in (0, cut):
            return None
        self._cuts[key] = cut
        return cut_steps(queue, cut, _in_words(findings))

    def _index_steps(self, end: int) -> Iterator[Step]:
        """The broker drops the files that the checkpoint does not vouch for, and fills them again from where it starts."""
        if not self._store.conf.index_enabled:
            return
        is_abnormal = self._look.restart.mode is Mode.ABNORMAL
        if self._look.restart.dropped_index_files():
            yield Step(RebuildIndex(), "after an abnormal end the checkpoint does not vouch for the newest file")
        elif is_abnormal and self._index_end() < self._look.last[0]:
            yield Step(RebuildIndex(), "it ends before the log does")
        elif self._look.marks.blocks:
            yield Step(RebuildIndex(), "marks do not have all keys of what stood there")
        elif not self._store.index.files and self._last_has_keys():
            yield Step(RebuildIndex(), "there is none")
        else:
            yield from index_steps(self._store.index, end)

    def _index_end(self) -> int:
        """The physical offset that the newest index file's last entry leads to; -1 without one."""
        header = self._store.index.files[-1].header() if self._store.index.files else None
        return -1 if header is None else header.end_phy_offset

    def _last_has_keys(self) -> bool:
        """Whether the log's last message is one that an index would have."""
        message = self._store.commit_log.message_at(self._look.last[0]) if self._look.records else None
        return message is not None and (properties.UNIQ_KEY in message.properties or bool(properties.keys(message.properties)))

    def _beside_steps(self, any_other: bool) -> Iterator[Step]:
        """The checkpoint, and `abort` last: without it a broker takes the store for one that was shut down in order."""
        log_end = self._store.commit_log.queue.end
        wrong = next(state_audit.audit_checkpoint(self._store, self._look.newest, self._look.last[1], log_end), None)
        if not any_other and not self._store.path.has_abort and wrong is None:
            return
        found = self._store.checkpoint()
        last_at, stored = self._look.last
        index_time = min(found.index_msg_timestamp, stored) if found else 0
        values = Checkpoint(stored, stored, index_time, found.master_flushed_offset if found else 0, last_at)
        if wrong is not None or found is None or found._replace(confirm_phy_offset=last_at) != values:
            why = wrong.detail if wrong is not None else "all of the log, and its queues, are on the disk"
            yield Step(SetCheckpoint(values, is_wrong=wrong is not None), why)
        if self._store.path.has_abort:
            yield Step(Delete(store_path.ABORT), "the store is as after a shutdown in order")

    def _outcomes(self, rebuilt: set[QueueKey]) -> Iterator[QueueOutcome]:
        lost_of = self._look.marked_of + Counter(self._look.losses.of_queues())
        log_start = self._store.commit_log.min_offset
        for key in sorted(rebuilt | set(self._store.queues)):
            lost = lost_of[key]
            first, end, count = self._look.kept.of(key)
            if key in rebuilt:
                queue = self._store.queues.get(key)
                end = end if queue is None or isinstance(queue, ConsumeQueue) else self._look.kept.end_of_batches(key)
                yield QueueOutcome(*key, first if count else 0, end, lost)
                continue
            queue = self._store.queues[key]
            high = self._cuts.get(key, queue.max_offset)
            yield QueueOutcome(*key, min(queue.min_offset(log_start), high), high, lost)


def _without_message(findings: list[Finding]) -> int:
    """How many units of a queue point behind the log's end and stand where no message of the log has its place."""
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


def _in_words(findings: list[Finding]) -> str:
    counts: Counter[str] = Counter()
    for finding in findings:
        counts[finding.code] += finding.count
    return ", ".join(f"{count} {code}" for code, count in sorted(counts.items()))
