"""`rmqctl truncate`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.cli.output.render import print_document, print_fields, remark
from rmqctl.cli.shared.change import LogChangeOptions, Words
from rmqctl.cli.shared.confirm import change_options
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import (
    OFFSET,
    open_store,
    output_option,
    profile_option,
    scan_options,
    scan_progress,
    store_argument,
)
from rmqctl.cli.shared.verb import Verb
from rmqctl.cli.views.change import repair_view
from rmqctl.errors import ExitCode
from rmqctl.text import counted, quoted

if TYPE_CHECKING:
    from rmqctl.format.profile import Profile
    from rmqctl.operations.plan import RepairPlan
    from rmqctl.operations.repair.truncation import Truncation
    from rmqctl.store.read.read_only_store import ReadOnlyStore


@click.command(
    cls=Verb,
    exit_codes=repair_view.REPAIR_VERB,
    examples="""
        # show what would be removed
        rmqctl truncate store --to 40668 --dry-run
        # end the log at an offset
        rmqctl truncate store --to 40668 --yes
        # zero the bytes that a crash or an earlier truncation left after the log's end
        rmqctl truncate store --dirty --yes
    """,
)
@store_argument
@click.option("--to", type=OFFSET, help="End the log at this physical offset, where a record begins or ends.")
@click.option(
    "--dirty", is_flag=True, help="Leave the end of the log where it is, and remove only the bytes after the end."
)
@click.option(
    "--keep-tail",
    is_flag=True,
    help="Leave the bytes after the new end in their file, as a broker does. With --keep-tail, good messages in "
    "these bytes remain part of the log.",
)
@click.option("-v", "--explain", is_flag=True, help="Show each step, and each queue.")
@profile_option("Rebuild the index as brokers of this version do.")
@change_options
@output_option("table", "json")
@scan_options
@options_in(how=LogChangeOptions)
def command(
    store: Path,
    to: int | None,
    dirty: bool,
    keep_tail: bool,
    explain: bool,
    profile: Profile | None,
    how: LogChangeOptions,
) -> int:
    """End the log at a record boundary, and change queues and index to match.

    `truncate` removes the log files after the new end, and zeroes the rest of the last file. rmqctl keeps all bytes
    that it overwrites or deletes, and `rmqctl undo` restores these bytes.

    With --keep-tail, the bytes after the new end stay in their file. With --keep-tail, good messages after the new end
    become part of the log again: for rmqctl immediately, for a broker after the next start. `truncate --dirty` does not
    remove good messages. `truncate` removes the log files after the new end, with or without --keep-tail.

    `truncate` also simulates the next start of the broker. After a truncation, the broker may begin its recovery at an
    earlier log file. If an earlier log file is damaged, the recovery may end the log at the damage. A message counts as
    lost if the broker would not serve the message after the next start.

    After a truncation, `truncate` exits with 3, or with 4 if a broker would not start on the store. If there is nothing
    to do, `truncate` exits with 0. While a broker has the store open, `truncate` exits with 11, even with --dry-run.
    """
    _check_usage(to, dirty=dirty)
    opened = open_store(store)
    repair_view.check_writable(opened, refills=True)
    from rmqctl.operations.repair.truncation import Truncation

    end = opened.commit_log.end()[0] if to is None else to
    truncation = Truncation(opened, end, how.threads, keep_tail=keep_tail)
    warmed_up(truncation.warm_up)
    with scan_progress(opened, "truncate", max(opened.commit_log.queue.end - end, 1)):
        plan = _plan(truncation, opened, profile, how.threads)
    repair_view.check_index_can_be_rebuilt(opened, plan)
    if dirty:
        truncation.check_nothing_good_is_lost()

    def show() -> None:
        if how.output == "json":
            print_document("truncate", {"store": str(store)} | repair_view.plan_json(plan))
        else:
            _print_plan(plan, explain=explain)

    words = Words("truncate", _summary(end, plan), f"End the log of {store} at {end}?", "truncated")
    code = repair_view.carry_out_repair(opened, plan, show, words, how)
    if code in (ExitCode.REPAIRED, ExitCode.PARTIAL):
        target = quoted(opened.path.root)
        sets_back = f"`rmqctl config set-offset {target} GROUP TOPIC --to latest` sets a group back"
        remark(f"before a broker starts: `rmqctl doctor {target}` names offsets after the new end; {sets_back}")
    return code


def _plan(truncation: Truncation, store: ReadOnlyStore, profile: Profile | None, threads: int) -> RepairPlan:
    """Return the plan, with the timer's files and the losses at the next start."""
    from rmqctl.operations.rebuild.timer_files import with_timers
    from rmqctl.operations.repair.refill import refilled
    from rmqctl.operations.repair.rehearsal import with_next_start
    from rmqctl.store.config.store_path import Layout
    from rmqctl.store.read.version_guess import guess_profile

    plan = replace(truncation.plan(), profile=profile)
    if not plan.steps:
        return plan
    of_broker = profile or guess_profile(store)
    if store.path.layout is Layout.ROCKSDB:
        return refilled(store, plan, of_broker)
    return refilled(store, with_next_start(store, with_timers(store, plan, threads), of_broker, {}, threads), of_broker)


def _check_usage(to: int | None, *, dirty: bool) -> None:
    """Check that the user gave either --to or --dirty. Raises UsageError."""
    if to is not None and dirty:
        raise click.UsageError("give --to OFFSET or --dirty, not both: --dirty leaves the end of the log where it is")
    if to is None and not dirty:
        raise click.UsageError(
            "missing the end of the log: give --to OFFSET, as `rmqctl dump STORE` shows them, or --dirty"
        )


def _print_plan(plan: RepairPlan, *, explain: bool) -> None:
    repair_view.print_loss(plan)
    print_fields(
        (("log", f"{plan.min_phy_offset} to {plan.max_phy_offset}"), ("lost", repair_view.words_of_loss(plan)))
    )
    print()
    repair_view.print_repair(plan, explain=explain)


def _summary(end: int, plan: RepairPlan) -> str:
    return f"log ends at {end}, {counted(plan.lost.records, 'message')} lost"
