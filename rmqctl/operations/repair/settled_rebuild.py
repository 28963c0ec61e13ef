"""Rebuild contested queues until a further rebuild changes nothing.

A queue is contested if it has a message whose queue offset is in doubt. If a queue offset is in doubt, the rebuild
looks at the existing queue (`operations/rebuild/queue_numbers.py`). A second rebuild would look at the rebuilt queue,
and might find another queue offset for the message. With another queue offset, a second repair would change the
repaired store. Therefore contested queues are rebuilt in rounds. Like a second repair, each later round reads the
planned log and the queues of the previous round.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from rmqctl.operations.plan import RebuildIndex, RebuildQueue, Step
from rmqctl.operations.rebuild.planned.built_units import BuiltUnits
from rmqctl.operations.rebuild.rebuild import Rebuild
from rmqctl.operations.rebuild.selection import Selection
from rmqctl.operations.repair.planned_store import planned_store

if TYPE_CHECKING:
    from rmqctl.operations.plan import RepairPlan
    from rmqctl.operations.rebuild.built_queue import QueueCounts
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

ROUNDS_MAX = 12  # a multiple of 2, 3, 4 and 6: if results repeat in such a cycle, a second repair changes nothing


def is_contested(counts: QueueCounts) -> bool:
    """Return whether a queue has a message whose queue offset is in doubt."""
    return bool(counts.strays or counts.repeated or counts.misnumbered or counts.unplaced or counts.anew)


def settle(
    store: ReadOnlyStore, plan: RepairPlan, keys: frozenset[QueueKey], threads: int
) -> tuple[Rebuild, BuiltUnits, int]:
    """Rebuild the queues `keys` in rounds, until a round changes nothing.

    Returns the last rebuild, its units, and the number of rounds (at most ROUNDS_MAX). Each round compares the rebuilt
    queues with `store`. Raises OSError.
    """
    found, units = _first_round(store, plan, keys, threads)
    for rounds in range(1, ROUNDS_MAX):
        with closing(_judge(store, plan, units)) as judge:
            next_found, next_units = _next_round(judge, plan, keys, threads, store)
        if next_units.are_as(units):
            next_units.close()
            return found, units, rounds
        found, units = next_found, next_units
    return found, units, ROUNDS_MAX


def judge_of_last_round(store: ReadOnlyStore, plan: RepairPlan, threads: int) -> ReadOnlyStore:
    """Return the store for the last round of rebuilding `plan.contested`.

    `plan.contested.rounds` must be at least 2. Raises OSError.
    """
    keys, rounds = plan.contested
    _, units = _first_round(store, plan, keys, threads)
    for _ in range(rounds - 2):
        with closing(_judge(store, plan, units)) as judge:
            _, units = _next_round(judge, plan, keys, threads, store)
    return _judge(store, plan, units)


def _first_round(
    store: ReadOnlyStore, plan: RepairPlan, keys: frozenset[QueueKey], threads: int
) -> tuple[Rebuild, BuiltUnits]:
    units = BuiltUnits()
    rebuild = Rebuild(
        store,
        _selection(keys),
        None,
        threads=threads,
        end=plan.max_phy_offset,
        placeholders=plan.placeholders,
        units=units,
    )
    rebuild.run()
    return rebuild, units


def _next_round(
    judge: ReadOnlyStore, plan: RepairPlan, keys: frozenset[QueueKey], threads: int, store: ReadOnlyStore
) -> tuple[Rebuild, BuiltUnits]:
    units = BuiltUnits()
    rebuild = Rebuild(
        judge, _selection(keys), None, threads=threads, end=plan.max_phy_offset, compared_with=store, units=units
    )
    rebuild.run()
    return rebuild, units


def _selection(keys: frozenset[QueueKey]) -> Selection:
    return Selection(index=False, keys=keys, all_topics=True)


def _judge(store: ReadOnlyStore, plan: RepairPlan, units: BuiltUnits) -> ReadOnlyStore:
    """Return the store with the planned log and the rebuilt queues in `units`.

    The log, and the queues in `units`, are as after a repair. Other queues that the plan rebuilds are as before.
    """
    steps = [step for step in plan.steps if not isinstance(step.action, RebuildQueue | RebuildIndex)]
    return planned_store(store, [*steps, *(Step(RebuildQueue(*key), "") for key in units.keys)], units)
