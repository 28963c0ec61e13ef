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
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.output.printable import printable, printable_json
from rmqctl.cli.output.readable import readable, wrapped
from rmqctl.cli.output.table import (
    BROKERS,
    GAP,
    PROSE_MIN,
    aligned,
    cell_text,
    fitted,
    heading_of,
    is_built_in,
    numeric_columns,
    rank,
    record_head,
    shown_cell,
)
from rmqctl.cli.output.tone import LABELS, Tone, Toned
from rmqctl.text import counted, no_formula

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
VERBOSE = "rmqctl.verbose"  # where `kept_option` keeps -v
HIDDEN = "rmqctl.hidden"  # what a table of this command has hidden


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
    keeps_order: bool = False,
) -> None:
    """Print rows in the format `output`.

    `keys` are the columns of CSV. `columns` maps each heading of the table to a function that returns the cell of a
    row. In a JSON document, the keys of `head`, such as the store, come before the rows. With `live`, each row is
    printed immediately. With `keeps_order`, a table does not begin with the user's own rows.
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
        print_columns(rows, columns, keeps_order=keeps_order)


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


def print_columns(rows: Iterable[Row], columns: dict[str, Callable[[Row], Any]], *, keeps_order: bool = False) -> None:
    """Print one table for each ROWS_PER_TABLE rows, without empty columns.

    `columns` maps each heading to a function that returns the cell of a row. The user's own rows come first, unless
    these are records, or `keeps_order` is given.
    """
    headings, hidden = list(columns), ""
    cells: Iterable[list[Any]] = ([cell(row) for cell in columns.values()] for row in rows)
    if not keeps_order and "PHYSICALOFFSET" not in columns:
        cells, hidden = _own_first(headings, list(cells))
    printed, left = 0, iter(cells)
    while chunk := list(islice(left, ROWS_PER_TABLE)):
        _print_chunk(*_used_columns(headings, chunk), printed)
        printed += len(chunk)
    _print_note(hidden)


def _own_first(headings: list[str], rows: list[list[Any]]) -> tuple[list[list[Any]], str]:
    """Return the user's own rows before the broker's, and a note of hidden rows.

    A terminal shows no built-in groups unless -v asks for them, or there are no others.
    """
    rows = sorted(rows, key=partial(rank, headings))
    context = click.get_current_context(silent=True)
    if "GROUP" not in headings or not is_terminal(sys.stdout) or context is None or context.meta.get(VERBOSE, True):
        return rows, ""
    at = headings.index("GROUP")
    groups = {row[at] for row in rows if is_built_in(cell_text(row[at]))}
    own = [row for row in rows if row[at] not in groups]
    note = f"{counted(len(groups), 'built-in group')} hidden (-v shows all)" if groups and own else ""
    is_new = context.meta.get(HIDDEN) != note
    context.meta[HIDDEN] = note
    return own or rows, note if is_new else ""


def _print_note(note: str) -> None:
    if note:
        _console().print(note, style="dim", soft_wrap=True)


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
        widths = [max(width, cell_len(cell_text(cell))) for width, cell in zip(widths, cells, strict=True)]
        if is_terminal(sys.stdout) and sum(widths) + GAP * (len(widths) - 1) > _terminal_width():
            _print_records(list(columns), [cells], number)
            continue
        if not number:
            print(aligned(columns, widths, cell_len))
            if not is_terminal(sys.stdout):
                print(aligned(["-" * width for width in widths], widths, cell_len))
        print(aligned(map(cell_text, cells), widths, cell_len))


def _print_chunk(headings: list[str], rows: list[list[Any]], printed: int) -> None:
    if is_terminal(sys.stdout):
        _print_on_terminal(headings, rows, printed)
    else:
        _print_plain(headings, rows)


def _print_plain(headings: list[str], rows: list[list[Any]], padding: int = 0) -> None:
    """Print rows in the layout of tabulate, without it.

    Its import takes a third of the time of a message look-up. A column is wider than its heading by `padding` or more.
    Each cell is converted to text twice, because the texts of all cells would need more memory than the rows.
    """
    widths = [len(heading) + padding for heading in headings]
    for row in rows:
        widths = [max(width, len(cell_text(value))) for width, value in zip(widths, row, strict=True)]
    print(aligned(headings, widths, len))
    print(aligned(["-" * width for width in widths], widths, len))
    for row in rows:
        print(aligned(map(cell_text, row), widths, len))


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
    return no_formula(cell_text(value)) if isinstance(value, str) and not raw else cell_text(value)


def print_table(headings: list[str], rows: list[list[Any]]) -> None:
    """Print a table, the user's own topics first.

    A terminal gets it by rich, a pipe as plain text.
    """
    rows, hidden = _own_first(headings, rows)
    if is_terminal(sys.stdout):
        _print_on_terminal(*_used_columns(headings, rows), 0)
        _print_note(hidden)
    elif len(rows) > ROWS_OF_TABULATE:
        _print_plain(headings, rows, TABULATE_PADDING)
    else:
        from tabulate import tabulate

        cells = [[cell_text(value) for value in row] for row in rows]
        print(tabulate(cells, headings, tablefmt="simple", disable_numparse=True, preserve_whitespace=True))


def print_table_of(keys: Sequence[str], rows: Iterable[Row]) -> None:
    """Print a table whose columns are keys of the rows, and headings their words."""
    print_table(list(map(heading_of, keys)), [[row.get(key) for key in keys] for row in rows])


def _print_on_terminal(headings: list[str], rows: list[list[Any]], printed: int) -> None:
    """Print a table, or records if the terminal is too narrow for a table.

    `printed` is the number of rows in earlier tables. The numbers of records begin at `printed` + 1.
    """
    from rich.cells import cell_len
    from rich.table import Table

    cells = [[shown_cell(*pair) for pair in zip(headings, row, strict=True)] for row in rows]
    table = fitted(headings, cells, _terminal_width(), cell_len)
    if table is None:
        _print_records(headings, cells, printed)
        return
    right = numeric_columns(([str(cell) for cell in row] for row in table.rows), len(table.headings))
    grid = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for at, heading in enumerate(table.headings):
        grid.add_column(
            heading,
            justify="right" if at in right else "left",
            overflow="fold",
            no_wrap=at not in table.wrapped,
            min_width=table.wrapped.get(at),
        )
    for row in table.rows:
        grid.add_row(*map(_text, row), style="dim" if rank(table.headings, row) == BROKERS else "")
    _console().print(grid)
    _print_note(table.note)


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

    return Text(cell_text(value), style=value.tone.value if isinstance(value, Toned) else "")


def print_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """Print names and values, each pair on its own line.

    On a terminal, all lines of a long value are to the right of the name.
    """
    if is_terminal(sys.stdout):
        # names in capitals are those of a message's own fields, which stay as they are
        pairs = [
            (name, readable(value) if isinstance(value, str) and not name.isupper() else value)
            for name, value in fields
        ]
        _print_pairs(pairs, max((len(name) for name, _ in pairs), default=0))
        return
    for line in _aligned(fields):
        print(line)


def print_line_of_text(text: str) -> None:
    """Print a line on stdout, with escapes; a terminal wraps it at its words."""
    print(_lines(printable(text), sys.stdout))


def _lines(text: str, stream: Any) -> str:
    return wrapped(readable(text), _terminal_width()) if is_terminal(stream) else text


def print_toned(text: str, tone: Tone) -> None:
    """Print a line on stdout. On a terminal, the line has the colour of `tone`."""
    print(_coloured(_lines(printable(text), sys.stdout), tone, sys.stdout))


def print_verdict(text: str, tone: Tone) -> None:
    """Print the answer above its tables on a terminal. A pipe gets the tables alone."""
    if is_terminal(sys.stdout):
        print_toned(text, tone)
        print()


def print_next(command: str) -> None:
    """Print what to type next as the last line on a terminal."""
    if is_terminal(sys.stdout):
        print(f"\n{_coloured('next:', Tone.ASKED, sys.stdout)} {printable(command)}")


def remark_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """Print names and values on stderr, each pair on its own line."""
    for line in _aligned(fields):
        remark(line)


def _aligned(fields: Iterable[tuple[str, Any]]) -> list[str]:
    pairs = [(name, cell_text(value)) for name, value in fields]
    width = max((len(name) for name, _ in pairs), default=0)
    return [f"{name:<{width}}  {value}".rstrip() for name, value in pairs]


def remark(text: str) -> None:
    """Print a line on stderr.

    On a terminal, a label such as `damage:` at the beginning of the line has a colour.
    """
    line = _lines(printable(text), sys.stderr)
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
