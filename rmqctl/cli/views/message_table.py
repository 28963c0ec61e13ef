"""The columns of a table of records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]


def message_columns(body: str) -> dict[str, Callable[[Row], Any]]:
    """Return headings and cells, with a column for the body if it is shown."""
    columns: dict[str, Callable[[Row], Any]] = {
        "PHYSICALOFFSET": lambda row: row["physicalOffset"],
        "SIZE": lambda row: row["size"],
        "STORED": lambda row: row.get("storeTime"),
        "TOPIC": lambda row: row.get("topic"),
        "QUEUE": lambda row: row.get("queueId"),
        "OFFSET": lambda row: row.get("queueOffset"),
        "TAGS": lambda row: row.get("properties", {}).get("TAGS"),
        "KEYS": lambda row: row.get("properties", {}).get("KEYS"),
        "DAMAGE": lambda row: row.get("damage"),
    }
    if body != "none":
        columns["BODY"] = lambda row: row.get("body")
    return columns
