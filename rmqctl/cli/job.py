"""`rmqctl job NAME`."""

from __future__ import annotations

import click

from rmqctl.cli.jobs import rebuild, verify

JOBS = {
    "verify": verify.command,
    "rebuild": rebuild.command,
}


@click.group(name="job", context_settings={"help_option_names": ["-h", "--help"]}, commands=JOBS)
def command() -> None:
    """The same questions on Spark: to stores that one machine is too small for."""
