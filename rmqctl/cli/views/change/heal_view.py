"""The output of `rmqctl heal`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.cli.output.render import print_line_of_text, print_table
from rmqctl.operations.heal.plan import Healed, Lost
from rmqctl.text import counted

if TYPE_CHECKING:
    from rmqctl.operations.heal.plan import HealPlan, Outcome

CANDIDATES_SHOWN = 3


def print_plan(plan: HealPlan) -> None:
    """Print how much comes back, then each damaged place and what says so."""
    if not plan.outcomes:
        print("nothing to heal: nothing refutes a record of the log")
        return
    print_line_of_text(
        f"{counted(plan.messages, 'message')} of {counted(len(plan.outcomes), 'damaged place')} can be had back; "
        f"{len(plan.ambiguous)} ambiguous, {len(plan.lost)} lost"
    )
    print()
    print_table(["OFFSET", "SIZE", "HOW", "SOURCE", "WHY"], [_row(outcome) for outcome in plan.outcomes])


def _row(outcome: Outcome) -> list[object]:
    row: list[object] = [outcome.physical_offset, outcome.size]
    if isinstance(outcome, Healed):
        return [*row, outcome.how, outcome.source, ", ".join(outcome.witnesses)]
    if isinstance(outcome, Lost):
        return [*row, "lost", None, outcome.why]
    shown = [str(candidate["source"]) for candidate in outcome.candidates]
    more = [f"{len(shown) - CANDIDATES_SHOWN} more"] if len(shown) > CANDIDATES_SHOWN else []
    return [*row, "ambiguous", " | ".join([*shown[:CANDIDATES_SHOWN], *more]), outcome.why]
