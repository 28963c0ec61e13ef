"""`rmqctl schema`."""

from __future__ import annotations

from importlib.resources import files

import click

from rmqctl.cli.shared.verb import Verb
from rmqctl.errors import ExitCode

SUFFIX = ".json"


@click.command(
    cls=Verb,
    examples="""
        # the schema of `rmqctl verify -o json`
        rmqctl schema verify
        # the schema of a job's document
        rmqctl schema job stats
        # the verbs that have a schema
        rmqctl schema
    """,
)
@click.argument("words", nargs=-1, metavar="[VERB]")
def command(words: tuple[str, ...]) -> int:
    """Print the JSON Schema of a verb's JSON document (`-o json`).

    Each line of `-o jsonl` is one element of the list in the JSON document. Without VERB, `schema` lists the verbs that
    print JSON.
    """
    if not words:
        click.echo("\n".join(name.replace(".", " ") for name in _names()))
        return int(ExitCode.CLEAN)
    name = ".".join(words)
    if name not in _names():
        raise click.BadParameter(
            f"no JSON schema for {' '.join(words)!r}; `rmqctl schema` lists them", param_hint="VERB"
        )
    click.echo(files("rmqctl.cli").joinpath("schema", name + SUFFIX).read_text(), nl=False)
    return int(ExitCode.CLEAN)


def _names() -> list[str]:
    """Return the names of the schemas, such as `verify` or `job.stats`."""
    found = files("rmqctl.cli").joinpath("schema").iterdir()
    return sorted(each.name.removesuffix(SUFFIX) for each in found if each.name.endswith(SUFFIX))
