"""Text for people: numbers with their nouns, and paths as shell words."""

from __future__ import annotations

import shlex
from pathlib import PurePath


def counted(number: int, noun: str) -> str:
    """Return `1 message`, `2 messages`: a number and its regular noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def quoted(path: PurePath) -> str:
    """Return a path as one word of a shell's command line.

    Because of this, a proposed command can be copied and run.
    """
    return shlex.quote(str(path))
