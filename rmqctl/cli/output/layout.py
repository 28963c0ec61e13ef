"""The layout of a table that may be too wide for a terminal.

A cell with prose may be wrapped at its blanks, if its column still has at least PROSE_MIN characters. Numbers, offsets
and paths are never wrapped. If the table is still too wide, each row is shown as a record, as psql does.
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
    """Return the columns whose cells must be wrapped at blanks.

    The result has the minimum width of each such column. The result is empty if the table fits a terminal of `width`
    columns without wrapping. The result is None if the table does not fit even with wrapping, so that records must be
    shown. `cell_len` returns how many columns of a terminal a text takes.
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
    """Return the line above the record `number`, on a terminal of `width` columns."""
    return f"-[ {number} ]".ljust(min(width, RECORD_HEAD_WIDTH), "-")


def aligned(cells: Iterable[str], widths: Sequence[int], cell_len: CellWidth) -> str:
    """Return a line of a table with columns of these widths."""
    padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True))
    return (" " * GAP).join(padded).rstrip()
