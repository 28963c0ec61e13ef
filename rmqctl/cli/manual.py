"""The man pages, made from the commands: `python -m rmqctl.cli.manual FOLDER` writes them; a test compares them."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import click

from rmqctl import __version__
from rmqctl.cli.main import VERBS, rmqctl
from rmqctl.cli.shared.run_as import WHICH_USER, WHICH_USER_DRY_RUN, takes_as_root
from rmqctl.cli.shared.verb import Verb
from rmqctl.errors import EXIT_CODE_MEANINGS, ExitCode


def pages() -> dict[str, str]:
    """File name -> roff source of every page: rmqctl(1), and one a verb."""
    context = click.Context(rmqctl, info_name="rmqctl", **rmqctl.context_settings)
    found = {"rmqctl.1": _page("rmqctl", rmqctl, context)}
    for name in rmqctl.list_commands(context):
        command = rmqctl.get_command(context, name)
        if isinstance(command, click.Group):
            for inner, verb in command.commands.items():
                found[f"rmqctl-{name}-{inner}.1"] = _page(f"rmqctl {name} {inner}", verb, context)
        elif command is not None:
            found[f"rmqctl-{name}.1"] = _page(f"rmqctl {name}", command, context)
    return found


def _page(name: str, command: click.Command, parent: click.Context) -> str:
    settings = command.context_settings  # a context made by hand does not take them itself
    context = click.Context(command, info_name=name, parent=None if command is rmqctl else parent, **settings)
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    summary = paragraphs[0].split("\n")[0].rstrip(".?")
    parts = [
        f'.TH "{name.upper().replace(" ", "-")}" "1" "" "rmqctl {__version__}" "rmqctl"',
        _section("NAME", f"{_text(name.replace(' ', '-'))} \\- {_text(summary)}"),
        _section("SYNOPSIS", f"\\fB{_text(name)}\\fR {_text(' '.join(command.collect_usage_pieces(context)))}"),
        _section("DESCRIPTION", "\n.PP\n".join(_text(" ".join(paragraph.split())) for paragraph in paragraphs)),
        _section("OPTIONS", "\n".join(_options(command, context))),
    ]
    if takes_as_root(command):
        takes_dry_run = any("--dry-run" in parameter.opts for parameter in command.params)
        texts = (*WHICH_USER, WHICH_USER_DRY_RUN) if takes_dry_run else WHICH_USER
        parts.append(_section("WHICH USER TO RUN AS", "\n.PP\n".join(_text(text) for text in texts)))
    parts.append(
        _section(
            "EXAMPLES",
            "\n".join(f".TP\n{_text(what)}:\n\\fB{_text(line)}\\fR" for line, what in _examples(command, context)),
        )
    )
    if command is rmqctl:
        parts.append(
            _section(
                "VERBS", "\n".join(f".TP\n\\fB{_text(verb)}\\fR\n{_text(text)}" for verb, (_, text) in VERBS.items())
            )
        )
    codes = command.exit_codes if isinstance(command, Verb) else tuple(ExitCode)
    parts.append(
        _section(
            "EXIT STATUS", "\n".join(f".TP\n\\fB{int(code)}\\fR\n{_text(EXIT_CODE_MEANINGS[code])}" for code in codes)
        )
    )
    if command is not rmqctl:
        parts.append(_section("SEE ALSO", "\\fBrmqctl\\fR(1)"))
    return "\n".join(parts) + "\n"


def _examples(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    """Return a verb's own; for rmqctl(1) the first of each verb."""
    if isinstance(command, Verb):
        return list(command.examples)
    verbs = [rmqctl.get_command(context, name) for name in VERBS]
    return [verb.examples[0] for verb in verbs if isinstance(verb, Verb)]


def _options(command: click.Command, context: click.Context) -> list[str]:
    records = [
        parameter.get_help_record(context)
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option)
    ]
    return [f".TP\n\\fB{_text(names)}\\fR\n{_text(' '.join(text.split()))}" for names, text in filter(None, records)]


def _section(title: str, body: str) -> str:
    return f".SH {title}\n{body}"


def _text(text: str) -> str:
    """Text with what roff would take for a command made harmless."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def main() -> None:
    """Write the pages into the folder named on the command line."""
    folder = Path(sys.argv[1])
    for name, source in pages().items():
        (folder / name).write_text(source)


if __name__ == "__main__":
    main()
