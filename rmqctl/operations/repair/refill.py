"""Repair queues in RocksDB: without their database, a start fills them anew.

rmqctl does not write databases. If there is none, and `abort` exists but no checkpoint, a broker dispatches its whole
log again. So each plan for such a store ends with this step, unless the start that is due serves everything anyway.
Real brokers of 5.3.3 and 5.5.0 did it with cut logs, damaged databases, and logs that begin above 0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rmqctl.errors import BadRequest
from rmqctl.forensics.audit.databases.queue_database import audit_queue_database, database_has
from rmqctl.format.profile import start_rules
from rmqctl.logfile.system.storage import Kind
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.operations.plan import AddLogFile, RebuildIndex, RebuildQueue, RebuildTimers, RefillQueues, Step
from rmqctl.operations.rebuild.planned_store import planned_store
from rmqctl.store.config.store_path import (
    ABORT,
    CHECKPOINT,
    CONSUMEQUEUE,
    INDEX,
    QUEUE_PARTS,
    SIGN_OF_DATABASE,
    Layout,
)
from rmqctl.store.journal.changes import Delete, Install
from rmqctl.store.read.consumers.timer_check import has_timer
from rmqctl.store.recovery.rules import Mode
from rmqctl.store.recovery.simulation import plan_restart
from rmqctl.text import counted, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from rmqctl.format.profile import Profile
    from rmqctl.operations.plan import RepairPlan
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.queue_offset_ranges import QueueSpans
    from rmqctl.store.journal.changes import Change
    from rmqctl.store.read.read_only_store import ReadOnlyStore
    from rmqctl.store.recovery.simulation import RestartOutcome

_MADE_BY_START = (INDEX, CHECKPOINT, ABORT)


def refilled(
    store: ReadOnlyStore,
    plan: RepairPlan,
    profile: Profile,
    restart: RestartOutcome | None = None,
    messages: Mapping[QueueKey, int] | None = None,
) -> RepairPlan:
    """Return `plan` with the step RefillQueues in place of those that a start makes.

    A plan for queues in files stays as it is; one for queues in both keeps its steps for those in files. If the start
    that is due, `restart`, gives each queue its messages of the log (`messages` has their number), no step is left but
    that for an index which it does not fill.

    Raises BadRequest if the start after the plan would not read the whole log.
    """
    in_both = store.path.layout is Layout.COMBINED
    is_wrong = store.is_only_database_unreadable or any(audit_queue_database(store))
    if not (in_both or store.path.layout is Layout.ROCKSDB) or not (plan.steps or is_wrong):
        return plan
    made = _MADE_BY_START if in_both else (*_MADE_BY_START, *QUEUE_PARTS)
    steps = tuple(step for step in plan.steps if not is_made_by_start(step, made))
    changes_log = any(not isinstance(step.action, Delete) for step in steps)  # a broker deletes files behind its end
    if restart is not None and not changes_log and _serves_all(restart, messages or {}):
        # a start after a clean stop indexes only what its queues lack
        is_indexed = restart.mode is Mode.NORMAL and restart.queues_end > store.commit_log.min_offset
        of_index = (step for step in plan.steps if isinstance(step.action, RebuildIndex))
        return replace(plan, steps=tuple(of_index) if is_indexed else ())
    if not changes_log and store.path.is_refilled and not (in_both and steps):
        return replace(plan, steps=())
    only_queues = all(isinstance(step.action, RebuildQueue) for step in steps) and not store.is_only_database_unreadable
    if in_both and only_queues and database_has(store, plan.queues, plan.queues_to_rebuild):
        return plan
    check_reads_all(store, profile)
    _check_keeps_all(store, steps, plan, profile)
    notes = (_OF_TIMERS,) if changes_log and has_timer(store) else ()
    return replace(plan, steps=(*steps, REFILL), notes=(*plan.notes, *notes))


_OF_TIMERS = "the timer's files stay as they are: after the next start, stop the broker, and look with `rmqctl doctor`"
REFILL = Step(RefillQueues(), "rmqctl writes no database")


def check_reads_all(store: ReadOnlyStore, profile: Profile) -> None:
    """Raise BadRequest if a start with `abort` does not dispatch the whole log."""
    most, count = start_rules(profile.version, store.conf.start).recover_max_num, len(store.commit_log.queue.files)
    if most and count > most:
        what = (
            f"a start of {profile.version} fills the queues from the last {most} files of the log, and it has {count}"
        )
        hint = f"put commitLogRecoverMaxNum={count} into broker.conf, and give --broker-conf"
        raise BadRequest(what, path=str(store.path.root), hint=hint)


def _check_keeps_all(store: ReadOnlyStore, steps: tuple[Step, ...], plan: RepairPlan, profile: Profile) -> None:
    # the start after the plan scans the whole log: damage that brokers pass over now would end it there
    gone = (CHECKPOINT,) if store.path.layout is Layout.COMBINED else (CONSUMEQUEUE, CHECKPOINT)
    planned = planned_store(store, [*steps, *(Step(Delete(name), "") for name in gone)])
    try:
        after = plan_restart(planned, profile, mode=Mode.ABNORMAL)
    finally:
        planned.close()
    end = after.max_phy_offset if after.refused is None else planned.commit_log.min_offset
    if end < plan.max_phy_offset:
        what = "damage that brokers pass over now would end the log there for a start that fills the queues"
        hint = f"`rmqctl recover {quoted(store.path.root)} --keep-going` puts placeholders there first"
        raise BadRequest(after.refused or what, path=str(store.path.root), offset=end, hint=hint)


def refill_changes(store: ReadOnlyStore, staging: Path) -> Iterator[Change]:
    """Yield the changes of the step RefillQueues. Raises OSError."""
    there, folder = store.storage.of_disk, store.path.queue_database_folder
    of_database, sign = store.path.database_files, f"{folder}/{SIGN_OF_DATABASE}"
    all_files = [entry.name for entry in there.listing(store.path.part(folder))]
    names = [f"{folder}/{name}" for name in (of_database if store.path.layout is Layout.COMBINED else all_files)]
    for name in (*names, CHECKPOINT):
        if name != sign and there.entry(store.path.part(name)).kind is not Kind.MISSING:
            yield Delete(name)
    storage = WritableStorage(staging, beneath=store.path.root)
    for name, is_there in ((sign, sign in names), (ABORT, store.path.has_abort)):
        if not is_there:
            staged = name.replace("/", "-")
            storage.close(storage.make_file(staging / staged))
            yield Install(name, staging, staged)


def notes_of_holes(spans: QueueSpans, plan: RepairPlan) -> Iterator[str]:
    """Yield a note if the start after `plan` may begin queues behind a hole."""
    counts = spans.counts()
    holes = sum(end - first != count for first, end, count in map(spans.of, counts))
    if holes and REFILL in plan.steps:
        hidden = f"a part of the log of {counted(holes, 'queue')} is missing"
        yield f"{hidden}: a broker with queues in RocksDB may begin them behind it, and not serve what comes before"


def is_made_by_start(step: Step, made: Collection[str]) -> bool:
    """Return whether a step only changes files in `made`."""
    if isinstance(step.action, AddLogFile | RebuildTimers):
        return False
    if isinstance(step.action, RebuildQueue):
        return CONSUMEQUEUE in made
    path = getattr(step.action, "path", None)  # RebuildIndex and SetCheckpoint have none
    return path is None or path.split("/")[0] in made


def _serves_all(restart: RestartOutcome, messages: Mapping[QueueKey, int]) -> bool:
    if restart.problem is not None or restart.lost.records:
        return False
    served = {
        (queue.topic, queue.queue_id): queue.max_offset - queue.min_offset - queue.missing for queue in restart.queues
    }
    return all(served.get(key, 0) >= count for key, count in messages.items())
