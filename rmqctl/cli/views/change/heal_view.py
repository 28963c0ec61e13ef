"""The output of `rmqctl heal`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.cli.output.render import print_line_of_text, print_table
from rmqctl.cli.shared.options import target_words
from rmqctl.operations.heal.plan import Healed, Lost
from rmqctl.text import counted, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmqctl.operations.heal.plan import HealPlan, Outcome

CANDIDATES_SHOWN = 3


def print_plan(plan: HealPlan) -> None:
    """Print how much comes back, then each damaged place and what says so."""
    if not plan.outcomes and not plan.files:
        print("nothing to heal: nothing refutes a record of the log")
        return
    if plan.outcomes:
        print_line_of_text(
            f"{counted(plan.messages, 'message')} of {counted(len(plan.outcomes), 'damaged place')} can be had back; "
            f"{len(plan.ambiguous)} ambiguous, {len(plan.lost)} lost"
        )
        print()
        print_table(["PHYSICALOFFSET", "SIZE", "HOW", "SOURCE", "WHY"], [_row(outcome) for outcome in plan.outcomes])
    for file in plan.files:
        print_line_of_text(file.describe())


def remarks_on(store: Path, plan: HealPlan, *, tail: bool) -> Iterator[str]:
    """Yield what the plan leaves for other commands, and what a `tail` means."""
    if plan.ambiguous or plan.lost:
        yield "what does not come back: another store of the same log may have it (--from)"
    if any(one.how == "placeholder" for one in plan.healed):
        yield f"`rmqctl rebuild {target_words(store)} all` then gives the index the keys that placeholders do not have"
    if plan.beyond:
        yield f"SOURCE goes on for {size_text(plan.beyond)} beyond the end of this log: --tail takes that, too"
    taken = sum(one.messages for one in plan.healed if tail and one.physical_offset >= plan.end)
    if taken:
        yield (
            f"{counted(taken, 'message')} lay beyond the end of this log: a master may never have confirmed them, so "
            "that producers sent them again; a slave would also fetch them by itself. "
            f"Before a broker starts, `rmqctl rebuild {target_words(store)} all` puts them into queues and index"
        )
    if plan.lost:
        yield f"`rmqctl recover {target_words(store)} --keep-going --dry-run` keeps the messages after it"


def _row(outcome: Outcome) -> list[object]:
    row: list[object] = [outcome.physical_offset, outcome.size]
    if isinstance(outcome, Healed):
        return [*row, outcome.how, outcome.source, ", ".join(outcome.witnesses)]
    if isinstance(outcome, Lost):
        return [*row, "lost", None, outcome.why]
    shown = [str(candidate["source"]) for candidate in outcome.candidates]
    more = [f"{len(shown) - CANDIDATES_SHOWN} more"] if len(shown) > CANDIDATES_SHOWN else []
    return [*row, "ambiguous", " | ".join([*shown[:CANDIDATES_SHOWN], *more]), outcome.why]
