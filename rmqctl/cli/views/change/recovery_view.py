"""The output of `rmqctl recover`.

The output shows the plan, and what a plain restart of the broker would do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.cli.output.render import print_fields
from rmqctl.cli.views.change.repair_view import (
    print_repair,
    words_of_loss,
)
from rmqctl.text import counted

if TYPE_CHECKING:
    from rmqctl.operations.repair.recovery_plan import RecoveryPlan


def print_plan(plan: RecoveryPlan, *, explain: bool) -> None:
    """Print the summary of a recovery plan, then the repair.

    With `explain`, print every step and every queue.
    """
    repair, restart = plan.repair, plan.restart
    print_fields(
        (
            ("recovery", f"{restart.mode.value}, as {restart.profile.label} brokers do{_start(plan)}"),
            ("log", f"{repair.min_phy_offset} to {repair.max_phy_offset}, {counted(repair.records or 0, 'message')}"),
            ("ends because", repair.end_reason or "there are no more records"),
            ("lost", f"{words_of_loss(repair)}{_keepable(plan)}"),
            *_missing(plan),
            *_placeholders(plan),
            ("a plain restart", _restart_in_words(plan)),
        )
    )
    print()
    print_repair(repair, explain=explain)


def _keepable(plan: RecoveryPlan) -> str:
    return f"; --keep-going would keep {plan.keepable} of them" if plan.keepable else ""


def _missing(plan: RecoveryPlan) -> list[tuple[str, str]]:
    if not plan.missing:
        return []
    rest = max(plan.repair.lost.records - plan.missing, 0)
    return [("already gone", f"{plan.missing} of them: no file of the log has their bytes; this repair loses {rest}")]


def _placeholders(plan: RecoveryPlan) -> list[tuple[str, str]]:
    """Return the number of placeholders and of their bytes, as a field to print.

    If the plan has no placeholders, the list is empty. The count of placeholders leaves out fillers, which no consumer
    receives. The count of bytes includes fillers.
    """
    if not plan.placeholders_bytes:
        return []
    served = counted(plan.repair.placeholders.served, "message")
    files = f" and {counted(plan.placeholders_files, 'missing file')}" if plan.placeholders_files else ""
    words = (
        f"{served} written in place of what is damaged or missing ({counted(plan.placeholders_bytes, 'byte')} of "
        f"the log{files})"
    )
    return [("placeholders", f"{words}: consumers get them (`rmqctl explain placeholder`)")]


def _start(plan: RecoveryPlan) -> str:
    restart = plan.restart
    return f", from {restart.start_file_path}: {restart.start_file.why}" if restart.start_file else ""


def _restart_in_words(plan: RecoveryPlan) -> str:
    """Return the result of a broker restart without a repair, as text."""
    restart = plan.restart
    if restart.refused is not None:
        return f"the broker does not load this store: {restart.refused}"
    if restart.hangs is not None:
        return f"the broker never gets ready: {restart.hangs}"
    units = sum(queue.max_offset - queue.min_offset for queue in restart.queues)
    ours = sum(queue.max_offset - queue.min_offset for queue in plan.repair.queues)
    fewer = f"; {counted(ours - units, 'message')} fewer in its queues than after this" if units < ours else ""
    lost = f"{counted(restart.lost.records, 'message')} ({counted(restart.lost.bytes, 'byte')})"
    return f"the log up to {restart.max_phy_offset}, {lost} lost{fewer}"
