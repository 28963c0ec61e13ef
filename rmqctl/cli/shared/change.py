"""From a plan to a changed store: show, ask, change, and say what was done.

`clean` and `replicate` keep no journal and stop at any signal. `rebuild` asks when the new files are built, and
`append` does not ask. These four go their own way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.cli.output.render import remark
from rmqctl.cli.shared.confirm import confirm, plan_shown, print_next_step, undo_hint
from rmqctl.cli.shared.interruption import ChangeInterruption
from rmqctl.cli.shared.run_as import act_as_owner, note_owner
from rmqctl.errors import ExitCode

if TYPE_CHECKING:
    from rmqctl.store.journal.changes import Change
    from rmqctl.store.read.read_only_store import ReadOnlyStore

Commit = Callable[[], None]


@dataclass(frozen=True)
class ChangeOptions:
    """The options of every change."""

    dry_run: bool
    yes: bool
    output: str


@dataclass(frozen=True)
class LogChangeOptions(ChangeOptions):
    """The options of a change that reads the log."""

    threads: int


class Words(NamedTuple):
    """The texts of a change that is kept in a journal."""

    verb: str  # is part of the name of the journal
    summary: str  # `undo --list` shows it
    question: str
    done: str


@dataclass(frozen=True)
class PlannedChange:
    """A change that is planned, for `carry_out`."""

    root: Path
    logs: Sequence[Path]  # the folders of the log, which may be outside `root`
    show: Callable[[], None]  # prints the plan on stdout
    question: str
    make: Callable[[Commit], str]  # calls its argument before the first file changes; returns what was done
    is_due: bool = True  # False if the plan has nothing to do
    remarks: Iterable[str] = ()  # for stderr, after the plan
    code: ExitCode = ExitCode.CLEAN  # the exit code, unless --dry-run shows a change that is due
    first: str = ""  # the command to look at before the change
    typed: int | None = None  # the user types this number in place of yes
    warm_up: Callable[[], None] = lambda: None  # as the first user: the owner may have no right to the cached kernels


def check_may_change(store: ReadOnlyStore, *, log_stays: bool = False) -> None:
    """Check, before the plan, that rmqctl may change the store now.

    Raises StoreInUse, NeedsRecovery, LayoutNotSupported, BadRequest, Unreadable and OSError.
    """
    from rmqctl.store.journal.journals import check_none_unfinished, check_not_in_use

    check_not_in_use(store.storage, store.path.root)
    check_none_unfinished(store.storage, store.path.root)
    store.path.check_can_be_changed(log_stays=log_stays, refills=log_stays)


def carry_out(change: PlannedChange, how: ChangeOptions) -> int:
    """Show the plan, make the change if the user wants it, and return the exit code."""
    with plan_shown(dry_run=how.dry_run):
        change.show()
    for line in change.remarks:
        remark(line)
    if not change.is_due:
        return int(change.code)
    if how.dry_run:
        note_owner(change.root, change.logs)
        print_next_step(how.output, change.first)
        return int(ExitCode.FINDINGS)
    confirm(change.question, yes=how.yes, typed=change.typed)
    change.warm_up()
    with ChangeInterruption() as interruption:
        act_as_owner(change.root, change.logs)
        done = change.make(interruption.commit)
    remark(done)
    return int(change.code)


def journaled(store: ReadOnlyStore, words: Words, build: Callable[[Path], Sequence[Change]], commit: Commit) -> str:
    """Make a change that `undo` takes back.

    Returns `words.done`, and the command that takes the change back.
    """
    from rmqctl.store.journal.transaction import make_change

    make_change(store, words.verb, words.summary, build, commit)
    return f"{words.done}; {undo_hint(store.path.root)}"
