"""Carries a repair's plan out: what is to be rebuilt is built beside, then all changes go through one journal.

A crash leaves the store as it was, as it is to be, or so that `rmqctl undo` brings it back: see
`rmqctl.store.journal.transaction`.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.logfile.writable_storage import WritableStorage
from rmqctl.operations.plan import AddLogFile, Contested, RebuildIndex, RebuildQueue, SetCheckpoint
from rmqctl.operations.rebuild import rebuild_plan
from rmqctl.operations.rebuild.rebuild import Rebuild, Selection
from rmqctl.operations.repair.checkpoint_plan import plan_checkpoint
from rmqctl.operations.repair.planned_store import planned_store
from rmqctl.operations.repair.settled_rebuild import is_contested, judge_of_last_round, settle
from rmqctl.store.config import store_path
from rmqctl.store.journal.changes import Delete, Install
from rmqctl.store.journal.transaction import Journal
from rmqctl.store.read.tag_index import indexes_tags
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqctl.format.checkpoint import Checkpoint
    from rmqctl.operations.plan import RepairPlan
    from rmqctl.operations.rebuild.rebuild_plan import QueuePlan
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.journal.changes import Change
    from rmqctl.store.read.read_only_store import ReadOnlyStore
    from rmqctl.store.recovery.simulated_queues import BuiltSpans

    AuditQueues = Callable[[ReadOnlyStore, frozenset[QueueKey]], Counter[str]]  # the findings of queues, by their codes

# what verify says of units that a rebuild keeps, or puts where a message is lost, and of records whose number is wrong
UNIT_LOST_MESSAGE, BAD_QUEUE_OFFSET = "unit-lost-message", "bad-queue-offset"


def repair(
    store: ReadOnlyStore, plan: RepairPlan, verb: str, summary: str, threads: int, commit: Callable[[], None]
) -> None:
    """Carry `plan` out, which was made from `store` as it is now.

    `commit` as for Journal.execute. Raises StoreInUse, ChangedSince, NeedsRecovery, NoRoom, Unreadable, ChangeFailed,
    OSError.
    """
    root = store.path.root
    with Journal.begin(root, verb, summary, WritableStorage.like(store.storage)) as journal:
        store.check_as_it_was(plan.fingerprint)
        changes = _outermost([*_Changes(store, plan, journal.staging, threads).in_order()])
        store.check_as_it_was(plan.fingerprint)  # once more: a starting broker does not mind the lock
        journal.execute(changes, commit)


def without_vain_rebuilds(
    store: ReadOnlyStore, threads: int, audit: AuditQueues, plan: RepairPlan
) -> tuple[RepairPlan, BuiltSpans]:
    """Return the plan without rebuilds that would change nothing.

    Also returns what the queues that are still to be rebuilt will have. A finding in a queue that a rebuild would not
    change comes from the log itself. The plan counts what the rebuilt queues lose, and the findings that stay in them.
    Reads the log once more where there are queues to be rebuilt, and several times where messages contest a place in
    them; `audit` finds what is wrong with those afterwards. Raises OSError.
    """
    if not plan.queues_to_rebuild:
        return plan, {}
    selection = Selection(index=False, keys=plan.queues_to_rebuild, all_topics=True)
    rebuild = Rebuild(store, selection, None, threads=threads, end=plan.max_phy_offset, placeholders=plan.placeholders)
    rebuild.run()
    made = _by_key(rebuild_plan.queue_plans(rebuild, store))
    plain = [
        queue.counts for queue in made.values() if queue.counts is not None and queue.topic not in rebuild.batch_topics
    ]
    contested = frozenset(counts.key for counts in plain if is_contested(counts))
    units = None
    if contested:
        settled, units, rounds = settle(store, plan, contested, threads)
        made |= _by_key(rebuild_plan.queue_plans(settled, store))
        plan = replace(plan, contested=Contested(contested, rounds))
    better = {
        key for key, queue in made.items() if queue.differ or (key in store.queues and not rebuild.files_are_right(key))
    }
    vain = plan.queues_to_rebuild - better  # such as those of topics whose names can be no folder
    leaves = Counter(plan.leaves)
    steps = []
    for step in plan.steps:
        if isinstance(step.action, RebuildQueue) and tuple(step.action) in vain:
            leaves.update(step.findings)
        else:
            steps.append(step)
    if all(isinstance(step.action, SetCheckpoint) and not step.action.is_wrong for step in steps):
        steps = []
    notes = [*plan.notes, *rebuild_plan.notes_of_strays(rebuild.result.strays)]
    if vain:
        agree = "does not agree" if len(vain) == 1 else "do not agree"
        notes.append(
            f"{counted(len(vain), 'queue')} {agree} with the log, and no repair can change that: `rmqctl verify` shows where"
        )
    counts = [queue.counts for key, queue in sorted(made.items()) if key in better and queue.counts is not None]
    for of_queue in counts:
        if of_queue.key not in contested:
            leaves[UNIT_LOST_MESSAGE] += of_queue.kept
            leaves[BAD_QUEUE_OFFSET] += of_queue.misnumbered
    outcomes = tuple(
        queue._replace(min_offset=built.min_offset, max_offset=built.max_offset)
        if (built := made.get((queue.topic, queue.queue_id))) is not None
        else queue
        for queue in plan.queues
        if (queue.topic, queue.queue_id) in store.queues or (queue.topic, queue.queue_id) not in vain
    )
    if units is not None and contested & better:
        with closing(planned_store(store, steps, units)) as planned:
            leaves += audit(planned, contested & better)
    plan = replace(plan, steps=tuple(steps), queues=outcomes, notes=tuple(notes), leaves=+leaves)
    rebuilt = [made[of_queue.key] for of_queue in counts]
    return rebuild_plan.with_loss_of_rebuilt(plan, rebuilt), rebuild_plan.built_spans(rebuilt)


def _by_key(queues: list[QueuePlan]) -> dict[QueueKey, QueuePlan]:
    return {(queue.topic, queue.queue_id): queue for queue in queues}


def _outermost(changes: list[Change]) -> list[Change]:
    """Return the changes without deletions inside a folder that is itself deleted or replaced.

    What lies there goes with the folder.
    """
    whole = {Path(change.path) for change in changes if isinstance(change, Delete | Install)}
    return [
        change
        for change in changes
        if not (isinstance(change, Delete) and not whole.isdisjoint(Path(change.path).parents))
    ]


class _Changes:
    """Builds in `staging` what is to be rebuilt, and turns a plan's steps into changes."""

    def __init__(self, store: ReadOnlyStore, plan: RepairPlan, staging: Path, threads: int) -> None:
        self._store = store
        self._plan = plan
        self._staging = staging
        self._threads = threads
        self._index_time: int | None = None

    def in_order(self) -> Iterator[Change]:
        """Yield the changes in the order of the plan.

        All rebuilt queues and the rebuilt index come at the place of the first step that rebuilds something.
        """
        plan = self._plan
        rebuilt = self._rebuilt() if plan.queues_to_rebuild or plan.rebuilds_index else []
        for step in plan.steps:
            if isinstance(step.action, RebuildQueue | RebuildIndex):
                yield from rebuilt
                rebuilt = []
            elif isinstance(step.action, SetCheckpoint):
                yield from self._checkpoint(step.action.values)
            elif isinstance(step.action, AddLogFile):
                yield self._added(step.action)
            else:
                yield step.action

    def _rebuilt(self) -> list[Change]:
        plan = self._plan
        queues = plan.queues_to_rebuild
        contested = plan.contested.keys & queues if plan.contested.rounds > 1 else frozenset()
        found = self._rebuilt_last(contested) if contested else []
        queues -= contested
        tags = plan.rebuilds_index and indexes_tags(self._store, plan.profile)
        selection = Selection(queues=bool(queues), index=plan.rebuilds_index, keys=queues, all_topics=True, tags=tags)
        rebuild = Rebuild(
            self._store,
            selection,
            self._staging,
            threads=self._threads,
            end=plan.max_phy_offset,
            placeholders=plan.placeholders,
        )
        rebuild.run()
        rebuild.check()
        if plan.rebuilds_index:
            self._index_time = rebuild.result.index.full_until
        found += rebuild_plan.changes(rebuild, self._store, self._staging)
        sets_checkpoint = any(isinstance(step.action, SetCheckpoint) for step in plan.steps)
        return [change for change in found if not (sets_checkpoint and change.path == store_path.CHECKPOINT)]

    def _rebuilt_last(self, contested: frozenset[QueueKey]) -> list[Change]:
        """Rebuild queues as the last round has them."""
        plan, selection = self._plan, Selection(index=False, keys=contested, all_topics=True)
        with closing(judge_of_last_round(self._store, plan, self._threads)) as judge:
            rebuild = Rebuild(judge, selection, self._staging, threads=self._threads, end=plan.max_phy_offset)
            rebuild.run()
            rebuild.check()
            return rebuild_plan.changes(rebuild, self._store, self._staging)

    def _added(self, action: AddLogFile) -> Install:
        root = self._store.path.root
        storage = WritableStorage(self._staging, beneath=root)
        staged = self._staging / store_path.COMMITLOG / Path(action.path).name
        descriptor = storage.create(staged, action.size)
        try:
            for block in action.placeholders:
                storage.write(descriptor, block.offset, block.data)
        finally:
            storage.close(descriptor)
        like = storage.stamp(root / action.like)
        if like is not None:
            storage.set_mtime(staged, like.mtime_ns)
        return Install(action.path, staged)

    def _checkpoint(self, values: Checkpoint) -> list[Change]:
        if self._index_time is not None:
            values = values._replace(index_msg_timestamp=self._index_time)
        plan = plan_checkpoint(self._store, values._asdict())
        plan.build(WritableStorage(self._staging, beneath=self._store.path.root), self._staging)
        return plan.changes(self._staging)
