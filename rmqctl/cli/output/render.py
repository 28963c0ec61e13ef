"""The output of rmqctl.

Tables, JSON, JSON Lines and CSV go to stdout; remarks and progress go to stderr.

Only this file knows rich and tabulate.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import click

from rmqctl.cli.output.printable import no_formula, printable, printable_json

Row = dict[str, Any]
ROWS_PER_TABLE = 500
RAW_CSV = "rmqctl.cli.output.render.raw_csv"
_IMPORTED_LATE = ("csv", "difflib", "rich.console", "rich.progress", "rich.table", "rich.text", "tabulate")


def import_late_ones() -> None:
    """Import the modules that this module otherwise imports only when needed.

    This is for a process that will change its user: the new user may have no right to read these files.
    """
    for name in _IMPORTED_LATE:
        importlib.import_module(name)


def to_json(value: Any) -> str:
    """Return one line of JSON, safe for a terminal."""
    return printable_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def print_document(verb: str, document: Row) -> None:
    """Print a JSON document, indented, with the name of its schema."""
    text = json.dumps({"schema": f"rmqctl.{verb}/1"} | document, ensure_ascii=False, indent=2)
    print(printable_json(text))


def print_line(verb: str, document: Row) -> None:
    """Print a JSON document in one line, with the name of its schema."""
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
    """Print rows, as they come, in the format that the user chose.

    `keys` are the columns of CSV; `columns` (heading, cell) are the columns of the table. `head` has the keys that come
    before the rows in a JSON document, such as the store. With `live`, rows arrive over time, and each row is shown
    immediately.
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
    else:
        _print_table_rows(iter(rows), columns, 1 if live else ROWS_PER_TABLE)


def print_lines(blocks: Iterable[bytes], limit: int | None) -> None:
    """Print blocks of whole lines unchanged, at most `limit` lines."""
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
    """Yield the rows; flush each row before the next row is read."""
    for row in rows:
        yield row
        sys.stdout.flush()


def _print_table_rows(rows: Iterator[Row], columns: dict[str, Callable[[Row], Any]], at_once: int) -> None:
    """Print a table for every block of rows.

    With live rows, only the first table has headings. Columns without any value are left out.
    """
    first = True
    while chunk := list(islice(rows, at_once)):
        cells = [[cell(row) for cell in columns.values()] for row in chunk]
        used = [at for at in range(len(columns)) if at_once == 1 or any(line[at] not in (None, "") for line in cells)]
        headings = [heading for at, heading in enumerate(columns) if at in used]
        lines = [[line[at] for at in used] for line in cells]
        headed = first or at_once > 1
        if is_terminal(sys.stdout):
            print_table(headings, lines, headed=headed)
        else:
            _print_plain([headings, ["-" * len(heading) for heading in headings]] if headed else [], lines)
        first = False


def _print_plain(head: list[list[str]], rows: list[list[Any]]) -> None:
    """Print rows in the form of tabulate, without importing it.

    The import would take a third of the time of a look-up.
    """
    lines = head + [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for number, line in enumerate(lines):
        filler = "-" if head and number == 1 else " "
        print("  ".join(cell.ljust(width, filler) for cell, width in zip(line, widths, strict=True)).rstrip())


def _print_json_rows(verb: str, head: Row, name: str, rows: Iterable[Row]) -> None:
    print(f"{to_json({'schema': f'rmqctl.{verb}/1'} | head).removesuffix('}')},{json.dumps(name)}:[", end="")
    separator = "\n"
    for row in rows:
        print(f"{separator}{to_json(row)}", end="")
        separator = ",\n"
    print("\n]}")


def _print_csv(rows: Iterable[Row], keys: Sequence[str]) -> None:
    import csv  # imports here spare the start of what prints otherwise

    context = click.get_current_context(silent=True)
    raw = context is not None and bool(context.meta.get(RAW_CSV))
    writer = csv.DictWriter(sys.stdout, keys, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _csv_cell(value, raw=raw) for key, value in row.items()})


def _csv_cell(value: Any, *, raw: bool) -> str:
    """Return a cell for CSV.

    A text is changed if a spreadsheet would run it as a formula. Numbers are never formulas.
    """
    if isinstance(value, dict | list):
        return to_json(value)
    return no_formula(_cell(value)) if isinstance(value, str) and not raw else _cell(value)


def print_table(headings: list[str], rows: list[list[Any]], *, headed: bool = True) -> None:
    """Print a table: with rich on a terminal, otherwise as plain text.

    With `headed`, the table has headings.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    if not is_terminal(sys.stdout):
        from tabulate import tabulate

        table_format = "simple" if headed else "plain"
        print(tabulate(cells, headings if headed else (), tablefmt=table_format, disable_numparse=True))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", show_header=headed)
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading == headings[0])
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)


def print_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """Print name and value, one pair a line."""
    for line in _aligned(fields):
        print(line)


def remark_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """Print names and values on stderr, one pair a line."""
    for line in _aligned(fields):
        remark(line)


def _aligned(fields: Iterable[tuple[str, Any]]) -> list[str]:
    pairs = [(name, _cell(value)) for name, value in fields]
    width = max((len(name) for name, _ in pairs), default=0)
    return [f"{name:<{width}}  {value}".rstrip() for name, value in pairs]


def remark(text: str) -> None:
    """Print a line on stderr."""
    print(printable(text), file=sys.stderr)


def _cell(value: Any) -> str:
    return "" if value is None else printable(str(value))


def is_terminal(stream: Any) -> bool:
    """Return whether a stream is a terminal that can move its cursor."""
    return bool(stream.isatty()) and os.environ.get("TERM", "") != "dumb"


@contextmanager
def progress(mode: str, total: int, what: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows progress, called with the bytes done.

    Progress goes to stderr, in the form that `mode` (auto, json, none) names.
    """
    if mode == "json":
        yield _json_progress(total, what)
    elif mode == "auto" and is_terminal(sys.stderr):
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda count: bar.advance(task, count)
    else:
        yield lambda _: None


def _json_progress(total: int, what: str) -> Callable[[int], None]:
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        remark(to_json({"progress": what, "bytes": done, "totalBytes": total}))

    return advance


@contextmanager
def count_progress(mode: str, what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows progress, called with the items done and all.

    Progress goes to stderr, in the form that `mode` (auto, json, none) names.
    """
    if mode == "json":
        yield lambda done, total: remark(to_json({"progress": what, "tasks": done, "totalTasks": total}))
    elif mode == "auto" and is_terminal(sys.stderr):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("tasks"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield lambda *_: None
