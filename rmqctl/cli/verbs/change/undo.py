"""`rmqctl undo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.output.render import print_document, print_fields, print_table_of, remark, to_json
from rmqctl.cli.shared.change import ChangeOptions, Commit, PlannedChange, carry_out
from rmqctl.cli.shared.confirm import change_options
from rmqctl.cli.shared.option_class import kept, options_in
from rmqctl.cli.shared.options import conf_of, output_option, store_argument
from rmqctl.cli.shared.verb import CHANGE_VERB, Verb
from rmqctl.errors import ExitCode
from rmqctl.text import quoted

if TYPE_CHECKING:
    from rmqctl.logfile.system.storage import Storage
    from rmqctl.store.journal.journals import JournalEntry


@click.command(
    cls=Verb,
    exit_codes=CHANGE_VERB,
    examples="""
        # show how the newest change is undone, ask, and undo the change
        rmqctl undo store
        # list the changes that can be undone
        rmqctl undo store --list
        # accept the repair: forget the old bytes, and free their disk space
        rmqctl undo store --drop --yes
        # forget the one change whose journal is damaged
        rmqctl undo store --drop-damaged 0002-recover --yes
    """,
)
@store_argument
@click.option(
    "--list", "only_list", is_flag=True, help="List the changes that can be undone, from the oldest to the newest."
)
@click.option(
    "--drop",
    "is_drop",
    is_flag=True,
    help="Forget all changes and delete the old bytes. Forgotten changes can no longer be undone.",
)
@click.option(
    "--drop-damaged",
    metavar="NAME",
    help="Forget the change whose damaged journal is in the folder NAME. --list shows the name of the folder.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Undo the change even if another program has changed the store later. The undo overwrites some changes by "
    "the other program.",
)
@change_options
@output_option("table", "json", "jsonl")
@options_in(how=ChangeOptions)
def command(
    store: Path, only_list: bool, is_drop: bool, drop_damaged: str | None, force: bool, how: ChangeOptions
) -> int:
    """Undo the newest change that rmqctl made in a store, byte for byte.

    When a change deletes or overwrites bytes, rmqctl keeps the old bytes in STORE/.rmqctl until you undo or drop the
    change. `undo` can also undo a change that was interrupted, for example because the process was killed or the disk
    was full.

    Each change has a journal in STORE/.rmqctl. All paths in a journal must be in the store, or in log folders that
    --broker-conf names. A journal counts as damaged if it cannot be read, or if it has a path outside the store and the
    log folders. --list shows damaged journals and exits with 4. While a damaged journal exists, rmqctl begins no new
    change of the store. `undo` can undo a change that is newer than the damaged journal. If a change is finished but
    its journal is damaged, --drop-damaged forgets the change. --drop does not forget damaged journals.

    If a broker or `rmqctl append` has written messages to the store after the change, `undo` would lose these messages.
    If `undo` would lose messages and --force is not given, `undo` changes nothing and exits with 1. `undo` cannot undo
    an append. To remove the appended messages, run `rmqctl truncate STORE --to OFFSET`, where OFFSET is the end of the
    log before the append.

    `undo` exits with 0 if a change was undone or dropped. With --dry-run, `undo` exits with 1 if there is a change to
    undo. While a broker has the store open, `undo --list` works, and `undo` without --list exits with 11.
    """
    if sum((only_list, is_drop, drop_damaged is not None, force)) > 1:
        raise click.UsageError("give only one of --list, --drop, --drop-damaged and --force")
    from rmqctl.store.config.broker_conf import BrokerConf
    from rmqctl.store.config.store_path import StorePath
    from rmqctl.store.journal.journals import check_not_in_use, has_traces, list_journals
    from rmqctl.store.journal.undo import undo_steps

    storage = _storage(store)
    entries = list_journals(storage, store)
    is_touched = has_traces(storage, store)
    if not is_touched:
        StorePath(store, BrokerConf())  # raises NotAStore
    forgets = is_drop or drop_damaged is not None
    chosen = _to_forget(entries, drop_damaged) if forgets else entries[-1:]
    if not only_list:
        check_not_in_use(storage, store)
    if only_list or not is_touched:
        return _list(storage, store, entries, how.output)
    changed = _check_forget(store, entries, chosen) if forgets else _check_undo(storage, chosen, force=force)
    rows = [
        journal_row(storage, entry) | ({} if forgets else {"undo": list(undo_steps(storage, store, entry))})
        for entry in chosen
    ]

    def show() -> None:
        if how.dry_run or how.output == "table":
            print_journals(store, rows, how.output, as_list=forgets)

    def make(commit: Commit) -> str:
        return _drop(storage, rows, drop_damaged, commit) if forgets else _undo(storage, changed, commit, force=force)

    question = f"Forget {names_of(rows)}?" if forgets else f"Take {names_of(rows)} back?"
    code = carry_out(PlannedChange(store, storage.named[1:], show, question, make), how)
    if how.dry_run:
        return code
    if how.output != "table":
        print_journals(
            store, [row | {"state": "dropped" if forgets else "undone"} for row in rows], how.output, as_list=forgets
        )
    return _note_damaged(store, entries) if is_drop else code


def _list(storage: Storage, store: Path, entries: list[JournalEntry], output: str) -> int:
    print_journals(store, [journal_row(storage, entry) for entry in entries], output, as_list=True)
    if not entries:
        cut = f"`rmqctl truncate {quoted(store)} --to OFFSET` cuts off what `append` appended"
        instead = f"what `clean` deleted is only in a copy or on a slave, and {cut}"
        remark(f"nothing to undo: no change by rmqctl is kept in this store; {instead}")
    return _note_damaged(storage.root, entries)


def _note_damaged(store: Path, entries: list[JournalEntry]) -> int:
    """Report on stderr what to do about each damaged journal. Return the exit code."""
    from rmqctl.store.journal.journals import advice

    damaged = [entry for entry in entries if entry.fault is not None]
    for entry in damaged:
        remark(f"{entry.folder.name} is damaged: {advice(store, entry)}")
    return int(ExitCode.PARTIAL if damaged else ExitCode.CLEAN)


def _to_forget(entries: list[JournalEntry], damaged: str | None) -> list[JournalEntry]:
    """Return the journals that --drop or --drop-damaged forgets.

    If `damaged` is None, the result has all undamaged journals. If `damaged` is the name of a folder, the result has
    only the journal in this folder. Raises UsageError if no damaged journal is in the folder `damaged`.
    """
    if damaged is None:
        return [entry for entry in entries if entry.fault is None]
    names = [entry.folder.name for entry in entries if entry.fault is not None]
    if damaged not in names:
        raise click.UsageError(
            f"--drop-damaged: '{damaged}' is not the folder of a damaged journal (there is: "
            f"{', '.join(names) or 'none'})"
        )
    return [entry for entry in entries if entry.folder.name == damaged]


def _check_forget(store: Path, entries: list[JournalEntry], chosen: list[JournalEntry]) -> list[str]:
    """Check that the journals `chosen` can be dropped. Return an empty list.

    Raises NeedsRecovery if a change may be half done. Raises Unreadable if there are only damaged journals.
    """
    from rmqctl.store.journal.journals import check_finished, refusal

    check_finished(store, chosen if chosen and chosen[0].fault is not None else entries)
    if entries and not chosen:
        raise refusal(store, entries[-1])
    return []


def _check_undo(storage: Storage, chosen: list[JournalEntry], *, force: bool) -> list[str]:
    """Return the paths that another program changed after rmqctl's change.

    Without `force`, raises ChangedSince if another program changed a path. Raises Unreadable and OSError.
    """
    from rmqctl.store.journal.journals import changed_since, check_unchanged, refusal

    for entry in chosen:
        if entry.fault is not None:
            raise refusal(storage.root, entry)
        if force:
            return changed_since(storage, storage.root, entry)
        check_unchanged(storage, storage.root, entry)
    return []


def _storage(store: Path) -> Storage:
    from rmqctl.logfile.system.storage import Storage
    from rmqctl.store.config.store_path import named_commitlogs

    found = Storage(store, follow_links=kept("follow_links"))
    for folder in named_commitlogs(store, conf_of(store, kept("broker_conf"))):
        found.trust(folder)
    return found


def _undo(storage: Storage, changed: list[str], commit: Commit, *, force: bool) -> str:
    """Undo the newest change, and return a report as text.

    `changed` has the paths that another program changed after the newest change of rmqctl.
    """
    from rmqctl.logfile.system.writable_storage import WritableStorage
    from rmqctl.store.journal.journals import JournalState, first_of, has_traces, rmqctl_folder
    from rmqctl.store.journal.transaction import undo_last

    store = storage.root
    entry = undo_last(store, WritableStorage.like(storage), force=force, commit=commit)
    if entry is None or entry.state is JournalState.NOT_BEGUN:
        if has_traces(storage, store):
            return (
                f"there is nothing to take back: what lies in {quoted(rmqctl_folder(store))} is not of rmqctl's "
                "making, and stays"
            )
        return "removed what an interrupted rmqctl left; there is nothing to take back"
    summary = f" ({entry.manifest.summary})" if entry.manifest is not None and entry.manifest.summary else ""
    undone = f"undone: {entry.number} {entry.command}{summary}"
    if not changed:
        return f"{undone}; the store is as it was before"
    return (
        f"{undone}; the store was written to since ({first_of(changed)}), and what else that changed stays: "
        f"`rmqctl verify {quoted(store)}` says whether it fits, `rmqctl recover {quoted(store)}` makes it fit"
    )


def _drop(storage: Storage, rows: list[dict[str, Any]], damaged: str | None, commit: Commit) -> str:
    from rmqctl.logfile.system.writable_storage import WritableStorage
    from rmqctl.store.journal.transaction import drop

    dropped = drop(storage.root, WritableStorage.like(storage), damaged=damaged, commit=commit)
    freed = sum(row["keptBytes"] for row in rows)
    return f"dropped: {len(dropped)}, which took {freed} bytes of the disk; they cannot be taken back any more"


def names_of(rows: list[dict[str, Any]]) -> str:
    """Return the numbers and verbs of changes as text, for a question to the user."""
    return ", ".join(f"{row['number']} {row['verb']}" for row in rows) or "what an interrupted rmqctl left"


def journal_row(storage: Storage, entry: JournalEntry) -> dict[str, Any]:
    """Return the row of a change as `rmqctl undo` lists it.

    The row has the number, verb, state, time, kept bytes, summary and changes.
    """
    from rmqctl.format.timestamp import rfc3339
    from rmqctl.store.journal.journals import kept_bytes

    manifest = entry.manifest
    summary = manifest.summary if manifest is not None else ""
    if entry.fault is not None:
        summary = f"{storage.display(Path(entry.fault.path))}: {entry.fault.what}"
    return {
        "number": entry.number,
        "verb": entry.command,
        "folder": entry.folder.name,
        "state": entry.state.value,
        "timestamp": manifest.time_ms if manifest is not None else None,
        "time": rfc3339(manifest.time_ms) if manifest is not None else None,
        "keptBytes": kept_bytes(storage, entry),
        "summary": summary,
        "changes": manifest.changes if manifest is not None else [],
    }


def print_journals(store: Path, rows: list[dict[str, Any]], output: str, *, as_list: bool) -> None:
    """Print changes: with `as_list` as a list, otherwise with their undo steps."""
    if output == "json":
        print_document("undo", {"store": str(store), "journals": rows})
    elif output == "jsonl":
        for row in rows:
            print(to_json(row))
    elif not as_list:
        for row in rows:
            print_fields((name, row[name]) for name in ("number", "verb", "state", "time", "summary"))
            if row["undo"]:
                print("\nto take it back:\n")
                print_table_of(("action", "path", "bytes"), row["undo"])
    elif rows:
        print_table_of(("number", "verb", "state", "time", "keptBytes", "summary"), rows)
