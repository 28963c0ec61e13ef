"""Text for users: numbers with their nouns, and paths as shell words."""

from __future__ import annotations

import shlex
from pathlib import PurePath


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 message`, `2 messages`, `2 entries`.

    `plural` is the plural of an irregular noun.
    """
    return f"{number} {noun}" if number == 1 else f"{number} {plural or f'{noun}s'}"


def quoted(path: PurePath) -> str:
    """Return a path, quoted as one word of a shell's command line.

    The user can copy and run a command that contains a quoted path.
    """
    return shlex.quote(str(path))
