"""The output of `rmqctl undo`: lists of changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.cli.output.render import print_document, print_fields, print_table, to_json

if TYPE_CHECKING:
    from rmqctl.logfile.system.storage import Storage
    from rmqctl.store.journal.journals import JournalEntry


def names_of(rows: list[dict[str, Any]]) -> str:
    """Return the numbers and verbs of changes as text, for a question to the user."""
    return ", ".join(f"{row['number']} {row['verb']}" for row in rows) or "what an interrupted rmqctl left"


def journal_rows(storage: Storage, entries: list[JournalEntry]) -> list[dict[str, Any]]:
    """Return one row for each change that has a journal."""
    return [journal_row(storage, entry) for entry in entries]


def steps_of(storage: Storage, store: Path, entry: JournalEntry) -> dict[str, Any]:
    """Return the key `undo` of a row, with the steps that undo the change."""
    from rmqctl.store.journal.undo import undo_steps

    return {"undo": list(undo_steps(storage, store, entry))}


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
