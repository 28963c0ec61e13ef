"""`rmqctl explain`."""

from __future__ import annotations

import click

from rmqctl.cli.output.render import print_fields, print_table
from rmqctl.cli.shared.verb import Verb
from rmqctl.errors import EXIT_CODE_MEANINGS, ExitCode


@click.command(
    cls=Verb,
    examples="""
        # all codes
        rmqctl explain
        # a finding
        rmqctl explain hole
        # an exit code
        rmqctl explain 13
        # what `recover --keep-going` puts in place of what is damaged
        rmqctl explain placeholder
    """,
)
@click.argument("code", required=False)
def command(code: str | None) -> int:
    """Explain a finding, a term or an exit code, and what to do.

    Without CODE, explain lists all of them.
    """
    from rmqctl.forensics.finding import CATALOGUE, TERMS

    if code is None:
        print_table(["FINDING", "MEANING"], [[name, found.meaning] for name, found in CATALOGUE.items()])
        print()
        print_table(["TERM", "MEANING"], [[name, found.meaning] for name, found in TERMS.items()])
        print()
        print_table(
            ["EXIT STATUS", "MEANING"], [[int(number), meaning] for number, meaning in EXIT_CODE_MEANINGS.items()]
        )
        return int(ExitCode.CLEAN)
    if code in CATALOGUE:
        print_fields([("finding", code), ("meaning", CATALOGUE[code].meaning), ("then", CATALOGUE[code].then)])
        return int(ExitCode.CLEAN)
    if code in TERMS:
        print_fields([("term", code), ("meaning", TERMS[code].meaning), ("then", TERMS[code].then)])
        return int(ExitCode.CLEAN)
    if code in {str(int(number)) for number in ExitCode}:
        print_fields([("exit status", code), ("meaning", EXIT_CODE_MEANINGS[ExitCode(int(code))])])
        return int(ExitCode.CLEAN)
    raise click.BadParameter(f"no finding, term or exit code {code!r}; `rmqctl explain` lists them", param_hint="CODE")
