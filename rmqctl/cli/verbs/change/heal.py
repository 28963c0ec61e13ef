"""`rmqctl heal`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.cli.output.render import print_document
from rmqctl.cli.shared.change import Commit, LogChangeOptions, PlannedChange, Words, carry_out, journaled
from rmqctl.cli.shared.confirm import change_options
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import (
    LocalPath,
    open_store,
    output_option,
    scan_options,
    scan_progress,
    store_argument,
)
from rmqctl.cli.shared.verb import Verb
from rmqctl.cli.views.change.heal_view import print_plan, remarks_on
from rmqctl.cli.views.change.repair_view import REPAIR_VERB, check_writable
from rmqctl.errors import ExitCode
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.operations.heal.plan import HealPlan
    from rmqctl.store.journal.changes import Change
    from rmqctl.store.read.commit_log import CommitLog
    from rmqctl.store.read.read_only_store import ReadOnlyStore


@dataclass(frozen=True)
class HealOptions:
    """The options of `rmqctl heal`."""

    sources: tuple[Path, ...]
    tail: bool
    accept_single_bit: bool


@click.command(
    cls=Verb,
    exit_codes=REPAIR_VERB,
    examples="""
        # show which damaged records can be had back exactly, and what says so
        rmqctl heal store --dry-run
        # bring them back
        rmqctl heal store --yes
        # take damaged parts from the slave's store, or from a backup
        rmqctl heal store --from slave/store --from backup/store --yes
        # a master that lost its end: take also what its slave has beyond it
        rmqctl heal store --from slave/store --tail --yes
    """,
)
@store_argument
@click.option(
    "--from",
    "sources",
    metavar="SOURCE",
    multiple=True,
    type=LocalPath(),
    help="Another store of the same log, as a slave's or a backup, or one file of its log under any name. May be given "
    "several times; where they differ, a record comes from most of them or from none.",
)
@click.option("--tail", is_flag=True, help="Also take what SOURCE has beyond the end of the log.")
@click.option(
    "--accept-single-bit",
    is_flag=True,
    help="Also bring back a body above 26 KiB if only its checksum says which bit flipped: one body of 1 MiB in 250 is "
    "explained so by chance.",
)
@change_options
@output_option("table", "json")
@scan_options
@options_in(asked=HealOptions, how=LogChangeOptions)
def command(store: Path, asked: HealOptions, how: LogChangeOptions) -> int:
    """Bring damaged records back exactly, from their own bytes or from a replica.

    A flipped bit in a body is found by the body's checksum. A flipped bit elsewhere in a record is found by what else
    knows the record: its unit in the queue, its entries in the index, its lengths and its position, the store times and
    the host of its neighbours, and what all other records of this store have in common. Each bit is tried, and a record
    is changed only if exactly one bit satisfies all of these witnesses. Two flipped bits are found in a text of up to
    371 bytes, and up to 4 KiB in a zlib stream, or in a text that they made unreadable. A record with more damage comes
    from another record of the same message in the store: a half message from its commit, a delayed one from what was
    delivered, a dead letter from its retry. Its unit says where it was, and other messages that went the same way say
    in what it differed. Its store time can then be only near: SOURCE says so. Without a checksum and without a witness,
    nobody can see that a bit flipped: FLAG, the port of BORNHOST, the low bits of BORNTIMESTAMP and STORETIMESTAMP, and
    the values of user properties.

    With --from, a damaged part comes from SOURCE where SOURCE has it whole, and so do log files that are missing or
    were cut short, as far as queues lead into them. A file before the first one comes back only if a broker would not
    have deleted it, by fileReservedTime. What SOURCE has beyond the end of the log stays there, unless --tail is given:
    a master may never have confirmed it. First, every whole record of both logs is
    compared: if SOURCE is the store of another broker, or a slave whose log went another way, heal changes nothing,
    exits with 4, and names the first difference. SOURCE may end earlier or lack a part: what it lacks stays as it is.
    Where a record has an exact explanation of its own and SOURCE has another one, both are shown, and the record stays
    as it is. Placeholders that `rmqctl recover` wrote give way to the records that they replaced.
    What `rmqctl erase` erased stays erased.

    heal writes only the log, and keeps the bytes that it overwrites: `rmqctl undo` takes them back. Queues and index
    stay as they are, because they lead to the records since before the damage. After --tail, rebuild them before a
    broker starts: one of 5.5.0 left the first message of a tail out of its queue. What cannot be had back is listed;
    `rmqctl recover --keep-going` keeps the messages after it.

    heal exits with 0 if nothing is damaged, with 3 if all damage came back, and with 4 if some did not; with --dry-run,
    with 1 if something would come back. While a broker has STORE open, heal exits with 11, even with --dry-run.
    """
    from rmqctl.operations.heal.plan import Healing

    opened = open_store(store)
    check_writable(opened, refills=True)
    if asked.tail and not asked.sources:
        raise click.UsageError("--tail takes what a SOURCE has: give --from SOURCE")
    others = {str(source): _opened(source) for source in asked.sources}
    healing = Healing(opened, how.threads, others, tail=asked.tail, accept_single_bit=asked.accept_single_bit)
    warmed_up(healing.warm_up)
    with opened.storage.keeping_small_files(), scan_progress(opened, "heal"):
        plan = healing.plan()

    def show() -> None:
        if how.output == "json":
            print_document("heal", {"store": str(store)} | plan.to_json())
        else:
            print_plan(plan)

    def make(commit: Commit) -> str:
        what = f"{counted(plan.messages, 'message')} healed"
        words = Words("heal", what, "", what)
        return journaled(opened, words, partial(_build, opened, plan), commit)

    is_left = bool(plan.ambiguous or plan.lost)
    change = PlannedChange(
        opened.path.root,
        opened.path.commitlogs,
        show,
        f"Heal {store}?",
        make,
        is_due=bool(plan.changes),
        remarks=remarks_on(store, plan, tail=asked.tail),
        code=ExitCode.PARTIAL if is_left else ExitCode.REPAIRED if plan.changes else ExitCode.CLEAN,
    )
    return carry_out(change, how)


def _opened(source: Path) -> CommitLog:
    from rmqctl.operations.heal.replica import log_of_file
    from rmqctl.store.read.read_only_store import ReadOnlyStore

    if source.is_file():
        return log_of_file(source)
    opened = ReadOnlyStore(source, log_only=True)
    click.get_current_context().call_on_close(opened.close)
    return opened.commit_log


def _build(store: ReadOnlyStore, plan: HealPlan, staging: Path) -> Sequence[Change]:
    from rmqctl.operations.plan import AddLogFile
    from rmqctl.operations.repair.execute import added_log_file

    store.check_as_it_was(plan.fingerprint)
    return [
        added_log_file(store, change, staging) if isinstance(change, AddLogFile) else change for change in plan.changes
    ]
