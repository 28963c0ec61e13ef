"""A simulated start of a broker on the store as it will be after a repair.

It runs before the repair writes anything: the plan's changes are in memory, and the simulation reads the changed bytes
(`planned_store`). Rebuilt queues do not exist as files then, but each of their messages has a unit, so that their begin
and end are enough.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.forensics.audit.crosscheck import QueueCrosscheck
from rmqctl.format.message import Damage
from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.operations.rebuild.planned_store import planned_store
from rmqctl.store.config import store_path
from rmqctl.store.config.topics import QueueKey
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.journal.changes import Delete, Resize, Zero
from rmqctl.store.read.commit_log import ScanSummary
from rmqctl.store.read.file_scan import RecordRun
from rmqctl.store.read.known_topics import KnownTopics
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.recovery.rules import Mode, mode_of
from rmqctl.store.recovery.simulation import RestartSimulation
from rmqctl.text import counted

if TYPE_CHECKING:
    from rmqctl.format.profile import Profile
    from rmqctl.operations.plan import RepairPlan
    from rmqctl.operations.repair.needed_rebuilds import NeededRebuilds
    from rmqctl.store.recovery.queues.simulated_queues import BuiltSpans
    from rmqctl.store.recovery.simulation import RestartedQueue, RestartOutcome


class Rehearsal(NamedTuple):
    """A store after a repair, before anything is written."""

    normal: RestartOutcome  # the broker's next start
    abnormal: RestartOutcome  # a start after a crash during the next start, before any write
    findings: Counter[str]  # about placed queues, by code


def rehearse(
    store: ReadOnlyStore, plan: RepairPlan, profile: Profile, trial: NeededRebuilds, whole_from: int, threads: int
) -> Rehearsal:
    """Simulate two broker starts after `plan`, and verify its placed queues.

    Between the physical offset `whole_from` and the planned end, the log has only good records: a start that scans the
    log only from there on reads nothing. The log is read at most once. Raises OSError.
    """
    placed = plan.queues_to_rebuild.intersection(trial.units.keys)
    spans = {key: span for key, span in trial.spans.items() if key not in placed}
    builder = DispatchRequestBuilder(with_keys=False, with_tags=True)
    with closing(planned_store(store, plan.steps, trial.units if placed else None)) as planned:
        starts = [RestartSimulation(planned, profile, builder, mode, spans) for mode in (Mode.NORMAL, Mode.ABNORMAL)]
        loading = [start for start in starts if start.refused is None]
        reading = [start for start in loading if start.scanned_from < whole_from]
        audit = QueueCrosscheck(planned, builder) if placed else None
        for start in loading:
            if start not in reading:
                start.pass_over(plan.max_phy_offset)
        log, summary = planned.commit_log, ScanSummary()
        if audit is not None or reading:
            begin = log.min_offset if audit is not None else min(start.scanned_from for start in reading)
            for item in builder.scan(log, summary=summary, threads=threads, start=begin):
                for start in reading:
                    start.hear(item)
                if audit is not None and isinstance(item, RecordRun):
                    audit.on_messages(item.result.messages)
                elif audit is not None and isinstance(item, Damage):
                    audit.damage(item)
        findings = Counter[str]()
        if audit is not None:
            audit.finish(summary.end)
            for finding in audit.findings:
                if (finding.topic, finding.queue_id) in placed:
                    findings[finding.code] += finding.count
        normal, abnormal = (start.finish() for start in starts)
        return Rehearsal(normal, abnormal, findings)


def with_next_start(
    store: ReadOnlyStore, plan: RepairPlan, profile: Profile, built: BuiltSpans, threads: int
) -> RepairPlan:
    """Return `plan` with the losses at a broker's next start.

    This is for plans that do not change the file `abort`. A start on the present store is compared with one after the
    plan; if the store has no `abort`, so are abnormal starts. `built` are the queues that the plan rebuilds. Raises
    OSError.
    """
    next_mode = mode_of(has_abort=store.path.has_abort)
    modes = list(dict.fromkeys((next_mode, Mode.ABNORMAL)))
    builder = DispatchRequestBuilder(with_keys=False)
    with closing(planned_store(store, plan.steps)) as planned:
        now = [RestartSimulation(store, profile, builder, mode) for mode in modes]
        then = [RestartSimulation(planned, profile, builder, mode, built) for mode in modes]
        starts = [restart.scanned_from for restart in (*now, *then) if restart.refused is None]
        for item in builder.scan(store.commit_log, threads=threads, start=min(starts)) if starts else ():
            for restart in now:
                restart.hear(item)
            for restart in then:
                restart.hear(item, plan.max_phy_offset)
        outcomes = [(before.finish(), after.finish()) for before, after in zip(now, then, strict=True)]
    for number, (before, after) in enumerate(outcomes):
        if before.problem is None:  # a message that brokers do not serve at present does not count as lost
            plan = _with_fewer(plan, before, after, after_a_crash=number > 0)
    return plan


def _with_fewer(plan: RepairPlan, now: RestartOutcome, then: RestartOutcome, *, after_a_crash: bool) -> RepairPlan:
    problem = then.problem
    fewer = _fewer_than_planned(plan, now, then) if problem is None else Counter[QueueKey]()
    if problem is None and not fewer:
        return plan
    if problem is not None and not after_a_crash:
        note = f"a broker starts on the store as it is, but not after this: {problem}"
        return replace(plan, start_problem=problem, notes=(*plan.notes, note))
    if not after_a_crash:
        return _with_lost(plan, fewer, then)
    what = f"does not start: {problem}" if problem is not None else f"serves {_in_words(fewer)} fewer than without this"
    note = (
        f"if the broker dies before its checkpoint moves on, its next start ends the log at {then.max_phy_offset}, "
        f"and {what}"
    )
    return replace(plan, notes=(*plan.notes, note))


def _fewer_than_planned(plan: RepairPlan, now: RestartOutcome, then: RestartOutcome) -> Counter[QueueKey]:
    # messages that the plan counts as lost are left out
    lost = {(queue.topic, queue.queue_id): queue.lost for queue in plan.queues}
    found = {(queue.topic, queue.queue_id): queue for queue in then.queues}
    fewer: Counter[QueueKey] = Counter()
    for queue in now.queues:
        key = queue.topic, queue.queue_id
        after = found.get(key)
        count = _served(queue) - lost.get(key, 0) - (_served(after) if after is not None else 0)
        if key in plan.queues_to_rebuild and after is not None:
            count = min(count, after.lost)  # units without a message make a queue look longer
        fewer[key] = max(count, 0)
    return +fewer


def _served(queue: RestartedQueue) -> int:
    return queue.max_offset - queue.min_offset


def compared(
    store: ReadOnlyStore, plan: RepairPlan, now: RestartOutcome, corrected: RestartOutcome, rehearsal: Rehearsal
) -> RepairPlan:
    """Return `plan` with the losses at the broker starts in `rehearsal`.

    A start after the plan is compared with one on the present store (`now`), or if no broker starts there, with one
    with corrected file lengths (`corrected`). Messages that the next start drops count as lost; those that only the
    abnormal start drops give the plan a note. Queues of deleted topics, and those with a negative queueId, do not
    count, because no client reads them; nor do queues that a start would create for a stray, whose unit stays in its
    own queue.
    """
    if (problem := rehearsal.normal.problem) is not None:
        note = f"a broker does not start on the store afterwards either: {problem}"
        return replace(plan, start_problem=problem, notes=(*plan.notes, note))
    serves_now, known = now.problem is None, KnownTopics(store)
    before = now if serves_now else rehearsal.normal
    wanted = corrected if corrected.problem is None else before
    fewer = _fewer(plan, _counted(plan, wanted, known), rehearsal.normal)
    later = _fewer(plan, _counted(plan, before, known), rehearsal.abnormal)
    if fewer:
        plan = _with_lost(plan, fewer, rehearsal.normal, "now" if serves_now else "the log has")
    elif (problem := rehearsal.abnormal.problem) is not None:
        note = f"if the broker dies before its checkpoint moves on, it does not start again: {problem}"
        plan = replace(plan, notes=(*plan.notes, note))
    elif later:
        at = rehearsal.abnormal.max_phy_offset
        compared_with = "a start on the store as it is" if serves_now else "the next one"
        note = (
            f"if the broker dies before its checkpoint moves on, its next start ends the log at {at}, and serves "
            f"{_in_words(later)} fewer than {compared_with if plan.steps else 'now'}"
        )
        if at < plan.max_phy_offset:
            note += ": `rmqctl recover --keep-going` puts placeholders at the damage that remains"
        plan = replace(plan, notes=(*plan.notes, note))
    return plan


def _counted(plan: RepairPlan, start: RestartOutcome, known: KnownTopics) -> list[RestartedQueue]:
    return [
        queue
        for queue in start.queues
        if queue.queue_id >= 0 and queue.topic in known and (queue.topic, queue.queue_id) not in plan.strays
    ]


def _with_lost(plan: RepairPlan, fewer: Counter[QueueKey], then: RestartOutcome, than: str = "now") -> RepairPlan:
    note = (
        f"the next start of a broker ends the log at {then.max_phy_offset}, and serves {_in_words(fewer)} fewer "
        f"than {than}"
    )
    # light queues share their messages
    own = sum(count for (topic, _), count in fewer.items() if not topic.startswith(LMQ_PREFIX))
    lost = plan.lost._replace(records=plan.lost.records + own)
    queues = tuple(queue._replace(lost=queue.lost + fewer[queue.topic, queue.queue_id]) for queue in plan.queues)
    return replace(plan, lost=lost, queues=queues, notes=(*plan.notes, note))


def _fewer(plan: RepairPlan, served: list[RestartedQueue], then: RestartOutcome) -> Counter[QueueKey]:
    # queues that the plan changes count their losses at the start; others compare the numbers of served messages
    changed = plan.queues_to_rebuild | _cut_queues(plan)
    found = {(queue.topic, queue.queue_id): queue for queue in then.queues}
    fewer: Counter[QueueKey] = Counter()
    for queue in served:
        key = queue.topic, queue.queue_id
        after = found.get(key)
        lost_then, served_then = (after.lost, _served(after)) if after is not None else (0, 0)
        count = lost_then if key in changed else _served(queue) - served_then
        fewer[key] = max(count, 0)
    return +fewer


def _cut_queues(plan: RepairPlan) -> frozenset[QueueKey]:
    actions = (step.action for step in plan.steps)
    paths = [Path(action.path).parts for action in actions if isinstance(action, Delete | Resize | Zero)]
    return frozenset(
        (parts[1], int(parts[2]))
        for parts in paths
        if parts[0] in store_path.QUEUE_PARTS and len(parts) > 2 and parts[2].isdecimal()
    )


def _in_words(fewer: Counter[QueueKey]) -> str:
    return f"{counted(sum(fewer.values()), 'message')} of {counted(len(fewer), 'queue')}"
