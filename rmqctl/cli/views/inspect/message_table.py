"""The columns of a table whose rows are records of the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqctl.cli.output.tone import Tone, Toned
from rmqctl.format.message import placeholder_code

Row = dict[str, Any]


def message_columns(body: str, asked: int | None = None) -> dict[str, Callable[[Row], Any]]:
    """Return the headings and cells of a table of records.

    The table has a column for the body unless `body` is none. If `asked` is a physical offset, the record at this
    offset is marked.
    """
    columns: dict[str, Callable[[Row], Any]] = {}
    if asked is not None:
        columns["ASKED"] = lambda row: Toned("asked", Tone.ASKED) if _has(row, asked) else None
    columns |= {
        "PHYSICALOFFSET": lambda row: row["physicalOffset"],
        "SIZE": lambda row: row["size"],
        "STORED": lambda row: row.get("storeTime"),
        "TOPIC": lambda row: row.get("topic"),
        "QUEUE": lambda row: row.get("queueId"),
        "OFFSET": lambda row: row.get("queueOffset"),
        "TAGS": lambda row: row.get("properties", {}).get("TAGS"),
        "KEYS": lambda row: row.get("properties", {}).get("KEYS"),
        "BORNHOST": lambda row: row.get("bornHost"),
        "DAMAGE": _damage,
    }
    if body != "none":
        columns["BODY"] = lambda row: Toned(row["bodyError"], Tone.BAD) if "bodyError" in row else row.get("body")
    return columns


def _damage(row: Row) -> Toned | None:
    """Return a cell: the record's damage, or the damage that a placeholder replaced."""
    if "damage" in row:
        return Toned(row["damage"], Tone.BAD)
    return placeholder_cell(placeholder_code(row["preparedTransactionOffset"], row["properties"]))


def placeholder_cell(code: str | None) -> Toned | None:
    """Return the cell with the damage that a placeholder replaces, or None."""
    return None if code is None else Toned(f"placeholder: {code}", Tone.BAD)


def _has(row: Row, physical_offset: int) -> bool:
    start: int = row["physicalOffset"]
    size: int = row["size"]
    return start <= physical_offset < start + max(size, 1)
