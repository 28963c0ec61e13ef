"""The man pages: `python -m rmqctl.cli.manual FOLDER` writes them.

The man pages of section 1 are made from the commands. The man pages of section 7 are made from the texts in topics/ and
from docstrings of the code. A test compares the pages with man/.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from itertools import groupby, pairwise
from pathlib import Path

import click

from rmqctl import __version__
from rmqctl.cli.main import VERB_GROUPS, VERBS, rmqctl
from rmqctl.cli.shared.run_as import WHICH_USER, WHICH_USER_DRY_RUN, takes_as_root
from rmqctl.cli.shared.verb import Verb
from rmqctl.errors import EXIT_CODE_MEANINGS

TOPICS = {
    "rmqctl-store": ("info", "verify", "dump", "queue", "query", "config", "checkpoint"),
    "rmqctl-recovery": ("recover", "heal", "salvage", "truncate", "rebuild", "undo", "checkpoint", "append"),
    "rmqctl-clean": ("clean",),
    "rmqctl-spark": ("job",),
    "rmqctl-python": (),
    "rmqctl-benchmarks": (),
}  # pages of section 7, and the verbs that refer to them
_ITEM = re.compile(r"(-|\d+\.) ")


def pages() -> dict[str, str]:
    """Return the roff source of every man page, by the page's file name."""
    context = click.Context(rmqctl, info_name="rmqctl", **rmqctl.context_settings)
    found = {"rmqctl.1": _page("rmqctl", rmqctl, context)}
    for name in rmqctl.list_commands(context):
        command = rmqctl.get_command(context, name)
        if isinstance(command, click.Group):
            for inner, verb in command.commands.items():
                found[f"rmqctl-{name}-{inner}.1"] = _page(f"rmqctl {name} {inner}", verb, context)
        elif command is not None:
            found[f"rmqctl-{name}.1"] = _page(f"rmqctl {name}", command, context)
    return found | {f"{name}.7": _topic(name) for name in TOPICS}


def _topic(name: str) -> str:
    """Return a man page of section 7.

    The page is made from a text in topics/. The docstring of MODULE replaces {doc:MODULE} in the text.
    """
    text = files("rmqctl.cli").joinpath("topics", f"{name}.md").read_text()
    heading, _, body = text.partition("\n")
    summary = heading.partition(" - ")[2]
    whole = re.sub(r"^\{doc:([a-z_.]+)\}$", lambda found: _docstring(found[1]), body, flags=re.MULTILINE)
    others = ", ".join(f"\\fB{escaped(other)}\\fR(7)" for other in TOPICS if other != name)
    parts = [
        f'.TH "{name.upper()}" "7" "" "rmqctl {__version__}" "rmqctl"',
        _section("NAME", f"{escaped(name)} \\- {escaped(summary)}"),
        *roff_of(whole),
        _section("SEE ALSO", f"\\fBrmqctl\\fR(1), {others}"),
    ]
    return "\n".join(parts) + "\n"


def _docstring(module: str) -> str:
    """Return the docstring of a module as Markdown.

    A man page shows indented paragraphs unchanged: paragraphs with columns are indented.
    """
    paragraphs = inspect.cleandoc(importlib.import_module(module).__doc__ or "").split("\n\n")
    return "\n\n".join(_as_it_is(paragraph) if _has_columns(paragraph) else paragraph for paragraph in paragraphs)


def _has_columns(paragraph: str) -> bool:
    if paragraph.startswith("|"):
        return False
    is_list = re.match(r"(-|\d+\.) ", paragraph) is not None
    return re.search(r"\S {2,}\S" if is_list else r"\S {2,}\S|^ {2,}|^\(\d+\) ", paragraph, re.MULTILINE) is not None


def _as_it_is(paragraph: str) -> str:
    return "\n".join(f"    {line}" for line in paragraph.split("\n"))


def _page(name: str, command: click.Command, parent: click.Context) -> str:
    context = parent if command is rmqctl else click.Context(command, info_name=name, parent=parent)
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    summary = paragraphs[0].split("\n")[0].rstrip(".?")
    parts = [
        f'.TH "{name.upper().replace(" ", "-")}" "1" "" "rmqctl {__version__}" "rmqctl"',
        _section("NAME", f"{escaped(name.replace(' ', '-'))} \\- {escaped(summary)}"),
        _section("SYNOPSIS", f"\\fB{escaped(name)}\\fR {escaped(' '.join(command.collect_usage_pieces(context)))}"),
        _section("DESCRIPTION", "\n.PP\n".join(escaped(" ".join(paragraph.split())) for paragraph in paragraphs)),
        _section("OPTIONS", "\n".join(_options(command, context))),
    ]
    if takes_as_root(command):
        takes_dry_run = any("--dry-run" in parameter.opts for parameter in command.params)
        texts = (*WHICH_USER, WHICH_USER_DRY_RUN) if takes_dry_run else WHICH_USER
        parts.append(_section("WHICH USER TO RUN AS", "\n.PP\n".join(escaped(text) for text in texts)))
    examples = (f".TP\n{escaped(what)}:\n\\fB{escaped(line)}\\fR" for line, what in _examples(command, context))
    parts.append(_section("EXAMPLES", "\n".join(examples)))
    if command is rmqctl:
        verbs = [
            line
            for heading, group in VERB_GROUPS.items()
            for line in (
                f".SS {heading}",
                *(f".TP\n\\fB{escaped(verb)}\\fR\n{escaped(text)}" for verb, (_, text) in group.items()),
            )
        ]
        parts.append(_section("VERBS", "\n".join(verbs)))
    meanings = command.exit_code_meanings() if isinstance(command, Verb) else EXIT_CODE_MEANINGS
    codes = (f".TP\n\\fB{int(code)}\\fR\n{escaped(meaning)}" for code, meaning in meanings.items())
    parts += [_section("EXIT STATUS", "\n".join(codes)), _section("SEE ALSO", ", ".join(_see_also(name)))]
    return "\n".join(parts) + "\n"


def _see_also(name: str) -> list[str]:
    """Return the man pages to which the page of a command refers.

    The page of a verb refers to rmqctl(1) and to pages of section 7. rmqctl(1) refers to all pages of section 7.
    """
    verb = name.removeprefix("rmqctl").split()[:1]
    topics = [topic for topic, verbs in TOPICS.items() if not verb or verb[0] in verbs]
    return [*(["\\fBrmqctl\\fR(1)"] if verb else []), *(f"\\fB{escaped(topic)}\\fR(7)" for topic in topics)]


def _examples(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    """Return all examples of a verb. For rmqctl(1), return one example of each verb."""
    if isinstance(command, Verb):
        return command.examples
    verbs = [rmqctl.get_command(context, name) for name in VERBS]
    return [verb.examples[0] for verb in verbs if isinstance(verb, Verb)]


def _options(command: click.Command, context: click.Context) -> list[str]:
    records = [
        parameter.get_help_record(context)
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option)
    ]
    return [
        f".TP\n\\fB{escaped(names)}\\fR\n{escaped(' '.join(text.split()))}" for names, text in filter(None, records)
    ]


def _section(title: str, body: str) -> str:
    return f".SH {title}\n{body}"


def escaped(text: str) -> str:
    """Return `text` with escapes, so that roff finds no command in the text.

    The subset has `# NAME - summary` (the first line), `## SECTION`, paragraphs, lists (`- item`, `1. item`), indented
    blocks, and tables (`|`). Indented blocks and tables are shown unchanged. Text in backquotes and text between ** are
    bold. Text between * is in italics.
    """
    safe = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{safe}" if safe.startswith((".", "'")) else safe


def roff_of(markdown: str) -> Iterator[str]:
    """Yield the body of a man page, written in Markdown, as lines of roff."""
    for block in _blocks(markdown):
        first = block[0]
        if first.startswith("## "):
            yield f".SH {escaped(first.removeprefix('## ').upper())}"
        elif first.startswith(("    ", "|")):
            yield from (".PP", ".nf", *(escaped(line.removeprefix("    ")) for line in _aligned(block)), ".fi")
        elif _ITEM.match(first):
            for mark, item in _items(block):
                yield from (f".IP {escaped(mark)} 4" if mark != "-" else ".IP \\(bu 2", _inline(item))
        else:
            yield from (".PP", _inline(" ".join(line.strip() for line in block)))


def _in_font(marked: str) -> str:
    """Return marked text (backquotes, ** or *) as bold or italic text in roff."""
    is_bold = marked.startswith(("`", "**"))
    return f"\\f{'B' if is_bold else 'I'}{escaped(marked.strip('`*'))}\\fR"


def _blocks(markdown: str) -> Iterator[list[str]]:
    """Yield each heading, paragraph, list, table and indented block of a text."""
    for is_empty, run in groupby(markdown.split("\n"), key=lambda line: not line.strip()):
        if not is_empty:
            yield list(run)


def _items(block: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the mark and the text of each item of a list.

    A line without a mark continues the previous item.
    """
    starts = [at for at, line in enumerate(block) if _ITEM.match(line)]
    for at, behind in pairwise([*starts, len(block)]):
        mark, _, first = block[at].partition(" ")
        yield mark, " ".join(line.strip() for line in [first, *block[at + 1 : behind]])


def _aligned(block: list[str]) -> list[str]:
    """Return a table with aligned columns, without the dashes below the headings.

    A block that is not a table is returned unchanged.
    """
    if not block[0].startswith("|"):
        return block
    rows = [
        [cell.strip().replace("`", "").replace("**", "") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in block
    ]
    rows = [row for row in rows if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  ".join(cell.replace("\\|", "|").ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _inline(text: str) -> str:
    """Return a paragraph in roff, with bold text and italics.

    In Markdown, backquotes and ** mark bold text, and * marks italics.
    """
    pieces = re.split(r"(`[^`]+`|\*\*[^*]+\*\*|(?<![\w/*])\*[^*\s][^*]*\*(?![\w*]))", text)
    line = "".join(_in_font(piece) if at % 2 else escaped(piece) for at, piece in enumerate(pieces))
    return f"\\&{line}" if line.startswith((".", "'")) else line


def main() -> None:
    """Write the man pages into the folder named on the command line."""
    folder = Path(sys.argv[1])
    for name, source in pages().items():
        path = folder / f"man{name[-1]}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)


if __name__ == "__main__":
    main()
