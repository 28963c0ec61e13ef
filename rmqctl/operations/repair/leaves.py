"""Count, by code, the findings that `verify` still reports after a repair."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.forensics.audit import state_audit
from rmqctl.forensics.audit.crosscheck import QueueCrosscheck
from rmqctl.format.message import Damage, Message
from rmqctl.store.config import store_path
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.commit_log import ScanSummary
from rmqctl.store.read.consume_queue import ConsumeQueue
from rmqctl.store.read.file_scan import RecordRun

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from rmqctl.operations.plan import RepairPlan
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

LOG_START_MISSING = "log-start-missing"  # counts units that point before the log's start


def count_findings(threads: int, store: ReadOnlyStore, keys: AbstractSet[QueueKey]) -> Counter[str]:
    """Count the findings of the queues `keys` by code.

    The function reads the whole log. Raises OSError.
    """
    summary, builder = ScanSummary(), DispatchRequestBuilder(with_keys=False, with_tags=True)
    queues = QueueCrosscheck(store, builder)
    for item in store.commit_log.scan_columns(summary, builder.take, threads=threads):
        if isinstance(item, RecordRun):
            queues.on_messages(item.result.messages)
        elif isinstance(item, Message):
            queues.on_messages(builder.of(item).messages)
        elif isinstance(item, Damage):
            message = item.message_in_its_place
            if message is None:
                queues.lost(item)
            else:
                queues.on_messages(builder.of(message).messages, message)
    queues.finish(summary.end)
    found: Counter[str] = Counter()
    for finding in queues.findings:
        if finding.topic is not None and finding.queue_id is not None and (finding.topic, finding.queue_id) in keys:
            found[finding.code] += finding.count
    return found


def with_all_leaves(store: ReadOnlyStore, plan: RepairPlan) -> RepairPlan:
    """Return `plan` with all findings that remain after the repair, and a note.

    Findings about files in config/ depend on the planned ends of the queues. Findings about files in replaced folders
    do not remain. Raises OSError.
    """
    ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in plan.queues}
    of_config = Counter(finding.code for finding in state_audit.audit_config(store, ends))
    leaves = Counter(plan.leaves) + of_config - _replaced(store, plan)
    if not leaves:
        return replace(plan, leaves=leaves)
    found = ", ".join(f"{count} {code}" for code, count in sorted(leaves.items()))
    note = f"`rmqctl verify` still reports after this: {found} (`rmqctl explain CODE` says what each means)"
    return replace(plan, leaves=leaves, notes=(*plan.notes, note))


def _replaced(store: ReadOnlyStore, plan: RepairPlan) -> Counter[str]:
    """Count the findings that disappear because a repair replaces folders.

    The function counts findings about foreign files in replaced folders, and about units of expired messages.
    """
    folders = {
        f"{part}/{topic}/{queue_id}" for part in store_path.QUEUE_PARTS for topic, queue_id in plan.queues_to_rebuild
    }
    if plan.rebuilds_index:
        folders.add(store_path.INDEX)
    found = Counter(
        damage.code for damage in store.foreign if not folders.isdisjoint(map(str, Path(damage.path).parents))
    )
    for key in plan.queues_to_rebuild & store.queues.keys():
        queue = store.queues[key]
        first, end = queue.min_and_max(plan.min_phy_offset)
        if isinstance(queue, ConsumeQueue) and first < end:
            found[LOG_START_MISSING] += first - queue.first_offset
    return found
