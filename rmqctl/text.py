"""Text for users: numbers with nouns, hints, words for shells and cells."""

from __future__ import annotations

import shlex
import sys
from pathlib import PurePath

# a spreadsheet takes a text with one of these first characters for a formula
FORMULA_SIGNS = ("=", "+", "-", "@")
SHOWN_NAME_MAX = 40  # characters
_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_SIZE_STEP = 1024


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 message`, `2 messages`, `2 entries`.

    `plural` is the plural of an irregular noun.
    """
    return f"{number} {noun}" if number == 1 else f"{number} {plural or f'{noun}s'}"


def size_text(count: int) -> str:
    """Return a number of bytes for people: `512 B`, `1.2 GiB`."""
    size = float(count)
    for unit in _SIZE_UNITS:
        if size < _SIZE_STEP or unit == _SIZE_UNITS[-1]:
            break
        size /= _SIZE_STEP
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def shortened(name: str) -> str:
    """Return a name for a table or sentence, at most 43 characters long."""
    return name if len(name) <= SHOWN_NAME_MAX else f"{name[:SHOWN_NAME_MAX]}..."


def part_of(part: int, whole: int, noun: str) -> str:
    """Return "the record", "all 3 records" or "2 of 3 records".

    >>> part_of(1, 1, "record"), part_of(3, 3, "record"), part_of(2, 3, "record")
    ('the record', 'all 3 records', '2 of 3 records')
    """
    if part == whole:
        return f"the {noun}" if whole == 1 else f"all {counted(whole, noun)}"
    return f"{part} of {counted(whole, noun)}"


def install_extra(extra: str) -> str:
    """Return a hint that says how to add an extra, for example `spark`.

    It is added to the rmqctl that runs: pip finds it installed, and asks no index for another.
    """
    return f"install the extra `{extra}`: `{quoted(sys.executable)} -m pip install 'rmqctl[{extra}]'`"


def quoted(word: PurePath | str) -> str:
    """Return a path or name, quoted as one word of a shell's command line.

    The user can copy and run a command that contains a quoted path. Characters that end a line, or that a terminal
    does not show, are written as bash, zsh and ksh read them: `$'...'`.
    """
    text = str(word)
    if text.isprintable():
        return shlex.quote(text)
    escaped = "".join(letter if letter.isprintable() else _octal(letter) for letter in text.replace("\\", "\\\\"))
    return "$'" + escaped.replace("'", "\\'") + "'"


def no_formula(text: str) -> str:
    """Return `text` in a form that no spreadsheet runs as a formula.

    If a spreadsheet would run `text` as a formula, the result is `'` followed by `text`.
    """
    return f"'{text}" if text.startswith(FORMULA_SIGNS) else text


def _octal(letter: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in letter.encode("utf-8", "surrogateescape"))
