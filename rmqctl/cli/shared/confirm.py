"""The confirmation of a plan, by --yes or at a terminal.

The user sees the plan before the question.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from rmqctl.cli.output.printable import printable
from rmqctl.cli.output.render import print_next, remark
from rmqctl.cli.shared.option_class import kept, together
from rmqctl.cli.shared.options import target_words
from rmqctl.cli.shared.run_as import as_root_option
from rmqctl.cli.shared.verb import flush_output, naming_stdout
from rmqctl.errors import NotConfirmed
from rmqctl.text import quoted

if TYPE_CHECKING:
    from pathlib import Path


change_options = together(
    click.option("--dry-run", is_flag=True, help="Only show the plan, and change nothing."),
    click.option("--yes", is_flag=True, help="Make the change without asking for confirmation."),
    as_root_option,
)


def check_can_ask(*, yes: bool) -> None:
    """Check, before long work, that a user will be able to confirm the change.

    Raises NotConfirmed if --yes is not given and no user can answer at a terminal.
    """
    if not yes and not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        raise NotConfirmed("not confirmed, nothing was changed", hint="pass --yes to confirm")


def confirm(question: str, *, yes: bool, typed: int | None = None) -> None:
    """Ask the user whether to execute the plan. With `yes`, do not ask.

    With `typed`, the answer must be this number.

    Raises NotConfirmed if the answer is no, or if no user can answer.
    """
    if yes:
        return
    check_can_ask(yes=yes)
    try:
        if typed is None:
            answer = click.confirm(printable(question), err=True)
        else:
            told = f"{printable(question)} Type {typed} to go on"
            answer = click.prompt(told, default="", show_default=False, err=True).strip() == str(typed)
    except click.Abort:  # Ctrl-C
        remark("nothing was changed")
        raise
    if not answer:
        raise NotConfirmed("not confirmed, nothing was changed")


@contextmanager
def plan_shown(*, dry_run: bool) -> Iterator[None]:
    """Flush stdout after the block has printed the plan.

    If stdout is closed and `dry_run` is False, stderr reports that nothing was changed.
    """
    try:
        with naming_stdout():
            yield
        flush_output()
    except BrokenPipeError:
        if not dry_run:
            remark("nothing was changed: stdout was closed before the plan was printed")
        raise


def print_next_step(output: str, first: str = "") -> None:
    """Print the command that carries out a plan, or what to do `first`."""
    if output == "table":
        typed = [word for word in click.get_current_context().obj or () if word not in ("--dry-run", "--yes")]
        print_next(first or " ".join(map(quoted, ("rmqctl", *typed, "--yes"))))


def undo_hint(store: Path) -> str:
    """Return the text that proposes the undo command after a change.

    The proposed command repeats the user's options --broker-conf, --follow-links and --as-root.
    """
    return f"`rmqctl undo {target_words(store)}{' --as-root' if kept('as_root') else ''}` takes it back"
