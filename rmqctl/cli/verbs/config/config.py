"""`rmqctl config`: the group of the verbs for the folder config/."""

from __future__ import annotations

import os

import click

from rmqctl.cli.verbs.config import restore, set_offset, show

VERBS = {"show": show.command, "set-offset": set_offset.command, "restore": restore.command}


class ConfigVerbs(click.Group):
    """The verbs of `rmqctl config`.

    If the user types a store instead of a verb, the error proposes the verb `show`.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb as click does.

        If the user types an existing path instead of a verb, the error proposes the verb `show`.
        """
        if args and args[0] not in self.commands and os.path.lexists(args[0]):
            ctx.fail("the verb is `rmqctl config show STORE`")
        return super().resolve_command(ctx, args)


@click.group(name="config", cls=ConfigVerbs, commands=VERBS)
def command() -> None:
    """Show or change the broker's configuration in the store (config/*.json)."""
