"""What goes to stdout (tables, JSON, JSON Lines, CSV) and to stderr (remarks, progress). Only this file knows rich and tabulate."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from rmqctl.cli.printable import printable, printable_json

Row = dict[str, Any]
ROWS_PER_TABLE = 500


def to_json(value: Any) -> str:
    """One line of JSON, safe for a terminal."""
    return printable_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def print_document(verb: str, document: Row) -> None:
    """A JSON document with its schema's name, indented."""
    text = json.dumps({"schema": f"rmqctl.{verb}/1"} | document, ensure_ascii=False, indent=2)
    print(printable_json(text))


def print_rows(
    verb: str, name: str, rows: Iterable[Row], output: str, keys: Sequence[str], columns: dict[str, Callable[[Row], Any]]
) -> None:
    """Rows in the format asked for, as they come: `keys` are CSV's columns, `columns` (heading, cell) the table's."""
    if output == "jsonl":
        for row in rows:
            print(to_json(row))
    elif output == "json":
        _print_json_rows(verb, name, rows)
    elif output == "csv":
        _print_csv(rows, keys)
    else:
        rest = iter(rows)
        while chunk := list(islice(rest, ROWS_PER_TABLE)):
            print_table(list(columns), [[cell(row) for cell in columns.values()] for row in chunk])


def _print_json_rows(verb: str, name: str, rows: Iterable[Row]) -> None:
    print(f'{{"schema":"rmqctl.{verb}/1",{json.dumps(name)}:[', end="")
    separator = "\n"
    for row in rows:
        print(f"{separator}{to_json(row)}", end="")
        separator = ",\n"
    print("\n]}")


def _print_csv(rows: Iterable[Row], keys: Sequence[str]) -> None:
    writer = csv.DictWriter(sys.stdout, keys, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: to_json(value) if isinstance(value, dict | list) else _cell(value) for key, value in row.items()})


def print_table(headings: list[str], rows: list[list[Any]]) -> None:
    """A table: rich on a terminal, plain text otherwise."""
    cells = [[_cell(value) for value in row] for row in rows]
    if not _is_terminal(sys.stdout):
        from tabulate import tabulate

        print(tabulate(cells, headings, tablefmt="simple", disable_numparse=True))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)


def print_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """Name and value, a line each."""
    pairs = [(name, _cell(value)) for name, value in fields]
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        print(f"{name:<{width}}  {value}".rstrip())


def remark(text: str) -> None:
    """A line on stderr."""
    print(printable(text), file=sys.stderr)


def _cell(value: Any) -> str:
    return "" if value is None else printable(str(value))


def _is_terminal(stream: Any) -> bool:
    return bool(stream.isatty()) and os.environ.get("TERM", "") != "dumb"


@contextmanager
def progress(mode: str, total: int, what: str) -> Iterator[Callable[[int], None]]:
    """A function that takes bytes done; shows them on stderr as `mode` (auto, json, none) asks."""
    if mode == "json":
        yield _json_progress(total, what)
    elif mode == "auto" and _is_terminal(sys.stderr):
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
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
