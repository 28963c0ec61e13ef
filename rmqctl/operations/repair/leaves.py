"""Count, by code, the findings that `verify` still reports after a repair."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.forensics.audit import state_audit
from rmqctl.store.config import store_path
from rmqctl.store.journal.changes import Delete
from rmqctl.store.read.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from rmqctl.operations.plan import RepairPlan
    from rmqctl.operations.repair.kept_log import KeptLog
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

LOG_START_MISSING = "log-start-missing"  # counts units that point before the log's start
# findings that no change of a queue repairs: on units of damaged records that a restart does not read, and on records
# with a wrong QUEUEOFFSET; brokers serve both
LEFT = frozenset({"unit-lost-message", "bad-queue-offset"})


def findings_after(
    store: ReadOnlyStore, kept: KeptLog, plan: RepairPlan, unchanged: AbstractSet[QueueKey]
) -> Counter[str]:
    """Count the findings of `kept`, and beside the log, that remain after `plan`.

    `unchanged` are the queues whose findings no rebuild can repair. Those of rebuilt queues are not counted. Raises
    OSError.
    """
    found = Counter(damage.code for damage in kept.damages(plan.max_phy_offset))
    found += kept.rejected
    found.update(_foreign(store, plan))
    rebuilt = plan.queues_to_rebuild
    for finding in kept.queues.findings:
        if finding.topic is not None and finding.queue_id is not None:
            key = finding.topic, finding.queue_id
            if key in unchanged or (finding.code in LEFT and key not in rebuilt):
                found[finding.code] += finding.count
    missing = [*state_audit.audit_log_start(store, kept.stored.oldest, kept.stored.newest, kept.queues.spanning_units)]
    if missing and not state_audit.is_start_cleaned(store):
        found.update({finding.code: finding.count for finding in missing})
        found[LOG_START_MISSING] -= _expired_units(store, plan)
    ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in plan.queues}
    found.update(finding.code for finding in state_audit.audit_config(store, ends))
    return +found


def _foreign(store: ReadOnlyStore, plan: RepairPlan) -> Iterator[str]:
    """Yield the codes of the foreign files that stay.

    The repair may delete one, or its whole folder.
    """
    gone = {step.action.path for step in plan.steps if isinstance(step.action, Delete)}
    gone |= {
        f"{part}/{topic}/{queue_id}" for part in store_path.QUEUE_PARTS for topic, queue_id in plan.queues_to_rebuild
    }
    if plan.rebuilds_index:
        gone.add(store_path.INDEX)
    for damage in store.foreign:
        path = Path(damage.path)
        if gone.isdisjoint(map(str, (path, *path.parents))):
            yield damage.code


def _expired_units(store: ReadOnlyStore, plan: RepairPlan) -> int:
    """Count units of expired messages in queues that get rebuilt, and lose them."""
    count = 0
    for key in plan.queues_to_rebuild & store.queues.keys():
        queue = store.queues[key]
        first, end = queue.min_and_max(plan.min_phy_offset)
        if isinstance(queue, ConsumeQueue) and first < end:
            count += first - queue.first_offset
    return count
