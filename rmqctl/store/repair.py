"""Carries a repair's plan out: what is to be made anew is built beside, then all changes go through one journal.

A crash leaves the store as it was, as it is to be, or so that `rmqctl undo` brings it back: see `rmqctl.store.journal`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.format.plural import counted
from rmqctl.logfile.writable_storage import WritableStorage
from rmqctl.store import rebuild_plan, store_path
from rmqctl.store.changes import Install
from rmqctl.store.checkpoint_plan import plan_checkpoint
from rmqctl.store.journal import Journal
from rmqctl.store.rebuild import Rebuild, Selection
from rmqctl.store.repair_plan import AddLogFile, RebuildIndex, RebuildQueue, SetCheckpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqctl.format.checkpoint import Checkpoint
    from rmqctl.store.changes import Change
    from rmqctl.store.read_only_store import ReadOnlyStore
    from rmqctl.store.repair_plan import RepairPlan


def repair(store: ReadOnlyStore, plan: RepairPlan, verb: str, summary: str, threads: int, commit: Callable[[], None]) -> None:
    """Carry `plan` out, which was made from `store` as it is now; `commit` as for Journal.execute.

    Raises StoreInUse, ChangedSince, NeedsRecovery, NoRoom, Unreadable, ChangeFailed, OSError.
    """
    root = store.path.root
    with Journal.begin(root, verb, summary, WritableStorage(root)) as journal:
        store.check_as_it_was(plan.stamps)
        changes = [*_Changes(store, plan, journal.staging, threads).in_order()]
        store.check_as_it_was(plan.stamps)  # once more: a starting broker does not mind the lock
        journal.execute(changes, commit)


def without_vain_rebuilds(store: ReadOnlyStore, plan: RepairPlan, threads: int) -> RepairPlan:
    """The plan without those queues that would be made anew just as they are: what is wrong with them, the log itself has wrong.

    Reads the log once more where there are queues to be made anew. Raises OSError.
    """
    if not plan.queues_to_rebuild:
        return plan
    selection = Selection(index=False, keys=plan.queues_to_rebuild, all_topics=True)
    rebuild = Rebuild(store, selection, None, threads=threads, end=plan.max_phy_offset, marks=plan.marks)
    rebuild.run()
    vain = {(queue.topic, queue.queue_id) for queue in rebuild_plan.queue_plans(rebuild, store) if not queue.differ}
    vain |= set(rebuild.result.as_they_are)
    steps = tuple(step for step in plan.steps if not (isinstance(step.deed, RebuildQueue) and tuple(step.deed) in vain))
    if all(isinstance(step.deed, SetCheckpoint) and not step.deed.is_wrong for step in steps):
        steps = ()
    agree = "does not agree" if len(vain) == 1 else "do not agree"
    note = f"{counted(len(vain), 'queue')} {agree} with the log in what nothing can mend: `rmqctl verify` shows where"
    return replace(plan, steps=steps, notes=(*plan.notes, note) if vain else plan.notes)


class _Changes:
    """Builds in `staging` what is to be made anew, and turns a plan's steps into changes."""

    def __init__(self, store: ReadOnlyStore, plan: RepairPlan, staging: Path, threads: int) -> None:
        self._store = store
        self._plan = plan
        self._staging = staging
        self._threads = threads
        self._index_time: int | None = None

    def in_order(self) -> Iterator[Change]:
        """As the plan has them; all that is made anew comes where the first of its steps stands."""
        plan = self._plan
        rebuilt = self._rebuilt() if plan.queues_to_rebuild or plan.rebuilds_index else []
        for step in plan.steps:
            if isinstance(step.deed, RebuildQueue | RebuildIndex):
                yield from rebuilt
                rebuilt = []
            elif isinstance(step.deed, SetCheckpoint):
                yield from self._checkpoint(step.deed.values)
            elif isinstance(step.deed, AddLogFile):
                yield self._added(step.deed)
            else:
                yield step.deed

    def _rebuilt(self) -> list[Change]:
        plan = self._plan
        queues = plan.queues_to_rebuild
        selection = Selection(queues=bool(queues), index=plan.rebuilds_index, keys=queues, all_topics=True)
        rebuild = Rebuild(self._store, selection, self._staging, threads=self._threads, end=plan.max_phy_offset, marks=plan.marks)
        rebuild.run()
        rebuild.check()
        if plan.rebuilds_index:
            self._index_time = rebuild.result.index.full_until
        found = rebuild_plan.changes(rebuild, self._store, self._staging)
        sets_checkpoint = any(isinstance(step.deed, SetCheckpoint) for step in plan.steps)
        return [change for change in found if not (sets_checkpoint and change.path == store_path.CHECKPOINT)]

    def _added(self, deed: AddLogFile) -> Install:
        storage, root = WritableStorage(self._staging), self._store.path.root
        staged = self._staging / store_path.COMMITLOG / Path(deed.path).name
        descriptor = storage.create(staged, deed.size)
        try:
            for block in deed.marks:
                storage.write(descriptor, block.offset, block.data)
        finally:
            storage.close(descriptor)
        like = storage.stamp(root / deed.like)
        if like is not None:
            storage.set_mtime(staged, like.mtime_ns)
        return Install(deed.path, staged)

    def _checkpoint(self, values: Checkpoint) -> list[Change]:
        if self._index_time is not None:
            values = values._replace(index_msg_timestamp=self._index_time)
        plan = plan_checkpoint(self._store, values._asdict())
        plan.build(WritableStorage(self._staging), self._staging)
        return plan.changes(self._staging)
