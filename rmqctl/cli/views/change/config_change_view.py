"""A change of config/: show the plan, ask the user, and make the change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.cli.output.render import print_document
from rmqctl.cli.shared.change import ChangeOptions, PlannedChange, Words, carry_out, journaled

if TYPE_CHECKING:
    from rmqctl.operations.configuration.config_change import ConfigChange
    from rmqctl.store.read.read_only_store import ReadOnlyStore


def change_config(
    store: ReadOnlyStore,
    files: Sequence[ConfigChange],
    document: dict[str, Any],
    show_table: Callable[[dict[str, Any]], None],
    words: Words,
    nothing_to_do: str,
    how: ChangeOptions,
) -> int:
    """Carry out a change of config/, and return the exit code.

    `document` is the plan as a JSON document. The remarks in its key `notes` are also printed on stderr.
    """
    from rmqctl.operations.configuration.config_change import build

    root = store.path.root
    document |= {"actions": [change.to_json() for file in files for change in file.changes(Path())]}

    def show() -> None:
        if how.output == "json":
            print_document("config", {"store": str(root)} | document)
        else:
            show_table(document)

    change = PlannedChange(
        root,
        store.path.commitlogs,
        show,
        words.question,
        partial(journaled, store, words, partial(build, store, files)),
        is_due=bool(files),
        remarks=[f"note: {note}" for note in document["notes"]]
        + ([] if files else [f"nothing to do: {nothing_to_do}"]),
    )
    return carry_out(change, how)
