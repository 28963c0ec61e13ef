"""The output of rmqctl.

Tables, JSON, JSON Lines and CSV are written to stdout. Remarks and progress are written to stderr.

No other file of rmqctl uses rich or tabulate.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.output.printable import printable, printable_json
from rmqctl.cli.output.tone import LABELS, Tone, Toned
from rmqctl.text import no_formula

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

Row = dict[str, Any]
ROWS_PER_TABLE = 500
TABULATE_PADDING = 2  # tabulate.MIN_PADDING, for the headings
ROWS_OF_TABULATE = 1000  # for more rows, tabulate takes ten times the time and memory
LARGE_DOCUMENT = 256 * 1024  # characters
RAW_CSV = "rmqctl.raw"  # where `kept_option` keeps --raw
_IMPORTED_LATE = (
    "csv", "difflib", "numpy.ma", "rich.cells", "rich.console", "rich.progress", "rich.table", "rich.text", "tabulate",
)  # fmt: skip
GAP = 2  # blanks between columns
PROSE_MIN = 30
RECORD_HEAD_WIDTH = 40
CellWidth = Callable[[str], int]


def import_late_ones() -> None:
    """Import rich and the other modules in _IMPORTED_LATE.

    rmqctl imports them when it needs them, and numpy.unique imports numpy.ma.

    Call this function before the process changes to a user without the right to read the modules.
    """
    for name in _IMPORTED_LATE:
        importlib.import_module(name)


def to_json(value: Any) -> str:
    """Return one line of JSON, safe for a terminal."""
    return printable_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def print_document(verb: str, document: Row) -> None:
    """Print an indented JSON document with the name of the document's schema."""
    print(indented_json({"schema": f"rmqctl.{verb}/1"} | document))


def indented_json(document: Row) -> str:
    """Return an indented JSON document, safe for a terminal.

    msgspec indents large documents, because msgspec is much faster than `json`. `json` indents small documents, because
    the import of msgspec needs time. `json` also indents documents with surrogates, for example in a file name, because
    msgspec refuses surrogates.
    """
    text = printable_json(json.dumps(document, ensure_ascii=False))
    if len(text) < LARGE_DOCUMENT or "\\ud" in text:
        return printable_json(json.dumps(document, ensure_ascii=False, indent=2))
    import msgspec.json

    return msgspec.json.format(text, indent=2)


def print_line(verb: str, document: Row) -> None:
    """Print a JSON document in one line, with the name of the document's schema."""
    print(to_json({"schema": f"rmqctl.{verb}/1"} | document))


def print_rows(
    verb: str,
    name: str,
    rows: Iterable[Row],
    output: str,
    keys: Sequence[str],
    columns: dict[str, Callable[[Row], Any]],
    *,
    head: Row,
    live: bool = False,
) -> None:
    """Print rows in the format `output`.

    `keys` are the columns of CSV. `columns` maps each heading of the table to a function that returns the cell of a
    row. In a JSON document, the keys of `head`, such as the store, come before the rows. With `live`, each row is
    printed immediately.
    """
    if live:
        rows = _flushed(rows)
    if output == "jsonl":
        for row in rows:
            print(to_json(row))
    elif output == "json":
        _print_json_rows(verb, head, name, rows)
    elif output == "csv":
        _print_csv(rows, keys)
    elif live:
        _print_live_rows(rows, columns)
    else:
        print_columns(rows, columns)


def print_lines(blocks: Iterable[bytes], limit: int | None) -> None:
    """Print blocks of whole lines, but at most `limit` lines (None: all lines)."""
    sys.stdout.flush()
    left = limit
    if left == 0:
        return
    for block in blocks:
        if left is not None and (count := block.count(b"\n")) >= left:
            sys.stdout.buffer.write(b"".join(block.splitlines(keepends=True)[:left]))
            return
        left = left if left is None else left - count
        sys.stdout.buffer.write(block)


def _flushed(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows. Flush stdout after each row, before the next row is read."""
    for row in rows:
        yield row
        sys.stdout.flush()


def print_columns(rows: Iterable[Row], columns: dict[str, Callable[[Row], Any]]) -> None:
    """Print one table for each ROWS_PER_TABLE rows, without empty columns.

    `columns` maps each heading to a function that returns the cell of a row.
    """
    printed, left = 0, iter(rows)
    while chunk := list(islice(left, ROWS_PER_TABLE)):
        cells = [[cell(row) for cell in columns.values()] for row in chunk]
        headings, lines = _used_columns(list(columns), cells)
        if is_terminal(sys.stdout):
            _print_on_terminal(headings, lines, printed)
        else:
            _print_plain(headings, lines)
        printed += len(chunk)


def _used_columns(headings: list[str], rows: list[list[Any]]) -> tuple[list[str], list[list[Any]]]:
    """Return a table without the columns in which all cells are empty."""
    used = [at for at in range(len(headings)) if not rows or any(row[at] not in (None, "") for row in rows)]
    return [headings[at] for at in used], [[row[at] for at in used] for row in rows]


def _print_live_rows(rows: Iterable[Row], columns: dict[str, Callable[[Row], Any]]) -> None:
    """Print one table, row by row.

    The headings are printed once. Each row is printed as soon as it arrives. If a cell is wider than its column, the
    column becomes wider from this row on. If the terminal is too narrow, rows are printed as records.
    """
    from rich.cells import cell_len

    widths = [len(heading) for heading in columns]
    for number, row in enumerate(rows):
        cells = [cell(row) for cell in columns.values()]
        widths = [max(width, cell_len(_cell(cell))) for width, cell in zip(widths, cells, strict=True)]
        if is_terminal(sys.stdout) and sum(widths) + GAP * (len(widths) - 1) > _terminal_width():
            _print_records(list(columns), [cells], number)
            continue
        if not number:
            print(aligned(columns, widths, cell_len))
            if not is_terminal(sys.stdout):
                print(aligned(["-" * width for width in widths], widths, cell_len))
        print(aligned(map(_cell, cells), widths, cell_len))


def _print_plain(headings: list[str], rows: list[list[Any]], padding: int = 0) -> None:
    """Print rows in the layout of tabulate, without it.

    Its import takes a third of the time of a message look-up. A column is wider than its heading by `padding` or more.
    Each cell is converted to text twice, because the texts of all cells would need more memory than the rows.
    """
    widths = [len(heading) + padding for heading in headings]
    for row in rows:
        widths = [max(width, len(_cell(value))) for width, value in zip(widths, row, strict=True)]
    print(aligned(headings, widths, len))
    print(aligned(["-" * width for width in widths], widths, len))
    for row in rows:
        print(aligned(map(_cell, row), widths, len))


def _print_json_rows(verb: str, head: Row, name: str, rows: Iterable[Row]) -> None:
    print(f"{to_json({'schema': f'rmqctl.{verb}/1'} | head).removesuffix('}')},{json.dumps(name)}:[", end="")
    separator = "\n"
    for row in rows:
        print(f"{separator}{to_json(row)}", end="")
        separator = ",\n"
    print("\n]}")


def _print_csv(rows: Iterable[Row], keys: Sequence[str]) -> None:
    import csv  # imported only here, so that other formats start faster

    context = click.get_current_context(silent=True)
    raw = context is not None and bool(context.meta.get(RAW_CSV))
    writer = csv.DictWriter(sys.stdout, keys, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _csv_cell(value, raw=raw) for key, value in row.items()})


def _csv_cell(value: Any, *, raw: bool) -> str:
    """Return the text of a cell for CSV.

    Without `raw`, `no_formula` changes texts that a spreadsheet would run as formulas. Numbers are never formulas.
    """
    if isinstance(value, dict | list):
        return to_json(value)
    return no_formula(_cell(value)) if isinstance(value, str) and not raw else _cell(value)


def print_table(headings: list[str], rows: list[list[Any]]) -> None:
    """Print a table: with rich on a terminal, otherwise as plain text."""
    if is_terminal(sys.stdout):
        _print_on_terminal(*_used_columns(headings, rows), 0)
        return
    if len(rows) > ROWS_OF_TABULATE:
        _print_plain(headings, rows, TABULATE_PADDING)
        return
    from tabulate import tabulate

    cells = [[_cell(value) for value in row] for row in rows]
    print(tabulate(cells, headings, tablefmt="simple", disable_numparse=True, preserve_whitespace=True))


def print_table_of(keys: Sequence[str], rows: Iterable[Row]) -> None:
    """Print a table whose columns are keys of the rows, with the keys as headings."""
    print_table([key.upper() for key in keys], [[row.get(key) for key in keys] for row in rows])


def _print_on_terminal(headings: list[str], rows: list[list[Any]], printed: int) -> None:
    """Print a table, or records if the terminal is too narrow for a table.

    `printed` is the number of rows in earlier tables. The numbers of records begin at `printed` + 1.
    """
    from rich.cells import cell_len
    from rich.table import Table

    wrapped = wrapped_columns(headings, [[_cell(value) for value in row] for row in rows], _terminal_width(), cell_len)
    if wrapped is None:
        _print_records(headings, rows, printed)
        return
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for at, heading in enumerate(headings):
        table.add_column(heading, overflow="fold", no_wrap=at not in wrapped, min_width=wrapped.get(at))
    for row in rows:
        table.add_row(*map(_text, row))
    _console().print(table)


def _print_records(headings: list[str], rows: list[list[Any]], printed: int) -> None:
    """Print each row as a record: a line for each heading that has a value."""
    width = max(map(len, headings))
    for number, row in enumerate(rows, printed + 1):
        _console().print(record_head(number, _terminal_width()), style="bold")
        fields = zip(headings, row, strict=True)
        _print_pairs([(name, value) for name, value in fields if value not in (None, "")], width)


def _print_pairs(pairs: Iterable[tuple[str, Any]], width: int) -> None:
    """Print names and values on a terminal, each name to the left of its value.

    All lines of a long value are to the right of the name.
    """
    from rich.text import Text

    console = _console()
    for name, value in pairs:
        lines = _text(value).wrap(console, max(console.width - width - GAP, PROSE_MIN)) or [_text("")]
        for at, line in enumerate(lines):
            line.rstrip()
            console.print(Text.assemble(("" if at else name).ljust(width + GAP), line), soft_wrap=True)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False)


def _terminal_width() -> int:
    return _console().width


def text_width(most: int) -> int:
    """Return the width at which text must be wrapped, at most `most` characters.

    If the terminal is narrower than `most` characters, the result is the width of the terminal.
    """
    return min(most, _terminal_width()) if is_terminal(sys.stdout) else most


def _text(value: Any) -> Text:
    from rich.text import Text

    return Text(_cell(value), style=value.tone.value if isinstance(value, Toned) else "")


def print_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """Print names and values, each pair on its own line.

    On a terminal, all lines of a long value are to the right of the name.
    """
    if is_terminal(sys.stdout):
        pairs = list(fields)
        _print_pairs(pairs, max((len(name) for name, _ in pairs), default=0))
        return
    for line in _aligned(fields):
        print(line)


def print_line_of_text(text: str) -> None:
    """Print a line of text on stdout, with escapes for unsafe characters."""
    print(printable(text))


def print_toned(text: str, tone: Tone) -> None:
    """Print a line on stdout. On a terminal, the line has the colour of `tone`."""
    print(_coloured(printable(text), tone, sys.stdout))


def remark_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """Print names and values on stderr, each pair on its own line."""
    for line in _aligned(fields):
        remark(line)


def _aligned(fields: Iterable[tuple[str, Any]]) -> list[str]:
    pairs = [(name, _cell(value)) for name, value in fields]
    width = max((len(name) for name, _ in pairs), default=0)
    return [f"{name:<{width}}  {value}".rstrip() for name, value in pairs]


def remark(text: str) -> None:
    """Print a line on stderr.

    On a terminal, a label such as `damage:` at the beginning of the line has a colour.
    """
    line = printable(text)
    label, colon, rest = line.partition(":")
    if colon and label in LABELS:
        line = f"{_coloured(label + colon, LABELS[label], sys.stderr)}{rest}"
    print(line, file=sys.stderr)


def _coloured(text: str, tone: Tone, stream: Any) -> str:
    """Return a text with the terminal codes for a colour.

    If `stream` is not a terminal, or if NO_COLOR is set, the text is returned unchanged.
    """
    if not is_terminal(stream) or os.environ.get("NO_COLOR"):
        return text
    return click.style(text, fg=tone.value)


def _cell(value: Any) -> str:
    return "" if value is None else printable(str(value))


def is_terminal(stream: Any) -> bool:
    """Return whether a stream is a terminal, but not a dumb terminal."""
    return bool(stream.isatty()) and os.environ.get("TERM", "") != "dumb"


@contextmanager
def progress(mode: str, total: int, what: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that adds a number of bytes to the shown progress.

    `total` is the number of all bytes. The progress is shown on stderr, in the form `mode` (auto, json, none).
    """
    all_done = 0

    def advance(count: int) -> None:
        nonlocal all_done
        all_done += count
        show(all_done, max(total, all_done))  # another pass over the log increases the total

    with _shown_progress(mode, what, "bytes", total) as show:
        yield advance


@contextmanager
def count_progress(mode: str, what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows the number of finished tasks and of all tasks.

    The function shows the progress on stderr, in the form `mode` (auto, json, none).
    """
    with _shown_progress(mode, what, "tasks", None) as show:
        yield show


@contextmanager
def _shown_progress(mode: str, what: str, unit: str, total: int | None) -> Iterator[Callable[[int, int], None]]:
    if mode == "json":
        yield lambda done, of: remark(to_json({"progress": what, unit: done, f"total{unit.title()}": of}))
    elif mode == "auto" and is_terminal(sys.stderr):
        from rich import progress as parts
        from rich.console import Console

        columns: tuple[parts.ProgressColumn, ...] = (parts.TextColumn("{task.description}"), parts.BarColumn())
        if unit == "bytes":
            columns += (parts.DownloadColumn(), parts.TransferSpeedColumn(), parts.TimeRemainingColumn())
        else:
            columns += (parts.MofNCompleteColumn(), parts.TextColumn(unit), parts.TimeElapsedColumn())
        with parts.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done, of: bar.update(task, completed=done, total=of)
    else:
        yield lambda *_: None


def wrapped_columns(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int, cell_len: CellWidth
) -> dict[int, int] | None:
    """Return the minimum width of each column whose cells must be wrapped.

    A cell with prose may be wrapped at its spaces. A column with prose keeps a width of at least PROSE_MIN characters.
    Numbers, offsets and paths are never wrapped. If the table is too wide even with wrapped cells, each row is shown as
    a record, as in psql.

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
