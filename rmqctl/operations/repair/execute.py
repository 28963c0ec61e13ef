"""Execute a repair plan.

New queues and a new index are first built in a separate folder; then one journal makes all changes of the repair. If a
crash leaves the changes incomplete, `rmqctl undo` restores the store (see `rmqctl.store.journal.transaction`).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.logfile.file_tree import create_with
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.operations.plan import AddLogFile, RebuildIndex, RebuildQueue, RebuildTimers, RefillQueues, SetCheckpoint
from rmqctl.operations.rebuild import rebuild_plan
from rmqctl.operations.rebuild.rebuild import Rebuild
from rmqctl.operations.rebuild.selection import Selection
from rmqctl.operations.rebuild.timer_files import timer_changes
from rmqctl.operations.repair.checkpoint_plan import plan_checkpoint
from rmqctl.operations.repair.refill import refill_changes
from rmqctl.store.config import store_path
from rmqctl.store.journal.changes import Delete, Install
from rmqctl.store.read.index.tag_index import indexes_tags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.checkpoint import Checkpoint
    from rmqctl.operations.plan import RepairPlan
    from rmqctl.store.journal.changes import Change
    from rmqctl.store.read.read_only_store import ReadOnlyStore


def build(store: ReadOnlyStore, plan: RepairPlan, threads: int, staging: Path) -> list[Change]:
    """Build the new files of `plan` in `staging`, and return the changes.

    Raises ChangedSince if the store has changed since the plan was made. Raises Unreadable and OSError.
    """
    store.check_as_it_was(plan.fingerprint)
    changes = _outermost([*_Changes(store, plan, staging, threads).in_order()])
    store.check_as_it_was(plan.fingerprint)  # again: a broker may start in spite of the lock
    return changes


def added_log_file(store: ReadOnlyStore, action: AddLogFile, staging: Path) -> Install:
    """Make a new log file in `staging`; return what installs it.

    Raises OSError.
    """
    root = store.path.root
    storage = WritableStorage(staging, beneath=root)
    name = f"{store_path.COMMITLOG}/{Path(action.path).name}"
    staged = staging / name
    create_with(storage, staged, action.size, ((block.offset, block.data) for block in action.blocks))
    like = storage.stamp(root / action.like)
    if like is not None:
        storage.set_mtime(staged, like.mtime_ns)
    return Install(action.path, staging, name)


def _outermost(changes: list[Change]) -> list[Change]:
    """Leave out deletions inside deleted or replaced folders.

    The files there are moved with the folder.
    """
    whole = {Path(change.path) for change in changes if isinstance(change, Delete | Install)}
    return [one for one in changes if not isinstance(one, Delete) or whole.isdisjoint(Path(one.path).parents)]


class _Changes:
    def __init__(self, store: ReadOnlyStore, plan: RepairPlan, staging: Path, threads: int) -> None:
        self._store = store
        self._plan = plan
        self._staging = staging
        self._threads = threads
        self._index_time: int | None = None

    def in_order(self) -> Iterator[Change]:
        # the changes of all rebuild steps are yielded at the first rebuild step
        plan = self._plan
        rebuilt = self._rebuilt() if plan.queues_to_rebuild or plan.rebuilds_index else []
        for step in plan.steps:
            if isinstance(step.action, RebuildQueue | RebuildIndex):
                yield from rebuilt
                rebuilt = []
            elif isinstance(step.action, SetCheckpoint):
                yield from self._checkpoint(step.action.values)
            elif isinstance(step.action, AddLogFile):
                yield added_log_file(self._store, step.action, self._staging)
            elif isinstance(step.action, RebuildTimers):
                yield from timer_changes(self._store, step.action, self._staging, time.time_ns() // 1_000_000)
            elif isinstance(step.action, RefillQueues):
                yield from refill_changes(self._store, self._staging)
            else:
                yield step.action

    def _rebuilt(self) -> list[Change]:
        plan = self._plan
        queues = plan.queues_to_rebuild
        tags = plan.rebuilds_index and indexes_tags(self._store, plan.profile)
        selection = Selection(queues=bool(queues), index=plan.rebuilds_index, keys=queues, all_topics=True, tags=tags)
        rebuild = Rebuild(
            self._store,
            selection,
            self._staging,
            threads=self._threads,
            end=plan.max_phy_offset,
            placeholders=plan.placeholders,
            disordered=plan.placed,
        )
        rebuild.run()
        rebuild.check()
        if plan.rebuilds_index:
            self._index_time = rebuild.result.index.full_until
        found = rebuild_plan.changes(rebuild, self._store, self._staging)
        sets_checkpoint = any(isinstance(step.action, SetCheckpoint) for step in plan.steps)
        return [change for change in found if not (sets_checkpoint and change.path == store_path.CHECKPOINT)]

    def _checkpoint(self, values: Checkpoint) -> list[Change]:
        if self._index_time is not None:
            values = values._replace(index_msg_timestamp=self._index_time)
        plan = plan_checkpoint(self._store, values._asdict())
        return plan.build(WritableStorage(self._staging, beneath=self._store.path.root), self._staging)
