"""Paths in the commands that messages propose."""

from __future__ import annotations

import shlex
from pathlib import PurePath


def quoted(path: PurePath) -> str:
    """A path as one word of a shell's command line: what a message proposes can be copied and run."""
    return shlex.quote(str(path))
