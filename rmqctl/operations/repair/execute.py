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

    from rmqctl.operations.plan import RepairPlan
    from rmqctl.store.journal.changes import Change
    from rmqctl.store.read.read_only_store import ReadOnlyStore


def build(store: ReadOnlyStore, plan: RepairPlan, threads: int, staging: Path) -> list[Change]:
    """Build the new files of `plan` in `staging`, and return the changes.

    Raises ChangedSince if the store has changed since the plan was made. Raises Unreadable and OSError.
    """
    store.check_as_it_was(plan.fingerprint)
    changes = _outermost([*_in_order(store, plan, _rebuilt(store, plan, threads, staging), staging)])
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


def _in_order(store: ReadOnlyStore, plan: RepairPlan, rebuild: Rebuild | None, staging: Path) -> Iterator[Change]:
    # the changes of all rebuild steps are yielded at the first rebuild step
    actions = [step.action for step in plan.steps]
    rebuilt = rebuild_plan.changes(rebuild, store, staging) if rebuild is not None else []
    if any(isinstance(action, SetCheckpoint) for action in actions):
        rebuilt = [change for change in rebuilt if change.path != store_path.CHECKPOINT]
    for action in actions:
        if isinstance(action, RebuildQueue | RebuildIndex):
            yield from rebuilt
            rebuilt = []
        elif isinstance(action, SetCheckpoint):
            values = action.values
            if rebuild is not None and plan.rebuilds_index:
                values = values._replace(index_msg_timestamp=rebuild.result.index.full_until)
            storage = WritableStorage(staging, beneath=store.path.root)
            yield from plan_checkpoint(store, values._asdict()).build(storage, staging)
        elif isinstance(action, AddLogFile):
            yield added_log_file(store, action, staging)
        elif isinstance(action, RebuildTimers):
            yield from timer_changes(store, action, staging, time.time_ns() // 1_000_000)
        elif isinstance(action, RefillQueues):
            yield from refill_changes(store, staging)
        else:
            yield action


def _rebuilt(store: ReadOnlyStore, plan: RepairPlan, threads: int, staging: Path) -> Rebuild | None:
    queues = plan.queues_to_rebuild
    if not queues and not plan.rebuilds_index:
        return None
    tags = plan.rebuilds_index and indexes_tags(store, plan.profile)
    selection = Selection(queues=bool(queues), index=plan.rebuilds_index, keys=queues, all_topics=True, tags=tags)
    rebuild = Rebuild(
        store, selection, staging, threads=threads, end=plan.max_phy_offset, placeholders=plan.placeholders,
        disordered=plan.placed,
    )  # fmt: skip
    rebuild.run()
    rebuild.check()
    return rebuild
