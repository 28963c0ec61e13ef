"""A table as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The table and an empty line."""
    return tabulate(rows, headings, tablefmt="pipe", disable_numparse=True) + "\n"
