"""`rmqctl erase`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.cli.output.render import print_document
from rmqctl.cli.shared.change import Commit, LogChangeOptions, PlannedChange, carry_out
from rmqctl.cli.shared.confirm import change_options, undo_hint
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import (
    LocalPath,
    one_word,
    open_store,
    output_option,
    profile_option,
    scan_options,
    scan_progress,
    store_argument,
)
from rmqctl.cli.shared.verb import Verb
from rmqctl.cli.views.change.erase_view import print_plan, remarks_of
from rmqctl.cli.views.change.repair_view import REPAIR_VERB, check_writable
from rmqctl.errors import BadRequest, ExitCode, Unreadable
from rmqctl.text import counted

if TYPE_CHECKING:
    from rmqctl.format.profile import Profile
    from rmqctl.operations.erase.plan import ErasePlan, Erasure, Wanted
    from rmqctl.store.read.read_only_store import ReadOnlyStore


@dataclass(frozen=True)
class EraseOptions:
    """The options of `rmqctl erase`."""

    key: str | None
    unique_key: str | None
    match: str | None
    offsets: Path | None
    keep_undo: bool
    drop_journals: bool


@click.command(
    cls=Verb,
    exit_codes=REPAIR_VERB,
    examples="""
        # show every copy of the messages with a key, and what else has their bytes
        rmqctl erase store --key customer-4711 --dry-run
        # erase them; on a terminal, this asks for the number of records
        rmqctl erase store --key customer-4711
        # every message with an address in its body, its keys or its properties
        rmqctl erase store --match alice@example.com --yes
        # those of a file: a physical offset a line, or lines of dump -o jsonl
        rmqctl erase store --offsets offsets.txt --drop-journals --yes
    """,
)
@store_argument
@click.option("--key", callback=one_word, help="The messages with this word in their KEYS, or with this UNIQ_KEY.")
@click.option("--unique-key", help="The message with this UNIQ_KEY.")
@click.option("--match", metavar="TEXT", help="The messages with TEXT in their body, keys or properties.")
@click.option(
    "--offsets",
    metavar="FILE",
    type=LocalPath(),
    help="The records at these physical offsets: one a line, or lines of `dump -o jsonl`.",
)
@click.option("--keep-undo", is_flag=True, help="Keep the bytes in the store, so that `rmqctl undo` takes this back.")
@click.option(
    "--drop-journals",
    is_flag=True,
    help="Overwrite and remove the journals of all earlier changes, if one has the bytes: these changes can no longer "
    "be undone.",
)
@profile_option("Write the index as brokers of this version do.")
@change_options
@output_option("table", "json")
@scan_options
@options_in(asked=EraseOptions, how=LogChangeOptions)
def command(store: Path, profile: Profile | None, asked: EraseOptions, how: LogChangeOptions) -> int:
    """Erase messages for good: every copy, their keys, and what is left of them.

    A copy is a record with the same UNIQ_KEY (half message, delayed, retry, dead letter, timer, in compaction/), or
    what a client traced of it, with all that is in the same trace message. Each is written over in its place with a
    record of the same size, which keeps queue offset, physical offset, times, hosts, and the properties that brokers
    need. Body, keys, tags and user properties are gone. Units lose the hash of the tags, and the index is built anew.
    Brokers serve the record: consumers of all tags receive it, with the property RMQCTL_DAMAGED=erased and a body of
    JSON and blanks; consumers of one tag do not. An op message stays: it has only a number.

    Then no file of the store has the body, the UNIQ_KEY or a key of an erased message. Behind the log's end, behind
    blanks and in damage, what equals one of them becomes zeros, also a piece of 16 bytes or more. Where another message
    or another file has one (a copy that somebody made, a configuration), it stays, `erase` names the place, and exits
    with 4: not complete. What goes on with a letter or a digit is another text (order-7 is no part of order-71), except
    for the TEXT of --match. A text of fewer than 8 bytes is searched in records alone.

    The bytes that are written over are kept until all is on the disk; then they are overwritten and removed, and
    `rmqctl undo` cannot bring them back, unless --keep-undo is given. If the process ends before, `rmqctl undo` takes
    the change back, and you start again. If an earlier change of rmqctl keeps the bytes, `erase` changes nothing and
    exits with 4; --drop-journals overwrites and removes all earlier journals. What file systems and disks keep of
    overwritten bytes (snapshots, copies on write, spare blocks), other slaves and backups is not in reach.

    `erase` exits with 0 if nothing was found, with 3 if all was erased, and with 4 if something remains; with
    --dry-run, with 1 if there is something to erase. While a broker has STORE open, `erase` exits with 11.
    """
    from rmqctl.operations.erase.plan import Erasure

    opened = open_store(store)
    check_writable(opened, refills=True)
    erasure = Erasure(opened, _wanted(asked), profile, how.threads)
    warmed_up(erasure.warm_up)
    with scan_progress(opened, "erase"):
        plan = erasure.plan()
    if plan.journals and not asked.drop_journals:
        what = f"the journal of an earlier change has the bytes: {', '.join(plan.journals)}; nothing was changed"
        raise Unreadable(what, path=str(store), hint="--drop-journals removes it: that change cannot be undone then")

    def show() -> None:
        if how.output == "json":
            print_document("erase", {"store": str(store)} | plan.to_json())
        else:
            print_plan(plan)

    def make(commit: Commit) -> str:
        return _erase(opened, erasure, plan, asked, commit)

    change = PlannedChange(
        opened.path.root,
        opened.path.commitlogs,
        show,
        f"Erase {counted(len(plan.copies), 'record')} of {store}?",
        make,
        is_due=plan.is_due,
        remarks=remarks_of(plan, keeps_undo=asked.keep_undo),
        code=ExitCode.PARTIAL if plan.remains_count else ExitCode.REPAIRED if plan.is_due else ExitCode.CLEAN,
        typed=len(plan.copies),
    )
    return carry_out(change, how)


def _wanted(asked: EraseOptions) -> Wanted:
    from rmqctl.operations.erase.plan import Wanted

    given = (asked.key, asked.unique_key, asked.match, asked.offsets)
    if sum(value is not None for value in given) != 1 or "" in given:
        raise click.UsageError("give one of --key, --unique-key, --match and --offsets")
    offsets = None if asked.offsets is None else tuple(sorted(_offsets_in(asked.offsets)))
    if offsets == ():
        raise BadRequest(f"{asked.offsets} has no physical offset")
    return Wanted(asked.key, asked.unique_key, asked.match, offsets)


def _offsets_in(path: Path) -> set[int]:
    try:
        with path.open("rb") as lines:
            return {
                _offset_of(line, f"line {number} of {path}") for number, line in enumerate(lines, 1) if line.strip()
            }
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}", path=str(path)) from error


def _offset_of(line: bytes, where: str) -> int:
    try:
        value = json.loads(line)
        value = value["physicalOffset"] if isinstance(value, dict) else value
    except (ValueError, KeyError, RecursionError):
        value = None
    if type(value) is not int or not 0 <= value < 2**63:
        raise BadRequest(f"{where} is no physical offset, and no line of `dump -o jsonl`")
    return value


def _erase(store: ReadOnlyStore, erasure: Erasure, plan: ErasePlan, asked: EraseOptions, commit: Commit) -> str:
    from rmqctl.logfile.system.writable_storage import WritableStorage
    from rmqctl.store.journal.journals import ERASE_VERB
    from rmqctl.store.journal.transaction import drop_others, make_change

    def commit_and_drop() -> None:
        commit()
        if plan.journals:
            drop_others(store.path.root, WritableStorage.like(store.storage))

    summary = f"{counted(len(plan.copies), 'record')} erased"
    is_kept = asked.keep_undo and bool(plan.copies or plan.zeros)
    make_change(store, ERASE_VERB, summary, partial(erasure.changes, plan), commit_and_drop, is_kept=is_kept)
    return f"{summary}; {undo_hint(store.path.root) if is_kept else 'nothing brings them back'}"
