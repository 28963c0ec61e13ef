"""`rmqctl explain`."""

from __future__ import annotations

import click

from rmqctl.cli.render import print_fields, print_table
from rmqctl.cli.verb import Verb
from rmqctl.errors import EXIT_CODE_MEANINGS, ExitCode


@click.command(
    cls=Verb,
    examples=(
        ("rmqctl explain", "all codes"),
        ("rmqctl explain hole", "a finding"),
        ("rmqctl explain 13", "an exit code"),
    ),
)
@click.argument("code", required=False)
def command(code: str | None) -> int:
    """What a finding or an exit code means, and what to do. Without CODE: all of them."""
    from rmqctl.forensics.finding import CATALOGUE

    if code is None:
        print_table(["FINDING", "MEANING"], [[name, found.meaning] for name, found in CATALOGUE.items()])
        print()
        print_table(["EXIT STATUS", "MEANING"], [[int(number), meaning] for number, meaning in EXIT_CODE_MEANINGS.items()])
        return int(ExitCode.CLEAN)
    if code in CATALOGUE:
        print_fields([("finding", code), ("meaning", CATALOGUE[code].meaning), ("then", CATALOGUE[code].then)])
        return int(ExitCode.CLEAN)
    if code in {str(int(number)) for number in ExitCode}:
        print_fields([("exit status", code), ("meaning", EXIT_CODE_MEANINGS[ExitCode(int(code))])])
        return int(ExitCode.CLEAN)
    raise click.BadParameter(f"no finding or exit code {code!r}; `rmqctl explain` lists them", param_hint="CODE")
