"""A trace for people: the verdict, then tables of stages, groups and clients."""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from rmqctl.cli.output.printable import printable
from rmqctl.cli.output.render import print_columns, print_fields, print_line_of_text, print_toned
from rmqctl.cli.output.tone import Tone, Toned
from rmqctl.cli.views.inspect.message_table import placeholder_cell
from rmqctl.format.timestamp import duration
from rmqctl.report.sequence import arrows

Row = dict[str, Any]
_NOT_PLAIN = re.compile(r"[^\w ,./()-]")
_YES_NO: dict[bool | None, str | Toned] = {True: "yes", False: Toned("no", Tone.ATTENTION), None: ""}
_STATES = {"consumed": Tone.GOOD, "waiting": Tone.ATTENTION}


def print_trace(document: Row) -> None:
    """Print the verdict, then tables, or what was searched if nothing was found."""
    several = len(document["stores"]) > 1
    print_toned(document["verdict"], _tone(document))
    if not document["found"]:
        _print_search(document)
        return
    keys = list(dict.fromkeys(row["uniqueKey"] for row in document["stages"]))
    for key in keys:
        rows = [row for row in document["stages"] if row["uniqueKey"] == key]
        print()
        first = rows[0]
        body = first.get("bodyError") or first.get("body")
        fields = [("UNIQ_KEY", key or "none"), ("KEYS", first["keys"]), ("TAGS", first["tags"])]
        print_fields(fields + ([] if body is None else [("BODY", body)]))
        print()
        print_columns(rows, _stage_columns(several=several))
    _print_part(document["groups"], _group_columns(several=several))
    _print_part(document["clientRecords"], _CLIENT_COLUMNS)
    if document["remarks"] or any(store["findings"] for store in document["searched"]):
        print()
    for store in document["searched"]:
        _print_findings(store, f"{store['store']}: " if several else "")
    for text in document["remarks"]:
        print_line_of_text(text)


def print_unresolved(verdict: str, rows: list[Row]) -> None:
    """Print what waits, one row for each message."""
    print_toned(verdict, Tone.ATTENTION if rows else Tone.GOOD)
    several = len({row["store"] for row in rows}) > 1
    columns: dict[str, Callable[[Row], Any]] = {"STORE": itemgetter("store")} if several else {}
    columns |= {
        "WAITS": lambda row: Toned("delayed, skipped", Tone.BAD) if row["skipped"] else row["kind"],
        "AGE": lambda row: duration(row["ageMs"]),
        "STORED": itemgetter("storeTime"),
        "DUE": lambda row: row["dueTime"] or "",
        "TOPIC": lambda row: row["realTopic"] or "",
        "PHYSICALOFFSET": itemgetter("physicalOffset"),
        "UNIQ_KEY": lambda row: row["uniqueKey"] or "",
        "KEYS": lambda row: row["keys"] or "",
    }
    _print_part(rows, columns)


def _tone(document: Row) -> Tone:
    if not document["found"] or any(map(_is_bad, document["stages"])):
        return Tone.BAD
    is_done = all(row["state"] == "consumed" for row in document["groups"])
    return Tone.GOOD if is_done and document["groups"] else Tone.ATTENTION


def _is_bad(stage: Row) -> bool:
    return stage["damage"] is not None or stage["placeholder"] is not None or stage["kind"] == "dead-letter"


def _print_part(rows: list[Row], columns: dict[str, Callable[[Row], Any]]) -> None:
    if rows:
        print()
        print_columns(rows, columns)


def _stage_columns(*, several: bool) -> dict[str, Callable[[Row], Any]]:
    return {
        "STAGE": lambda row: row["kind"],
        "AFTER": lambda row: f"+{duration(row['deltaMs'])}" if row["deltaMs"] else "",
        "STORED": lambda row: row["storeTime"] or row["storeTimestamp"],
        "DUE": lambda row: row["dueTime"] or row["dueTimestamp"],
        "CHECK": lambda row: row["checkTimes"],
        "STORE": lambda row: row["store"] if several else "",
        "TOPIC": lambda row: row["topic"],
        "QUEUE": lambda row: row["queueId"],
        "OFFSET": lambda row: row["queueOffset"],
        "PHYSICALOFFSET": lambda row: row["physicalOffset"],
        "IN QUEUE": lambda row: _YES_NO[row["reachable"]],
        "IN INDEX": lambda row: _YES_NO[row["indexed"]],
        "GROUP": lambda row: row["group"],
        "DAMAGE": lambda row: Toned(row["damage"], Tone.BAD) if row["damage"] else placeholder_cell(row["placeholder"]),
    }


def _group_columns(*, several: bool) -> dict[str, Callable[[Row], Any]]:
    return {
        "GROUP": lambda row: row["group"],
        "STATE": lambda row: Toned(row["state"], _STATES[row["state"]]) if row["state"] in _STATES else row["state"],
        "BEFORE IT": lambda row: row["behind"],
        "STORE": lambda row: row["store"] if several else "",
        "TOPIC": lambda row: row["topic"],
        "QUEUE": lambda row: row["queueId"],
        "OFFSET": lambda row: row["queueOffset"],
        "GROUP'S OFFSET": lambda row: "none" if row["offset"] is None else row["offset"],
        "FILTERED": lambda row: "by its tag" if row["filtered"] else "",
        "COMES AGAIN": lambda row: row["visibleTime"] or row["visibleTimestamp"],
    }


_CLIENT_COLUMNS: dict[str, Callable[[Row], Any]] = {
    "CLIENT": lambda row: row["record"],
    "TIME": lambda row: row["time"],
    "GROUP": lambda row: row["group"],
    "SUCCESS": lambda row: _YES_NO[row["success"]],
    "TOOK": lambda row: None if row["costMs"] is None else duration(row["costMs"]),
    "RETRY": lambda row: row["retryTimes"],
    "STATE": lambda row: row["transactionState"],
}


def _print_search(document: Row) -> None:
    """Print what was searched in each store, the damage found, and all remarks."""
    several = len(document["stores"]) > 1
    for store in document["searched"]:
        where = f"{store['store']}: " if several else ""
        if store["byIndex"]:
            print_line_of_text(f"{where}the index was searched")
        for part in store["parts"]:
            first, last = part["firstStoreTime"], part["lastStoreTime"]
            times = f", stored from {first} to {last}" if first and last else ""
            print_line_of_text(f"{where}the log was read from offset {part['fromOffset']} to {part['toOffset']}{times}")
        _print_findings(store, where)
    for text in document["remarks"]:
        print_line_of_text(text)


def _print_findings(searched: Row, where: str) -> None:
    for finding in searched["findings"]:
        print_line_of_text(f"{where}damage: {finding['code']} at {finding['physicalOffset']}: {finding['detail']}")


def print_diagram(document: Row) -> None:
    """Print the diagram: an arrow for each stage, then an arrow for each group.

    Whatever a name holds, Mermaid shows it as text: a character that could mean something to Mermaid, Markdown or HTML
    is written as Mermaid's entity code, `#59;` for `;`.
    """
    names: dict[str, str] = {}
    lines = [
        f"{_alias(one.begin, names)}{'-->>' if one.is_dashed else '->>'}{_alias(one.end, names)}: "
        f"{_text(f'{one.text} ({one.place})')}"
        for one in arrows(document)
    ]
    print_line_of_text("sequenceDiagram")
    print_line_of_text(f"    %% {_text(document['verdict'])}")
    for name, alias in names.items():
        print_line_of_text(f"    participant {alias} as {_text(name)}")
    for line in lines:
        print_line_of_text(f"    {line}")


def _alias(name: str, names: dict[str, str]) -> str:
    return names.setdefault(name, f"p{len(names) + 1}")


def _text(text: str) -> str:
    return _NOT_PLAIN.sub(lambda match: f"#{ord(match[0])};", printable(text))
