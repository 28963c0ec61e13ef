"""`rmqctl recover`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.cli.output.render import print_document, print_fields
from rmqctl.cli.shared.change import LogChangeOptions, Words
from rmqctl.cli.shared.confirm import change_options
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import (
    open_store,
    output_option,
    profile_option,
    scan_options,
    scan_progress,
    store_argument,
)
from rmqctl.cli.shared.sizes import SIZE
from rmqctl.cli.shared.verb import Verb
from rmqctl.cli.views.change.repair_view import (
    AGREE,
    REPAIR_VERB,
    carry_out_repair,
    check_index_can_be_rebuilt,
    check_writable,
    notes_of_healable,
    plan_json,
    print_loss,
    print_repair,
    words_of_loss,
)
from rmqctl.errors import ExitCode
from rmqctl.operations.plan import RebuildIndex, RebuildQueue
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.profile import Profile
    from rmqctl.operations.repair.analysis import RecoveryPolicy
    from rmqctl.operations.repair.recovery_plan import RecoveryPlan
    from rmqctl.store.read.read_only_store import ReadOnlyStore


@dataclass(frozen=True)
class RecoverOptions:
    """The options of `rmqctl recover`."""

    mode: str
    profile: Profile | None
    keep_going: bool
    placeholders_limit: int
    explain: bool


@click.command(
    cls=Verb,
    exit_codes=REPAIR_VERB,
    examples="""
        # show the plan, and the losses of the plan and of a plain restart
        rmqctl recover store --dry-run
        # repair the store
        rmqctl recover store --yes
        # keep the messages after a damaged record
        rmqctl recover store --keep-going --yes
        # undo the change
        rmqctl undo store --yes
    """,
)
@store_argument
@click.option(
    "--mode",
    type=click.Choice(("auto", "normal", "abnormal")),
    default="auto",
    help="The kind of the broker's recovery. `auto` means abnormal if the file `abort` exists, otherwise normal.",
)
@profile_option("Recover as brokers of this version do.")
@click.option(
    "--keep-going",
    is_flag=True,
    help="Replace each damaged record with a placeholder, and keep the messages after the damage.",
)
@click.option(
    "--placeholders-limit",
    type=SIZE,
    default="4GiB",
    help="With --keep-going, change nothing if placeholders would fill more than this many bytes of the log, or more "
    "than 10,000 missing log files. The bytes of the missing log files count, too.",
)
@click.option("-v", "--explain", is_flag=True, help="Show each step and each queue.")
@change_options
@output_option("table", "json")
@scan_options
@options_in(asked=RecoverOptions, how=LogChangeOptions)
def command(store: Path, asked: RecoverOptions, how: LogChangeOptions) -> int:
    """Repair a store as a start of the broker would, but with fewer losses.

    Use `recover` after a crash or damage. `recover` ends the log where the broker's own recovery would end the log, and
    zeroes the bytes after the end. Without --keep-going, `recover` also removes the good messages after the new end
    from the log, as a start of the broker does. `recover` changes queues and index to match the log, removes `abort`,
    and sets the checkpoint. The plan shows the losses of the repair, and the losses of a restart of the broker without
    a repair. rmqctl keeps all bytes that it overwrites or deletes, and `rmqctl undo` restores these bytes.

    A repair may lose fewer messages than a restart, because a repair keeps every good message of the log in its queue.
    A restart ends a queue at a damaged unit, and does not write every missing unit.

    Three kinds of messages are lost: messages after the new end of the log, damaged messages, and messages that a queue
    has but the log does not have. If a log file is missing or too short, the messages in the missing bytes were lost
    before the repair. `already gone` (`missing` in JSON) counts the messages that were lost before this run of
    `recover`.

    --keep-going replaces each damaged or missing message with a placeholder. A placeholder has the size and the queue
    offset of the message that it replaces. The property RMQCTL_DAMAGED of a placeholder names the damage. If the
    replaced body is damaged, the placeholder's body names the damage, for example {"RMQCTL_DAMAGED":"bad-size"}.
    Consumers receive placeholders like any other message, and should check for the property RMQCTL_DAMAGED.
    Placeholders also fill log files that are missing or too short. Without --keep-going, `recover` writes placeholders
    in two cases: a log file was cut, or a later start of the broker would end the log at the damage. `verify` counts
    the placeholders of a store.

    If the name of a log file is no multiple of the file size, and its records say which name it had, `recover` changes
    nothing, and says how to rename it back: brokers may serve messages of such a file that a repair would lose.

    One log file with a wrong name can cause a huge gap in the log. Therefore --keep-going has limits. If placeholders
    would fill more bytes than --placeholders-limit, or more than 10,000 missing log files, `recover` changes nothing
    and exits with 2.

    After a repair, `recover` exits with 3, or with 4 if a broker would still not start on the store. If there is
    nothing to repair, `recover` exits with 0, or with 1 if a broker would not start on the store. `startProblem` in
    JSON says why a broker would not start. While a broker has the store open, `recover` exits with 11, even with
    --dry-run.

    The log of a DLedger store is its group's: `recover` exits with 13. With --dry-run, it shows what a start of the
    broker makes of the log by DLedger's own recovery, which checks no CRC, and exits with 1 if the start loses
    messages. `rmqctl rebuild` writes the queues and the index of such a store.
    """
    from rmqctl.operations.repair.analysis import RecoveryAnalysis
    from rmqctl.operations.repair.recovery_plan import plan_recovery
    from rmqctl.store.recovery.simulation import can_simulate_group

    opened = open_store(store)
    if how.dry_run and can_simulate_group(opened) and not asked.keep_going:
        return _show_group_start(opened, asked, how)
    fingerprint = opened.fingerprint()  # before the first listing: the repair stops if a broker has started since
    with opened.storage.keeping_small_files():
        check_writable(opened, refills=True)
        policy = _policy(opened, asked, how.threads)
        warmed_up(partial(RecoveryAnalysis.warm_up, opened))
        with scan_progress(opened, "recover"):
            plan = plan_recovery(opened, policy, fingerprint)
    notes = (*plan.repair.notes, *_healable(opened, plan, how.threads))
    plan = replace(plan, repair=replace(plan.repair, profile=asked.profile, notes=notes))
    check_index_can_be_rebuilt(opened, plan.repair)

    def show() -> None:
        _print(store, plan, asked, how)

    words = Words("recover", _summary(plan), f"Recover {store}?", "recovered")
    return carry_out_repair(opened, plan.repair, show, words, how)


def _healable(store: ReadOnlyStore, plan: RecoveryPlan, threads: int) -> Iterator[str]:
    drops = plan.repair.lost.records > plan.missing or plan.placeholders_bytes
    if drops or any(isinstance(step.action, RebuildQueue | RebuildIndex) for step in plan.repair.steps):
        what = "that this drops" if drops else AGREE
        yield from notes_of_healable(store, plan.repair.records or 0, threads, what)


def _show_group_start(store: ReadOnlyStore, asked: RecoverOptions, how: LogChangeOptions) -> int:
    from rmqctl.operations.repair.group_start import plan_of_group

    with store.storage.keeping_small_files():
        check_writable(store, log_stays=True)
        with scan_progress(store, "recover"):
            plan = plan_of_group(store, _policy(store, asked, how.threads))
    _print(store.path.root, plan, asked, how)
    return int(ExitCode.FINDINGS if plan.repair.notes else ExitCode.CLEAN)


def _print(store: Path, plan: RecoveryPlan, asked: RecoverOptions, how: LogChangeOptions) -> None:
    if how.output == "json":
        print_document("recover", {"store": str(store)} | plan.to_json() | plan_json(plan.repair))
    else:
        print_plan(plan, explain=asked.explain)


def _policy(store: ReadOnlyStore, asked: RecoverOptions, threads: int) -> RecoveryPolicy:
    from rmqctl.operations.repair.analysis import RecoveryPolicy
    from rmqctl.store.read.version_guess import guess_profile
    from rmqctl.store.recovery.rules import Mode

    profile = asked.profile or guess_profile(store)
    mode = None if asked.mode == "auto" else Mode(asked.mode)
    return RecoveryPolicy(profile, mode, threads, asked.keep_going, asked.placeholders_limit)


def _summary(plan: RecoveryPlan) -> str:
    lost, steps = counted(plan.repair.lost.records, "message"), counted(len(plan.repair.steps), "step")
    return f"log ends at {plan.repair.max_phy_offset}, {lost} lost, {steps}"


def print_plan(plan: RecoveryPlan, *, explain: bool) -> None:
    """Print the summary of a recovery plan, then the repair.

    The output shows the plan, and what a plain restart of the broker would do.

    With `explain`, print every step and every queue.
    """
    repair, restart = plan.repair, plan.restart
    print_loss(repair)
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
