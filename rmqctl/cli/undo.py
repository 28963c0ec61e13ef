"""`rmqctl undo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.confirm import change_options, confirm, plan_shown
from rmqctl.cli.interruption import ChangeInterruption
from rmqctl.cli.options import LocalPath, output_option
from rmqctl.cli.render import print_document, print_fields, print_table, remark, to_json
from rmqctl.cli.verb import CHANGE_VERB, Verb
from rmqctl.errors import ExitCode

if TYPE_CHECKING:
    from rmqctl.logfile.storage import Storage
    from rmqctl.store.journals import JournalEntry


@click.command(
    cls=Verb,
    exit_codes=CHANGE_VERB,
    examples=(
        ("rmqctl undo store", "take the newest change back, after a look at what that means"),
        ("rmqctl undo store --list", "what rmqctl changed in this store and can take back"),
        ("rmqctl undo store --drop --yes", "the repair is good: forget what was before, and free its space"),
    ),
)
@click.argument("store", type=LocalPath())
@click.option("--list", "only_list", is_flag=True, help="List the changes that can be taken back, the oldest first.")
@click.option("--drop", "is_drop", is_flag=True, help="Forget all changes: they cannot be taken back any more.")
@click.option("--force", is_flag=True, help="Undo although the store was written to since: part of that is lost.")
@change_options
@output_option("table", "json", "jsonl")
def command(store: Path, only_list: bool, is_drop: bool, force: bool, yes: bool, dry_run: bool, output: str) -> int:
    """Take back the newest change that rmqctl made in a store, byte for byte.

    What a change deletes or overwrites is kept in STORE/.rmqctl until it is undone or dropped; after the last one nothing of that
    is left. A change that was left half done (the process was killed, the disk was full) is taken back the same way.

    An append is not undone: `rmqctl truncate STORE --to OFFSET` ends the log where it ended before.

    Where a broker or `rmqctl append` wrote to the store since, an undo would lose that: it is refused (exit 1).

    Exit 0: undone, or dropped; 1: with --dry-run, where there is something to take back. While a broker has the store open there is
    only --list (else exit 11).
    """
    if sum((only_list, is_drop, force)) > 1:
        raise click.UsageError("--list, --drop and --force do not go together")
    from rmqctl.logfile.storage import Storage
    from rmqctl.store.journals import changed_since, check_none_unfinished, check_not_in_use, check_unchanged, has_traces, list_journals

    storage = Storage(store)
    entries = list_journals(storage, store)
    is_touched = has_traces(storage, store)
    if not is_touched:
        _check_is_store(store)
    if only_list or not is_touched:
        _print(_rows(storage, entries), output, as_list=True)
        if not entries:
            remark("nothing to undo: no change by rmqctl is kept here")
        return int(ExitCode.CLEAN)
    check_not_in_use(storage, store)
    changed: list[str] = []
    if is_drop:
        check_none_unfinished(storage, store)
    elif entries and force:
        changed = changed_since(storage, store, entries[-1])
    elif entries:
        check_unchanged(storage, store, entries[-1])
    rows = _rows(storage, entries) if is_drop else [_row(storage, entry) | _steps(storage, store, entry) for entry in entries[-1:]]
    if dry_run or output == "table":
        with plan_shown(dry_run=dry_run):
            _print(rows, output, as_list=is_drop)
    if dry_run:
        return int(ExitCode.FINDINGS)
    confirm(f"Forget {_names(rows)}?" if is_drop else f"Take {_names(rows)} back?", yes=yes)
    with ChangeInterruption() as interruption:
        said = _drop(store, rows, interruption) if is_drop else _undo(store, changed, interruption, force=force)
    remark(said)
    if output != "table":
        _print([row | {"state": "dropped" if is_drop else "undone"} for row in rows], output, as_list=is_drop)
    return int(ExitCode.CLEAN)


def _undo(store: Path, changed: list[str], interruption: ChangeInterruption, *, force: bool) -> str:
    """Take the newest change back; `changed` are the paths that were written to since, with `force`."""
    from rmqctl.logfile.writable_storage import WritableStorage
    from rmqctl.store.journal import undo_last
    from rmqctl.store.journals import JournalState, first_of

    entry = undo_last(store, WritableStorage(store), force=force, commit=interruption.commit)
    if entry is None or entry.state is JournalState.NOT_BEGUN:
        return "removed what an interrupted rmqctl left; there is nothing to take back"
    undone = f"undone: {entry.number} {entry.verb}"
    if not changed:
        return f"{undone}; the store is as it was before"
    return (
        f"{undone}; the store was written to since ({first_of(changed)}), and what else that changed stays: "
        f"`rmqctl verify {store}` says whether it fits, `rmqctl recover {store}` makes it fit"
    )


def _drop(store: Path, rows: list[dict[str, Any]], interruption: ChangeInterruption) -> str:
    from rmqctl.logfile.writable_storage import WritableStorage
    from rmqctl.store.journal import drop

    dropped = drop(store, WritableStorage(store), commit=interruption.commit)
    freed = sum(row["keptBytes"] for row in rows)
    return f"dropped: {len(dropped)}, which took {freed} bytes of the disk; they cannot be taken back any more"


def _check_is_store(store: Path) -> None:
    from rmqctl.store.config import BrokerConf
    from rmqctl.store.store_path import StorePath

    StorePath(store, BrokerConf())


def _names(rows: list[dict[str, Any]]) -> str:
    return ", ".join(f"{row['number']} {row['verb']}" for row in rows) or "what an interrupted rmqctl left"


def _rows(storage: Storage, entries: list[JournalEntry]) -> list[dict[str, Any]]:
    return [_row(storage, entry) for entry in entries]


def _steps(storage: Storage, store: Path, entry: JournalEntry) -> dict[str, Any]:
    from rmqctl.store.undo_steps import undo_steps

    return {"undo": undo_steps(storage, store, entry)}


def _row(storage: Storage, entry: JournalEntry) -> dict[str, Any]:
    from rmqctl.format.timestamp import rfc3339
    from rmqctl.store.journals import kept_bytes

    manifest = entry.manifest
    return {
        "number": entry.number,
        "verb": entry.verb,
        "state": entry.state.value,
        "timestamp": manifest.time_ms if manifest is not None else None,
        "time": rfc3339(manifest.time_ms) if manifest is not None else None,
        "keptBytes": kept_bytes(storage, entry),
        "summary": manifest.summary if manifest is not None else "",
        "changes": manifest.changes if manifest is not None else [],
    }


def _print(rows: list[dict[str, Any]], output: str, *, as_list: bool) -> None:
    """All of them as a list; or what is going to be taken back, and how."""
    if output == "json":
        print_document("undo", {"journals": rows})
    elif output == "jsonl":
        for row in rows:
            print(to_json(row))
    elif not as_list:
        for row in rows:
            fields = ("number", "verb", "state", "time", "summary")
            print_fields((name, row[name]) for name in fields)
            _print_steps(row["undo"])
    elif rows:
        names = ("number", "verb", "state", "time", "keptBytes", "summary")
        print_table([name.upper() for name in names], [[row[name] for name in names] for row in rows])


def _print_steps(steps: list[dict[str, Any]]) -> None:
    if steps:
        print("\nto take it back:\n")
        print_table(["ACTION", "PATH", "BYTES"], [[step["action"], step["path"], step.get("bytes")] for step in steps])
