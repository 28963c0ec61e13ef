"""The output of `rmqctl du` for people."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rmqctl.cli.output.render import print_fields, print_line_of_text, print_table
from rmqctl.format.timestamp import rfc3339
from rmqctl.text import counted, shortened, size_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqctl.forensics.space.space import By

Row = dict[str, Any]
ROWS_SHOWN, NAMED, LOSSES_SHOWN = 30, 3, 10
BAR, BAR_WIDTH = "▏▎▍▌▋▊▉█", 12
DAY_MS = 86_400_000
_UNWRITTEN = {
    "blankBytes": "ends of log files",
    "damagedBytes": "damaged",
    "headerBytes": "DLedger's headers",
    "unwrittenBytes": "log files, not written yet",
}
_PARTS = {"commitlog": "commit log", "consumequeue": "queues", "index": "index", "config": "config"}


def print_space(document: Row, by: By) -> None:
    """Print the document of `rmqctl du`, the answer first."""
    print_line_of_text(_verdict(document))
    print()
    _print_rows(document, by)
    print()
    print_fields(_rest(document))
    forecast = document["forecast"]
    if forecast and forecast["unread"]:
        print()
        print_line_of_text("expires unread, unless it is consumed before:")
        rows = [
            [shortened(one["group"]), f"{one['messages']:,}", size_text(one["bytes"]), one["deleteTime"]]
            for one in forecast["unread"][:LOSSES_SHOWN]
        ]
        print_table(["GROUP", "MESSAGES", "BYTES", "AT"], rows)


def _verdict(document: Row) -> str:
    said = [f"{size_text(document['allocatedBytes'])} on disk"]
    first = next(iter(document["topics"]), None)
    in_log = document["commitLog"]["recordBytes"]
    if first and in_log:
        said.append(f"{shortened(first['topic'])} takes {_percent(first['bytes'], in_log)} of the messages' bytes")
    growth, forecast = document["bytesPerDay"], document["forecast"]
    a_day = f"{size_text(growth)} a day" if growth is not None else "too short a log to say how much comes in a day"
    if forecast is None:
        said.append(a_day)
    elif forecast["fullTimestamp"] is None:
        said.append(f"the disk does not fill at {a_day}" if growth is not None else a_day)
    else:
        days = max(forecast["fullTimestamp"] - time.time_ns() // 1_000_000, 0) / DAY_MS
        said.append(f"full in {counted(round(days), 'day')} at {a_day}")
    return "; ".join(said)


def _print_rows(document: Row, by: By) -> None:
    whole = document["commitLog"]["recordBytes"] or 1
    if by == "group":
        heads = ["GROUP", "UNREAD", "BYTES", "SHARE", "RETRIES", "DEAD LETTERS"]
        cells = [
            [
                shortened(row["group"]),
                *_counts(row, whole),
                size_text(row["retryBytes"]),
                size_text(row["deadLetterBytes"]),
            ]
            for row in document["groups"]
        ]
        _print_cells(heads, cells)
    elif by == "queue":
        cells = [[shortened(row["topic"]), row["queueId"], *_counts(row, whole)] for row in document["queues"]]
        _print_cells(["TOPIC", "QUEUE", "MESSAGES", "BYTES", "SHARE"], cells)
    elif by in ("day", "hour"):
        cells = [[_when(row["time"], by), *_counts(row, whole)] for row in document[f"{by}s"]]
        _print_cells([by.upper(), "MESSAGES", "BYTES", "SHARE"], cells)
    else:
        cells = [
            [shortened(row["topic"]), *_counts(row, whole), row["bytesPerDay"] and size_text(row["bytesPerDay"])]
            for row in document["topics"]
        ]
        _print_cells(["TOPIC", "MESSAGES", "BYTES", "SHARE", "A DAY"], cells)


def _counts(row: Row, whole: int) -> list[str]:
    share = f"{_percent(row['bytes'], whole):>5} {_bar(row['bytes'] / whole)}"
    return [f"{row['messages']:,}", size_text(row["bytes"]), share]


def _print_cells(heads: list[str], cells: list[list[Any]]) -> None:
    shown = cells[:ROWS_SHOWN] if len(cells) > ROWS_SHOWN + 1 else cells
    print_table(heads, shown)
    if len(shown) < len(cells):
        print_line_of_text(f"and {len(cells) - len(shown)} more: -o json has all of them")


def _rest(document: Row) -> Iterable[tuple[str, str]]:
    for key, name in _PARTS.items():
        yield name, _on_disk(document["parts"][key], document["allocatedParts"][key])
        if key == "commitlog":
            in_log = ((name, document["commitLog"][kind]) for kind, name in _UNWRITTEN.items())
            yield from ((f"  {name}", size_text(size)) for name, size in in_log if size)
    others = [
        f"{shortened(one['path'])} {_on_disk(one['bytes'], one['allocatedBytes'])}"
        for one in document["otherParts"]
        if one["bytes"]
    ]
    if others:
        yield "other", ", ".join(others[:NAMED]) + (f" and {len(others) - NAMED} more" if len(others) > NAMED else "")
    if document["largest"]:
        largest = [
            f"{size_text(one['size'])} in {shortened(one['topic'])} at {one['physicalOffset']}"
            for one in document["largest"][:NAMED]
        ]
        yield "largest messages", ", ".join(largest)
    dead = document["deadQueues"]
    if dead:
        named = ", ".join(f"{shortened(row['topic'])} {row['queueId']} ({_why_dead(row)})" for row in dead[:NAMED])
        more = f" and {len(dead) - NAMED} more" if len(dead) > NAMED else ""
        yield "dead queues", f"{size_text(sum(row['bytes'] for row in dead))} in {len(dead)}: {named}{more}"
    yield from _forecast_fields(document["forecast"])


def _on_disk(size: int, allocated: int) -> str:
    """Return the length of files, and their space on the disk if they have holes."""
    return size_text(size) if allocated >= size else f"{size_text(allocated)} on disk ({size_text(size)} long)"


def _forecast_fields(forecast: Row | None) -> Iterable[tuple[str, str]]:
    if forecast is None:
        return
    yield "disk", f"{size_text(forecast['diskUsedBytes'])} of {size_text(forecast['diskBytes'])} used"
    if forecast["keptBytes"] is not None and forecast["bytesPerDay"]:
        yield "retention", f"{forecast['reservedHours']} h at this rate are {size_text(forecast['keptBytes'])}"
    if forecast["fullTimestamp"] is not None:
        early = f"files younger than {forecast['reservedHours']} h are deleted"
        what = early if forecast["deletesEarly"] else "a broker takes no messages"
        yield "full", f"from {rfc3339(forecast['fullTimestamp'])} on, {what}"


def _why_dead(row: Row) -> str:
    why = [] if row["messages"] else ["no message left"]
    return ", ".join([*why, *([] if row["listed"] else ["no topic"])])


def _when(moment: str | None, by: By) -> str:
    return (moment[:10] if by == "day" else f"{moment[:10]} {moment[11:16]}") if moment else "no date"


def _percent(part: int, whole: int) -> str:
    percent = 100 * part / whole
    return "< 1 %" if 0 < percent < 1 else f"{percent:.0f} %"


def _bar(share: float) -> str:
    eighths = round(share * BAR_WIDTH * 8)
    return BAR[-1] * (eighths // 8) + (BAR[eighths % 8 - 1] if eighths % 8 else "")
