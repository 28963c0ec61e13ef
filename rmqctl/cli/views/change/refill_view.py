"""The plan of `rmqctl rebuild STORE queues` for queues in RocksDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rmqctl.cli.output.render import print_document
from rmqctl.cli.shared.change import LogChangeOptions, Words
from rmqctl.cli.views.change import repair_view
from rmqctl.operations.plan import RepairPlan
from rmqctl.store.recovery.data_loss import DataLoss

if TYPE_CHECKING:
    from rmqctl.format.profile import Profile
    from rmqctl.operations.rebuild.selection import Selection
    from rmqctl.store.read.read_only_store import Fingerprint, ReadOnlyStore


def refill_queues(
    store: ReadOnlyStore,
    fingerprint: Fingerprint,
    selected: Selection,
    profile: Profile | None,
    how: LogChangeOptions,
) -> int:
    """Remove the database, for the next start to fill the queues.

    If it would serve everything anyway, nothing changes. Returns the exit code. Raises UsageError if only some queues
    are asked for.
    """
    from rmqctl.operations.repair.analysis import RecoveryPolicy
    from rmqctl.operations.repair.recovery_plan import plan_recovery
    from rmqctl.operations.repair.refill import REFILL, is_made_by_start
    from rmqctl.store.config.store_path import QUEUE_PARTS
    from rmqctl.store.read.version_guess import guess_profile

    if selected.topic is not None:
        raise click.UsageError("the queues are in RocksDB, and a start fills all of them: leave out --topic")
    repair = plan_recovery(store, RecoveryPolicy(profile or guess_profile(store)), fingerprint).repair
    begin, (end, *_) = store.commit_log.min_offset, store.commit_log.end()
    of_queues = (step for step in repair.steps if is_made_by_start(step, QUEUE_PARTS))
    steps = tuple(of_queues) if REFILL in repair.steps else ()
    plan = RepairPlan(begin, end, None, None, DataLoss(), (), steps, fingerprint=fingerprint, placed=repair.placed)

    def show() -> None:
        if how.output == "json":
            actions = [step.to_json() for step in plan.steps]
            print_document("rebuild", {"store": str(store.path.root), "actions": actions})
        else:
            repair_view.print_repair(plan, explain=False)

    summary = "removed the database of the queues"
    return repair_view.carry_out_repair(store, plan, show, Words("rebuild", summary, "Remove it?", summary), how)
