"""A small subset of Markdown as roff, for the man pages of section 7.

The subset has `# NAME - summary` (the first line), `## SECTION`, paragraphs, lists (`- item`, `1. item`), indented
blocks, and tables (`|`). Indented blocks and tables are shown unchanged. Text in backquotes and text between ** are
bold. Text between * is in italics.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby, pairwise

_ITEM = re.compile(r"(-|\d+\.) ")


def escaped(text: str) -> str:
    """Return `text` with escapes, so that roff finds no command in the text."""
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
