"""The rebuilds that a repair plan needs.

Only a trial rebuild shows them. A queue in which it changes nothing is not rebuilt: the log is the cause of its
findings.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.operations.plan import RebuildQueue, SetCheckpoint
from rmqctl.operations.rebuild import rebuild_plan
from rmqctl.operations.rebuild.planned_store import BuiltUnits
from rmqctl.operations.rebuild.rebuild import Rebuild
from rmqctl.operations.rebuild.selection import Selection
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from rmqctl.operations.plan import RepairPlan, Step
    from rmqctl.operations.rebuild.rebuild_plan import QueuePlan
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore
    from rmqctl.store.recovery.data_loss import QueueOutcome
    from rmqctl.store.recovery.queues.simulated_queues import BuiltSpans


class NeededRebuilds(NamedTuple):
    """A repair plan after a trial rebuild of its queues."""

    plan: RepairPlan  # without rebuilds that would change nothing; with the losses of the others
    spans: BuiltSpans  # the begin and the end of each rebuilt queue
    units: BuiltUnits  # of the disordered queues


def needed_rebuilds(
    store: ReadOnlyStore, plan: RepairPlan, disordered: Collection[QueueKey], threads: int
) -> NeededRebuilds:
    """Find the rebuilds that `plan` needs.

    If `plan` rebuilds queues, the log is read once more; twice if a queue that is not in `disordered` shows to be so.
    Raises OSError.
    """
    asked = plan.queues_to_rebuild
    units = BuiltUnits()
    if not asked:
        return NeededRebuilds(plan, {}, units)
    selection = Selection(index=False, keys=asked, all_topics=True)
    rebuild = Rebuild(
        store,
        selection,
        None,
        threads=threads,
        end=plan.max_phy_offset,
        placeholders=plan.placeholders,
        units=units,
        disordered=disordered,
    )
    rebuild.run()
    made = {(queue.topic, queue.queue_id): queue for queue in rebuild_plan.queue_plans(rebuild, store)}
    needed = {
        key for key, queue in made.items() if queue.differ or (key in store.queues and not rebuild.files_are_right(key))
    }
    unneeded = asked - needed  # also queues whose topic cannot be a folder name
    units.leave_out(unneeded)
    steps = _without(plan.steps, unneeded)
    strays = rebuild.result.strays
    plan = replace(
        plan,
        steps=steps,
        queues=tuple(_outcomes(store, plan, made, unneeded)),
        notes=(*plan.notes, *rebuild_plan.notes_of_strays(strays), *_notes(len(unneeded))),
        strays=frozenset(stray.said for stray in strays),
        placed=frozenset(rebuild.result.placed),
    )
    rebuilt = [queue for key, queue in sorted(made.items()) if key in needed and queue.counts is not None]
    return NeededRebuilds(rebuild_plan.with_loss_of_rebuilt(plan, rebuilt), rebuild_plan.built_spans(rebuilt), units)


def _without(steps: tuple[Step, ...], unneeded: AbstractSet[QueueKey]) -> tuple[Step, ...]:
    """Return the needed steps.

    A step that only moves a right checkpoint on is not needed by itself.
    """
    kept = tuple(
        step for step in steps if not (isinstance(step.action, RebuildQueue) and tuple(step.action) in unneeded)
    )
    return () if all(isinstance(step.action, SetCheckpoint) and not step.action.is_wrong for step in kept) else kept


def _outcomes(
    store: ReadOnlyStore, plan: RepairPlan, made: Mapping[QueueKey, QueuePlan], unneeded: AbstractSet[QueueKey]
) -> Iterator[QueueOutcome]:
    for queue in plan.queues:
        key = queue.topic, queue.queue_id
        if key not in store.queues and key in unneeded:
            continue
        built = made.get(key)
        yield queue if built is None else queue._replace(min_offset=built.min_offset, max_offset=built.max_offset)


def _notes(unneeded: int) -> Iterator[str]:
    if unneeded:
        agree = "does not agree" if unneeded == 1 else "do not agree"
        queues = counted(unneeded, "queue")
        yield f"{queues} {agree} with the log, and no repair can change that: `rmqctl verify` shows where"
