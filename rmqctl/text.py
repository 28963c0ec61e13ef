"""Text for users: numbers with nouns, hints for extras, and shell words."""

from __future__ import annotations

import shlex
from pathlib import PurePath


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 message`, `2 messages`, `2 entries`.

    `plural` is the plural of an irregular noun.
    """
    return f"{number} {noun}" if number == 1 else f"{number} {plural or f'{noun}s'}"


def install_extra(extra: str) -> str:
    """Return a hint that says how to install an extra, for example `spark`."""
    return f"install the extra `{extra}`: in the clone, `pipx install --force '.[{extra}]'`"


def quoted(path: PurePath) -> str:
    """Return a path, quoted as one word of a shell's command line.

    The user can copy and run a command that contains a quoted path.
    """
    return shlex.quote(str(path))
