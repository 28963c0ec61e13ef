"""`rmqctl undo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.confirm import change_options, confirm
from rmqctl.cli.interruption import Interruption
from rmqctl.cli.options import output_option
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
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--list", "only_list", is_flag=True, help="List the changes that can be taken back, the oldest first.")
@click.option("--drop", "is_drop", is_flag=True, help="Forget all changes: they cannot be taken back any more.")
@click.option("--force", is_flag=True, help="Undo although the store was written to since; that is lost.")
@change_options
@output_option("table", "json", "jsonl")
def command(store: Path, only_list: bool, is_drop: bool, force: bool, yes: bool, dry_run: bool, output: str) -> int:
    """Take back the newest change that rmqctl made in a store, byte for byte.

    What a change deletes or overwrites is kept in STORE/.rmqctl until it is undone or dropped; after the last one nothing of that
    is left. A change that was left half done (the process was killed, the disk was full) is taken back the same way.

    Where a broker or `rmqctl append` wrote to the store since, an undo would lose that: it is refused (exit 1).
    """
    if sum((only_list, is_drop, force)) > 1:
        raise click.UsageError("--list, --drop and --force do not go together")
    from rmqctl.logfile.storage import Storage
    from rmqctl.store.journals import check_none_unfinished, check_not_in_use, check_unchanged, list_journals, rmqctl_folder

    storage = Storage(store)
    entries = list_journals(storage, store)
    has_traces = storage.stamp(rmqctl_folder(store)) is not None
    if not has_traces:
        _check_is_store(store)
    shown = entries if only_list or is_drop else entries[-1:]
    _print(storage, shown, output, with_changes=not (only_list or is_drop))
    if only_list:
        return int(ExitCode.CLEAN)
    if not has_traces:
        remark("nothing to undo: no change by rmqctl is kept here")
        return int(ExitCode.CLEAN)
    if is_drop:
        check_none_unfinished(storage, store)
    elif shown and not force:
        check_unchanged(storage, store, shown[0])
    if dry_run:
        return int(ExitCode.FINDINGS)
    check_not_in_use(storage, store)
    confirm("Forget them?" if is_drop else "Take it back?", yes=yes)
    with Interruption():
        remark(_drop(store) if is_drop else _undo(store, force=force))
    return int(ExitCode.CLEAN)


def _undo(store: Path, *, force: bool) -> str:
    from rmqctl.logfile.writable_storage import WritableStorage
    from rmqctl.store.journal import undo_last
    from rmqctl.store.journals import JournalState

    entry = undo_last(store, WritableStorage(store), force=force)
    if entry is None or entry.state is JournalState.NOT_BEGUN:
        return "removed what an interrupted rmqctl left; there is nothing to take back"
    return f"undone: {_named(entry)}; the store is as it was before"


def _drop(store: Path) -> str:
    from rmqctl.logfile.writable_storage import WritableStorage
    from rmqctl.store.journal import drop

    return f"dropped: {len(drop(store, WritableStorage(store)))}"


def _check_is_store(store: Path) -> None:
    from rmqctl.store.config import BrokerConf
    from rmqctl.store.store_path import StorePath

    StorePath(store, BrokerConf())


def _named(entry: JournalEntry) -> str:
    return f"{entry.number} {entry.verb}"


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


def _print(storage: Storage, entries: list[JournalEntry], output: str, *, with_changes: bool) -> None:
    rows = [_row(storage, entry) for entry in entries]
    if output == "json":
        print_document("undo", {"journals": rows})
    elif output == "jsonl":
        for row in rows:
            print(to_json(row))
    elif with_changes:
        for row in rows:
            fields = ("number", "verb", "state", "time", "summary")
            print_fields((name, row[name]) for name in fields)
            _print_changes(row["changes"])
    elif rows:
        names = ("number", "verb", "state", "time", "keptBytes", "summary")
        print_table([name.upper() for name in names], [[row[name] for name in names] for row in rows])


def _print_changes(changes: list[dict[str, Any]]) -> None:
    names = ("action", "path", "fileOffset", "bytes")
    if changes:
        print()
        print_table([name.upper() for name in names], [[change.get(name) for name in names] for change in changes])
