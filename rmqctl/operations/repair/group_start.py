"""What `recover --dry-run` shows of a DLedger store: its next start.

There is no step, because the log is its group's.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rmqctl.operations.plan import RepairPlan
from rmqctl.operations.repair.recovery_plan import RecoveryPlan
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.commit_log import ScanSummary
from rmqctl.store.read.file_scan import RecordRun
from rmqctl.store.recovery.data_loss import QueueOutcome
from rmqctl.store.recovery.dledger_start import MOVE_AWAY, DLedgerRestart, small_refusal

if TYPE_CHECKING:
    from rmqctl.operations.repair.analysis import RecoveryPolicy
    from rmqctl.store.read.read_only_store import ReadOnlyStore

FROM_A_MEMBER = (
    "rmqctl does not change this log, which is a DLedger group's: to keep what a start would lose, copy the store from "
    "another member of the group"
)
UNITS_DROPPED = (
    "with the file `abort`, brokers of 5.2.0 to 5.4.0 drop the last units of the queues, although the log has the "
    "messages; without it, they keep them"
)


def plan_of_group(store: ReadOnlyStore, policy: RecoveryPolicy) -> RecoveryPlan:
    """Return a plan without steps. Raises OSError."""
    started = time.perf_counter()
    builder = DispatchRequestBuilder(with_keys=False)
    start, records = DLedgerRestart(store, policy.profile, builder, policy.mode), 0
    for item in builder.scan(store.commit_log, ScanSummary(), threads=policy.threads):
        start.hear(item)
        if isinstance(item, RecordRun) and item.physical_offset < start.log_end:
            records += item.messages
    restart = start.finish()
    is_small = restart.refused is not None and restart.refused == small_refusal(store)
    advice = UNITS_DROPPED if start.drops_units else MOVE_AWAY if is_small else FROM_A_MEMBER
    is_worse = restart.refused is not None or restart.lost.records > 0
    why = restart.end.why or None if restart.end is not None else None
    log = (store.commit_log.min_offset, start.log_end, why, records)
    queues = tuple(
        QueueOutcome(queue.topic, queue.queue_id, queue.min_offset, queue.max_offset, queue.lost)
        for queue in restart.queues
    )
    notes = (advice,) if is_worse else ()
    plan = RepairPlan(*log, restart.lost, queues, steps=(), notes=notes, start_problem=restart.refused)
    return RecoveryPlan(plan, restart, 0, 0, {}, time.perf_counter() - started)
