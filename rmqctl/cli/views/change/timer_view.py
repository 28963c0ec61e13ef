"""The plan of `rmqctl rebuild STORE timers`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rmqctl.cli.output.render import print_document, print_table
from rmqctl.cli.shared.change import LogChangeOptions, Words
from rmqctl.cli.views.change import repair_view
from rmqctl.format.timestamp import rfc3339
from rmqctl.operations.plan import RebuildTimers, RepairPlan
from rmqctl.store.recovery.data_loss import DataLoss
from rmqctl.text import counted

if TYPE_CHECKING:
    from rmqctl.store.read.read_only_store import Fingerprint, ReadOnlyStore

KEYS = ("topic", "messages", "firstDueTimestamp", "lastDueTimestamp")


def rebuild_timers(store: ReadOnlyStore, fingerprint: Fingerprint, how: LogChangeOptions) -> int:
    """Write the timer's files anew, if they do not lead to each message once.

    Only messages that wait count. Returns the exit code.
    """
    from rmqctl.operations.rebuild.timer_files import timer_step

    begin, (end, *_) = store.commit_log.min_offset, store.commit_log.end()
    step = timer_step(store, store, end, how.threads, time.time_ns() // 1_000_000)
    steps = () if step is None else (step,)
    plan = RepairPlan(begin, end, None, None, DataLoss(), (), steps, fingerprint=fingerprint)
    waiting = step.action.timers if step is not None and isinstance(step.action, RebuildTimers) else ()

    def show() -> None:
        due_of: dict[str, list[int]] = {}
        for timer in waiting:
            due_of.setdefault(timer.topic, []).append(timer.due_ms or 0)
        rows = [(topic, len(due), min(due), max(due)) for topic, due in sorted(due_of.items())]
        if how.output == "json":
            topics = [dict(zip(KEYS, row, strict=True)) for row in rows]
            actions = [step.to_json() for step in plan.steps]
            print_document("rebuild", {"store": str(store.path.root), "timers": topics, "actions": actions})
            return
        if rows:
            table = [[topic, count, rfc3339(first), rfc3339(last)] for topic, count, first, last in rows]
            print_table(["TOPIC", "MESSAGES", "FIRST DUE", "LAST DUE"], table)
            print()
        repair_view.print_repair(plan, explain=False)

    messages = counted(len(waiting), "waiting message")
    words = Words("rebuild", f"rebuilt the timer's files, for {messages}", "Put the timer's files in place?", "rebuilt")
    return repair_view.carry_out_repair(store, plan, show, words, how)
