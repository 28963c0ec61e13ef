"""`rmqctl completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from rmqctl.cli.shared.verb import Verb
from rmqctl.errors import ExitCode


@click.command(
    cls=Verb,
    examples="""
        # for all users of bash
        rmqctl completion bash > /etc/bash_completion.d/rmqctl
        # for zsh, where ~/.zfunc is in fpath
        rmqctl completion zsh > ~/.zfunc/_rmqctl
        # for fish
        rmqctl completion fish > ~/.config/fish/completions/rmqctl.fish
    """,
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def command(shell: str) -> int:
    """Print a script that adds completion of verbs, options and paths to a shell."""
    from rmqctl.cli.main import rmqctl

    found = get_completion_class(shell)
    if found is None:
        raise click.BadParameter(f"click does not complete for {shell}", param_hint="SHELL")
    click.echo(found(rmqctl, {}, "rmqctl", "_RMQCTL_COMPLETE").source())
    return int(ExitCode.CLEAN)
