"""The columns of a table, and how a table fits a terminal.

A terminal that is too narrow gets the times without their day, then fewer columns, and only then a record for each row.
What a pipe gets is always complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from rmqctl.cli.output.printable import printable
from rmqctl.cli.output.tone import Toned
from rmqctl.text import size_text

GAP = 2  # blanks between columns
PROSE_MIN = 30
RECORD_HEAD_WIDTH = 40
CellWidth = Callable[[str], int]
# the column of a key, where it is not the key's words in capitals
HEADINGS = {
    "queueId": "QUEUE",
    "queueOffset": "OFFSET",
    "physicalOffset": "PHYSICALOFFSET",
    "minOffset": "MIN",
    "maxOffset": "MAX",
    "tagsCode": "TAGSCODE",
}
# columns of counts, whose digits a terminal groups; those of offsets are copied into commands, and stay as they are
COUNTS = frozenset({"MESSAGES", "BEHIND", "LOST", "COUNT", "QUEUES", "FINDINGS", "RETRY", "DELAYED", "DLQ", "POPPED"})
COUNTS |= {"UNITS NOW", "THEN", "NOW", "DIFFER", "RECORDS", "WAITING"}
SIZES = frozenset({"BYTES", "KEPT BYTES"})
# the columns that a narrow terminal misses least, the least needed first
LEAST_NEEDED = (
    "BORNHOST", "POPPED", "AT BYTE", "SIZE", "DELAYED", "OLDEST", "IN INDEX", "ORDER", "MIN", "PERM", "TAGS",
)  # fmt: skip
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_UNIT = "(?:%|[KMGT]i?B|B|ms|s|min|h|d)"
_NUMBER = re.compile(rf"[≥<+-]? ?\d[\d,.]*(?: {_UNIT}(?: \d+ {_UNIT})?)?")
BROKERS, OF_GROUPS = 2, 1  # ranks of rows, below the user's own


class Fitted(NamedTuple):
    """A table that fits a terminal; `note` says what it leaves out."""

    headings: list[str]
    rows: list[list[Any]]
    wrapped: dict[int, int]  # the minimum width of each column whose cells must be wrapped
    note: str


def cell_text(value: Any) -> str:
    """Return the text of a cell, exact."""
    return "" if value is None else printable(str(value))


def shown_cell(heading: str, value: Any) -> str | Toned:
    """Return a cell for a terminal: digits in groups, sizes in units."""
    if type(value) is int and heading in COUNTS:
        return f"{value:,}"
    if type(value) is int and heading in SIZES:
        return size_text(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return Toned(cell_text(value), value.tone) if isinstance(value, Toned) else cell_text(value)


def heading_of(key: str) -> str:
    """Return the heading of a key: `QUEUE` for `queueId`, `SIZE NOW` for `sizeNow`."""
    return HEADINGS.get(key) or _WORD.sub(" ", key).upper()


def is_built_in(group: str) -> bool:
    """Return whether a group is one that every broker adds by itself."""
    from rmqctl.store.read.consumers.consumer_groups import is_broker_group  # its import takes time

    return is_broker_group(group)


def rank(headings: Sequence[str], row: Sequence[Any]) -> int:
    """Return the place of a row among others: the user's own come first.

    Retries and dead letters follow, then the broker's. Records keep their order; so do rows sorted by time or share.
    """
    if not {"PHYSICALOFFSET", "SHARE", "TIME"}.isdisjoint(headings):
        return 0
    from rmqctl.store.config.topics import GROUP_PREFIXES, SYSTEM_PREFIXES, SYSTEM_TOPICS

    topic, group = (cell_text(row[headings.index(name)]) if name in headings else "" for name in ("TOPIC", "GROUP"))
    if topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIXES) or is_built_in(group):
        return BROKERS
    return OF_GROUPS if topic.startswith(GROUP_PREFIXES) and not group else 0


def numeric_columns(rows: Iterable[Sequence[str]], count: int) -> set[int]:
    """Return which of `count` columns hold only numbers; they are aligned right."""
    numeric, seen = set(range(count)), set()
    for row in rows:
        for at in tuple(numeric):
            if row[at] in ("", "none"):
                continue
            seen.add(at)
            if not _NUMBER.fullmatch(row[at]):
                numeric.discard(at)
    return numeric & seen


def fitted(headings: list[str], rows: list[list[Any]], width: int, cell_len: CellWidth) -> Fitted | None:
    """Return the table for a terminal of `width` characters, or None for records."""
    for heads, cells, note in _narrower(headings, rows):
        wrapped = wrapped_columns(heads, [[str(cell) for cell in row] for row in cells], width, cell_len)
        if wrapped is not None:
            return Fitted(heads, cells, wrapped, note)
    return None


def _narrower(headings: list[str], rows: list[list[Any]]) -> Iterator[tuple[list[str], list[list[Any]], str]]:
    """Yield ever narrower tables, each with a note of what it leaves out."""
    yield headings, rows, ""
    days = {cell[:10] for row in rows for cell in row if isinstance(cell, str) and _TIME.fullmatch(cell)}
    begin, day = (11, f"times of {min(days)}, UTC") if len(days) == 1 else (0, "times in UTC" if days else "")
    for end in (23, 19) if days else ():  # with milliseconds, without
        cut = [[_shorter(cell, begin, end) for cell in row] for row in rows]
        yield headings, cut, day
        rows = cut if end == 19 else rows
    gone: list[str] = []
    for name in LEAST_NEEDED:
        if name in headings:
            at = headings.index(name)
            headings = headings[:at] + headings[at + 1 :]
            rows = [row[:at] + row[at + 1 :] for row in rows]
            gone.append(name)
            yield headings, rows, "; ".join(filter(None, (day, f"no room for {', '.join(gone)}")))


def _shorter(cell: Any, begin: int, end: int) -> Any:
    return cell[begin:end].replace("T", " ") if isinstance(cell, str) and _TIME.fullmatch(cell) else cell


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
