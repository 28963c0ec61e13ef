"""The layout of a table that may be too wide for a terminal.

A cell with prose may be wrapped at its spaces. A column with prose keeps a width of at least PROSE_MIN characters.
Numbers, offsets and paths are never wrapped. If the table is too wide even with wrapped cells, each row is shown as a
record, as in psql.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

GAP = 2  # blanks between columns
PROSE_MIN = 30
RECORD_HEAD_WIDTH = 40

CellWidth = Callable[[str], int]


def wrapped_columns(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int, cell_len: CellWidth
) -> dict[int, int] | None:
    """Return the minimum width of each column whose cells must be wrapped.

    If the table fits a terminal of `width` characters without wrapping, the result is empty. If the table is too wide
    even with wrapped cells, the result is None, and the rows must be shown as records. `cell_len` returns the width of
    a text on a terminal.
    """
    columns = list(zip(headings, *rows, strict=True))
    natural = [max(map(cell_len, column)) for column in columns]
    gaps = GAP * (len(columns) - 1)
    if sum(natural) + gaps <= width:
        return {}
    least = {
        at: max(PROSE_MIN, *(cell_len(word) for cell in column for word in cell.split()))
        for at, column in enumerate(columns)
        if _is_prose(column, cell_len)
    }
    needed = sum(min(least.get(at, wide), wide) for at, wide in enumerate(natural))
    return least if least and needed + gaps <= width else None


def _is_prose(column: Iterable[str], cell_len: CellWidth) -> bool:
    return any(" " in cell and cell_len(cell) > PROSE_MIN for cell in column)


def record_head(number: int, width: int) -> str:
    """Return the line above record `number` for a terminal of `width` characters."""
    return f"-[ {number} ]".ljust(min(width, RECORD_HEAD_WIDTH), "-")


def aligned(cells: Iterable[str], widths: Sequence[int], cell_len: CellWidth) -> str:
    """Return one line of a table. `widths` are the widths of the columns."""
    padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True))
    return (" " * GAP).join(padded).rstrip()
