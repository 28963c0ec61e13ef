"""Rebuild contested queues until another rebuild would change nothing.

A record whose QUEUEOFFSET is in doubt gets the place that the existing queue has for the record
(`operations/rebuild/queue_numbers.py`). A second rebuild would read the new queue instead of the existing queue, and
might give the record another place. A second repair would then change the repaired store again. Therefore such queues
are rebuilt in rounds. Each round after the first reads the log and the queues of the previous round, in the same way as
the next repair would.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from rmqctl.operations.plan import RebuildIndex, RebuildQueue, Step
from rmqctl.operations.rebuild.built_units import BuiltUnits
from rmqctl.operations.rebuild.rebuild import Rebuild, Selection
from rmqctl.operations.repair.planned_store import planned_store

if TYPE_CHECKING:
    from rmqctl.operations.plan import RepairPlan
    from rmqctl.operations.rebuild.built_queue import QueueCounts
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

ROUNDS_MAX = 12  # where two rounds, three, four or six take turns, a repair as long as this one ends where it began


def is_contested(counts: QueueCounts) -> bool:
    """Return whether a queue has a message whose place is in doubt."""
    return bool(counts.strays or counts.repeated or counts.misnumbered or counts.unplaced or counts.anew)


def settle(
    store: ReadOnlyStore, plan: RepairPlan, keys: frozenset[QueueKey], threads: int
) -> tuple[Rebuild, BuiltUnits, int]:
    """Rebuild `keys` in rounds. Return the last round, its units, and the count.

    The last round compares the queues with `store`. The third result is the number of rounds. Raises OSError.
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
    """Return the store that is read in the last round for `plan.contested`.

    The last round must not be the first round. Raises OSError.
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
    """Return the store with the planned log and the rebuilt queues.

    The next repair would find this store.
    """
    steps = [step for step in plan.steps if not isinstance(step.action, RebuildQueue | RebuildIndex)]
    return planned_store(store, [*steps, *(Step(RebuildQueue(*key), "") for key in units.keys)], units)
