"""`recover` plans a repair in six steps, before it writes anything.

1. Where the log ends. One pass over the log simulates the start of the broker's version, and compares every record with
   its queue and the index. The log ends where that start ends it. What lies behind the end is removed, good messages,
   too; `undo` brings them back. With `--keep-going`, damage does not end the log but gets placeholders, if they fit and
   if good messages follow that are not older than those before.
2. Damage that stays. A start that begins to read behind a damaged place leaves the place as it is, and so does
   `recover`. If a later start would end the log there, the place gets placeholders, and the pass is made again.
3. Steps. The log is cut, and files get the length that brokers load. A queue that agrees with the log stays as it is.
   If only units at its end are wrong, the queue is cut; else it is rebuilt. The index is rebuilt if it disagrees with
   the log, or if a start would drop a part of it. `abort` is removed, and the checkpoint is set.
4. Trial rebuild. The queues are rebuilt without being written. A rebuild that would change nothing is left out: the log
   itself is the cause. The others show where each message goes, and which message gets no place.
5. Next start. The start after the repair is simulated on the store as the steps leave it, and so is a start after one
   more crash. What they drop counts as lost. The timer's files (5.x) are written anew if the start would never deliver
   a timer message, or deliver one again. If the start would wait forever for an offset that no file has, `recover`
   ends the log before this offset, if that helps.
6. What remains. The findings that no step repairs are counted: `verify` reports them after the repair.

Lost are the messages behind the log's end, those in bytes that a log file has too many of, those that placeholders
replace, and the messages of units that lead behind the end. Added to these are messages without a place (step 4), whose
bytes stay in the log, and messages that the next start drops (step 5).

Where the plan does not say otherwise, each message of the log then has its unit, and each unit has its message. After a
plain restart of a broker, messages may have no unit, and units may lead to no message.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.errors import Unreadable
from rmqctl.operations.plan import AddLogFile, RepairPlan
from rmqctl.operations.rebuild.rebuild_plan import notes_of_other_keys
from rmqctl.operations.rebuild.timer_files import with_timers
from rmqctl.operations.repair.analysis import RecoveryAnalysis, RecoveryPolicy
from rmqctl.operations.repair.leaves import findings_after
from rmqctl.operations.repair.missing_files import missing_records
from rmqctl.operations.repair.needed_rebuilds import needed_rebuilds
from rmqctl.operations.repair.notes import notes_of_findings, notes_of_passed_over, notes_of_version
from rmqctl.operations.repair.recovery_steps import RecoverySteps
from rmqctl.operations.repair.refill import notes_of_holes, refilled
from rmqctl.operations.repair.rehearsal import compared, rehearse
from rmqctl.store.config.store_path import Layout
from rmqctl.store.recovery.data_loss import DataLoss
from rmqctl.text import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import Fingerprint, ReadOnlyStore
    from rmqctl.store.recovery.simulation import RestartOutcome


@dataclass(frozen=True)
class RecoveryPlan:
    """The plan of `recover`, and the result of a plain restart of the broker."""

    repair: RepairPlan
    restart: RestartOutcome  # on the store as it is
    keepable: int  # good messages after damage, which `--keep-going` would keep
    placeholders_bytes: int  # of the log that get placeholders
    gone: Mapping[QueueKey, int]  # messages whose bytes no log file has: they were lost before the repair
    seconds: float  # of the planning

    @property
    def missing(self) -> int:
        """The number of messages that were lost before the repair."""
        return sum(self.gone.values())

    @property
    def fewer(self) -> int:
        """The number of messages that brokers serve now, but not after the repair.

        Messages that are gone already, or that the next start loses, do not count.
        """
        served = self.restart.queues if self.restart.problem is None else ()
        now = {(queue.topic, queue.queue_id): queue.lost for queue in served}
        lost = {(queue.topic, queue.queue_id): queue.lost for queue in self.repair.queues}
        return sum(max(count - max(self.gone.get(key, 0), now.get(key, 0)), 0) for key, count in lost.items())

    @property
    def placeholders_files(self) -> int:
        """The number of missing log files that the repair creates for placeholders."""
        return sum(isinstance(step.action, AddLogFile) for step in self.repair.steps)

    def to_json(self) -> dict[str, Any]:
        """Return what `recover -o json` prints besides the repair plan."""
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


class _Try(NamedTuple):
    """An analysis, its repair plan, and a start of the broker on the store as it is."""

    analysis: RecoveryAnalysis
    repair: RepairPlan
    now: RestartOutcome
    hangs_at: int | None  # the physical offset at which a broker would hang after the repair


def plan_recovery(store: ReadOnlyStore, policy: RecoveryPolicy, fingerprint: Fingerprint | None = None) -> RecoveryPlan:
    """Analyse the store, and return the repair plan.

    `fingerprint` is the state of the store before its queues were listed (None: they have not been). Raises OSError,
    Unreadable, and BadRequest if placeholders need more bytes than the policy allows.
    """
    check_none_set_aside(store)
    fingerprint = store.fingerprint() if fingerprint is None else fingerprint
    with store.storage.keeping_small_files():
        RecoveryAnalysis.warm_up(store)
        started = time.perf_counter()
        found = _try(store, policy, fingerprint)
        if found.hangs_at is not None:
            shorter = _try(store, replace(policy, end_at=found.hangs_at), fingerprint)
            found = found if shorter.hangs_at is not None else shorter  # no start is won by losing more
        # a renamed file may have the bytes that are missing
        gone = missing_records(store, found.repair.queues) if not found.analysis.renamed else {}
    analysis, seconds = found.analysis, time.perf_counter() - started
    return RecoveryPlan(found.repair, found.now, analysis.keepable, analysis.replaced.bytes, gone, seconds)


def _try(store: ReadOnlyStore, policy: RecoveryPolicy, fingerprint: Fingerprint) -> _Try:
    while True:
        with closing(RecoveryAnalysis(store, policy)) as analysis:
            analysis.run()
            if analysis.replaced.needs <= policy.replaced_at:
                return _planned(store, policy, analysis, fingerprint)
        policy = replace(policy, replaced_at=policy.replaced_at | analysis.replaced.needs)


def _planned(
    store: ReadOnlyStore, policy: RecoveryPolicy, analysis: RecoveryAnalysis, fingerprint: Fingerprint
) -> _Try:
    now, corrected = analysis.start.finish()
    kept, end = analysis.kept, analysis.end
    made = RecoverySteps(store, analysis, begins_at_end=policy.profile.expired_queue_begins_at_end)
    behind, replaced = analysis.losses.total(made.units_behind), analysis.replaced.lost
    lost = DataLoss(behind.records + replaced.records, behind.bytes + replaced.bytes)
    notes = (*kept.queues.notes, *analysis.notes, *map(str, made.misnamed.records))
    notes += (*notes_of_passed_over(store, analysis.passed_over), *notes_of_version(store))
    log = (store.commit_log.min_offset, end.offset, end.reason, kept.spans.records)
    blocks = analysis.replaced.placeholders.blocks
    plan = RepairPlan(*log, lost, tuple(made.outcomes()), tuple(made.steps), notes, fingerprint, blocks)
    if store.path.layout is Layout.ROCKSDB:
        plan = refilled(store, plan, policy.profile, now, kept.spans.counts())
        return _Try(analysis, replace(plan, notes=(*plan.notes, *notes_of_holes(kept.spans, plan))), now, None)
    asked = plan.queues_to_rebuild
    spans = {key: kept.spans.of(key) for key in asked}
    disordered = {key for key, (first, end, count) in spans.items() if end - first != count}
    trial = needed_rebuilds(store, plan, disordered, policy.threads)
    plan = trial.plan
    hangs_at, unplaced = None, Counter[str]()
    is_whole = not analysis.passed_over and now.problem is None
    if plan.steps or not is_whole:  # else no start changes the store
        after = rehearse(store, plan, policy.profile, trial, analysis.whole_from, policy.threads)
        plan, hangs_at, unplaced = compared(store, plan, now, corrected, after), after.normal.hangs_at, after.findings
    plan = with_timers(store, plan, policy.threads)
    unchanged = made.misnamed.queues | (asked - plan.queues_to_rebuild)
    leaves = findings_after(store, kept, plan, unchanged) + unplaced
    of_keys = notes_of_other_keys(kept.index_findings) if plan.rebuilds_index else ()
    notes = (*plan.notes, *of_keys, *notes_of_findings(leaves))
    plan = refilled(store, replace(plan, leaves=leaves, notes=notes), policy.profile)
    return _Try(analysis, plan, now, hangs_at)


def check_none_set_aside(store: ReadOnlyStore) -> None:
    """Raise Unreadable if a missing log file exists under another name.

    Otherwise a repair might replace that file by placeholders, delete it, or cut the log.
    """
    for path, right_path in store.commit_log.queue.set_aside():
        what = f"{right_path.name} is missing, and this file is probably it: it may have the missing messages"
        hint = f"rename it back: mv -n {quoted(path)} {quoted(right_path)}; or move it out of the store"
        raise Unreadable(what, path=str(path), hint=hint)
