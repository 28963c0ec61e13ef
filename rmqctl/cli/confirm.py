"""A plan is shown, then somebody says yes: with --yes, or at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rmqctl.cli.printable import printable
from rmqctl.errors import NotConfirmed

F = TypeVar("F", bound=Callable[..., Any])


def change_options(command: F) -> F:
    """--yes and --dry-run."""
    command = click.option("--yes", is_flag=True, help="Do it without asking.")(command)
    return click.option("--dry-run", is_flag=True, help="Only show what would be done.")(command)


def check_can_ask(*, yes: bool) -> None:
    """Before long work that ends with a question. Raises NotConfirmed where nobody can be asked."""
    if not yes and not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        raise NotConfirmed("not confirmed, nothing was changed", hint="--yes does it without asking")


def confirm(question: str, *, yes: bool) -> None:
    """Whether what was shown is to be done. Raises NotConfirmed, also where nobody can be asked."""
    if yes:
        return
    sys.stdout.flush()
    check_can_ask(yes=yes)
    if not click.confirm(printable(question), err=True):
        raise NotConfirmed("not confirmed, nothing was changed")
