"""The rebuilds that a repair plan needs, and the findings that remain.

Only a trial rebuild shows which rebuilds are needed. If the trial rebuild changes nothing in a queue, the plan does not
rebuild the queue. The log is the cause of findings about an unchanged queue.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from rmqctl.operations.plan import RebuildQueue, SetCheckpoint
from rmqctl.operations.rebuild import rebuild_plan
from rmqctl.operations.rebuild.planned.built_units import BuiltUnits
from rmqctl.operations.rebuild.rebuild import Rebuild
from rmqctl.operations.rebuild.selection import Selection
from rmqctl.operations.repair.leaves import count_findings
from rmqctl.operations.repair.planned_store import planned_store
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.operations.plan import RepairPlan, Step
    from rmqctl.operations.rebuild.rebuild_plan import QueuePlan
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore
    from rmqctl.store.recovery.data_loss import QueueOutcome
    from rmqctl.store.recovery.simulated_queues import BuiltSpans


def with_needed_rebuilds(store: ReadOnlyStore, plan: RepairPlan, threads: int) -> tuple[RepairPlan, BuiltSpans]:
    """Return `plan` without rebuilds that would change nothing.

    The returned plan has the losses of the rebuilt queues, and their remaining findings. The second result is the begin
    and the end of each rebuilt queue. If `plan` rebuilds queues, the log is read once more. If one of them is
    disordered, it is read three times: to find it, to place its messages, and to count what remains. Raises OSError.
    """
    return _NeededRebuilds(store, plan, threads).result() if plan.queues_to_rebuild else (plan, {})


class _NeededRebuilds:
    """Rebuilds the queues of a plan without writing to the store.

    The rebuilt queues are compared with the existing queues. `_made` describes the queues after the rebuild. `_units`
    has the units of disordered queues. `_needed` has the queues that a rebuild changes.
    """

    def __init__(self, store: ReadOnlyStore, plan: RepairPlan, threads: int) -> None:
        self._store = store
        self._plan = plan
        self._threads = threads
        selection = Selection(index=False, keys=plan.queues_to_rebuild, all_topics=True)
        self._units = BuiltUnits()
        self._rebuild = Rebuild(
            store,
            selection,
            None,
            threads=threads,
            end=plan.max_phy_offset,
            placeholders=plan.placeholders,
            units=self._units,
        )
        self._rebuild.run()
        self._made = _by_key(rebuild_plan.queue_plans(self._rebuild, store))
        self._needed = frozenset(key for key, queue in self._made.items() if queue.differ or self._has_bad_files(key))
        self._unneeded = plan.queues_to_rebuild - self._needed  # also queues whose topic cannot be a folder name

    def result(self) -> tuple[RepairPlan, BuiltSpans]:
        """Return the new plan, and the begin and end of each rebuilt queue."""
        steps = self._steps()
        plan = replace(
            self._plan,
            steps=steps,
            queues=tuple(self._outcomes()),
            notes=(*self._plan.notes, *self._notes()),
            leaves=self._leaves(steps),
            strays=frozenset(stray.said for stray in self._rebuild.result.strays),
        )
        rebuilt = self._rebuilt()
        return rebuild_plan.with_loss_of_rebuilt(plan, rebuilt), rebuild_plan.built_spans(rebuilt)

    def _has_bad_files(self, key: QueueKey) -> bool:
        return key in self._store.queues and not self._rebuild.files_are_right(key)

    def _is_unneeded(self, step: Step) -> bool:
        return isinstance(step.action, RebuildQueue) and tuple(step.action) in self._unneeded

    def _steps(self) -> tuple[Step, ...]:
        steps = tuple(step for step in self._plan.steps if not self._is_unneeded(step))
        if all(isinstance(step.action, SetCheckpoint) and not step.action.is_wrong for step in steps):
            return ()
        return steps

    def _notes(self) -> Iterator[str]:
        yield from rebuild_plan.notes_of_strays(self._rebuild.result.strays)
        if self._unneeded:
            agree = "does not agree" if len(self._unneeded) == 1 else "do not agree"
            queues = counted(len(self._unneeded), "queue")
            yield f"{queues} {agree} with the log, and no repair can change that: `rmqctl verify` shows where"

    def _outcomes(self) -> Iterator[QueueOutcome]:
        for queue in self._plan.queues:
            key = queue.topic, queue.queue_id
            built = self._made.get(key)
            if key not in self._store.queues and key in self._unneeded:
                continue
            if built is None:
                yield queue
            else:
                yield queue._replace(min_offset=built.min_offset, max_offset=built.max_offset)

    def _rebuilt(self) -> list[QueuePlan]:
        """Return the rebuilt queues that will exist, sorted by topic and queueId."""
        return [queue for key, queue in sorted(self._made.items()) if key in self._needed and queue.counts is not None]

    def _leaves(self, steps: tuple[Step, ...]) -> Counter[str]:
        leaves = Counter(self._plan.leaves)
        for step in self._plan.steps:
            if self._is_unneeded(step):
                leaves.update(step.findings)
        if placed := self._needed.intersection(self._units.keys):
            with closing(planned_store(self._store, steps, self._units)) as planned:
                leaves += count_findings(self._threads, planned, placed)
        return +leaves


def _by_key(queues: list[QueuePlan]) -> dict[QueueKey, QueuePlan]:
    return {(queue.topic, queue.queue_id): queue for queue in queues}
