"""A change of config/: show the plan, ask the user, and make the change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.cli.output.render import print_document, remark
from rmqctl.cli.shared.confirm import confirm, plan_shown, undo_hint
from rmqctl.cli.shared.interruption import ChangeInterruption
from rmqctl.cli.shared.run_as import act_as_owner, note_owner
from rmqctl.errors import ExitCode

if TYPE_CHECKING:
    from rmqctl.operations.configuration.config_change import ConfigChange
    from rmqctl.store.read.read_only_store import ReadOnlyStore


@dataclass(frozen=True)
class ConfigRun:
    """The common options of the verbs that change config/."""

    dry_run: bool
    yes: bool
    output: str


@dataclass(frozen=True)
class Words:
    """The texts that a verb of `rmqctl config` shows, and the name of the verb."""

    verb: str
    nothing_to_do: str
    question: str
    done: str


def check_writable(store: ReadOnlyStore) -> None:
    """Check that rmqctl may change a file in config/ now.

    Raises StoreInUse, NeedsRecovery, LayoutNotSupported, Unreadable and OSError.
    """
    from rmqctl.store.journal.journals import check_none_unfinished, check_not_in_use

    check_not_in_use(store.storage, store.path.root)
    check_none_unfinished(store.storage, store.path.root)
    store.path.check_can_be_changed()


def carry_out(
    store: ReadOnlyStore,
    files: Sequence[ConfigChange],
    document: dict[str, Any],
    show: Callable[[dict[str, Any]], None],
    summary: str,
    words: Words,
    how: ConfigRun,
) -> int:
    """Show the plan, ask the user, change the files, and return the exit code.

    `document` is the plan as a JSON document. `show` prints the plan as a table. The remarks in the key `notes` of the
    document are printed on stderr.
    """
    from rmqctl.operations.configuration import config_change

    root = store.path.root
    document |= {"actions": [change.to_json() for file in files for change in file.changes(Path())]}
    with plan_shown(dry_run=how.dry_run):
        if how.output == "json":
            print_document("config", {"store": str(root)} | document)
        else:
            show(document)
    for note in document["notes"]:
        remark(f"note: {note}")
    if not files:
        remark(f"nothing to do: {words.nothing_to_do}")
        return int(ExitCode.CLEAN)
    if how.dry_run:
        note_owner(root, store.path.commitlogs)
        return int(ExitCode.FINDINGS)
    confirm(words.question, yes=how.yes)
    with ChangeInterruption() as interruption:
        act_as_owner(root, store.path.commitlogs)
        config_change.carry_out(store, files, words.verb, summary, interruption.commit)
    remark(f"{words.done}; {undo_hint(root)}")
    return int(ExitCode.CLEAN)
