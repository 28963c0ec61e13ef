"""`rmqctl warm-up`."""

from __future__ import annotations

import click

from rmqctl.cli.output.render import count_progress
from rmqctl.cli.shared.option_class import kept
from rmqctl.cli.shared.options import progress_option
from rmqctl.cli.shared.verb import EVERY_VERB, Verb
from rmqctl.errors import ExitCode, Unreadable


@click.command(
    cls=Verb,
    exit_codes=(*EVERY_VERB, ExitCode.PARTIAL),
    examples="""
        # in an image, or once before the first cron job
        rmqctl warm-up
        # into a folder that the image keeps
        XDG_CACHE_HOME=/opt/rmqctl/cache rmqctl warm-up
    """,
)
@progress_option
def command() -> int:
    """Compile the code of all verbs once, so that no later run has to compile.

    The compiled code is kept in the user's cache folder. The code is for one user, one type of processor and one
    version of rmqctl. `warm-up` uses all processors, and needs less than a minute on two processors. Without warm-up,
    each verb compiles what it needs at its first run. `warm-up` prints the path of the cache folder.
    """
    from rmqctl.kernels.kernel_cache import find_cache
    from rmqctl.kernels.warm_up_all import warm_up_all

    cache = find_cache()
    if cache is None:
        raise Unreadable(
            "no cache folder in which no other user can put a file",
            hint="set XDG_CACHE_HOME to an absolute path of a folder that only you can write to",
        )
    with count_progress(kept("progress_mode"), "compiling") as on_done:
        left = warm_up_all(cache, on_done)
    if left:
        raise Unreadable(f"not cached: {', '.join(left)}", path=str(cache.path), hint="look whether the disk is full")
    click.echo(cache.path)
    return int(ExitCode.CLEAN)
