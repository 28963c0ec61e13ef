"""A trace as a sequence diagram in Mermaid's language.

Whatever a name holds, Mermaid shows it as text: a character that could mean something to Mermaid, Markdown or HTML is
written as Mermaid's entity code, `#59;` for `;`.
"""

from __future__ import annotations

import re
from typing import Any

from rmqctl.cli.output.printable import printable
from rmqctl.cli.output.render import print_line_of_text
from rmqctl.format.timestamp import duration

Row = dict[str, Any]
_NOT_PLAIN = re.compile(r"[^\w ,./()-]")
PRODUCER, BROKER = "producer", "broker"
_SENT = frozenset({"stored", "resent", "half", "delayed", "timer"})


def print_diagram(document: Row) -> None:
    """Print the diagram: an arrow for each stage, then an arrow for each group."""
    names: dict[str, str] = {}
    lines = [_stage_line(row, names) for row in document["stages"]]
    lines += [_group_line(row, names) for row in document["groups"]]
    print_line_of_text("sequenceDiagram")
    print_line_of_text(f"    %% {_text(document['verdict'])}")
    for name, alias in names.items():
        print_line_of_text(f"    participant {alias} as {_text(name)}")
    for line in lines:
        print_line_of_text(f"    {line}")


def _alias(name: str, names: dict[str, str]) -> str:
    return names.setdefault(name, f"p{len(names) + 1}")


def _stage_line(row: Row, names: dict[str, str]) -> str:
    begin = _alias(_source(row), names)
    end = _alias(row["topic"], names)
    after = f" after {duration(row['deltaMs'])}" if row["deltaMs"] else ""
    place = f"queue {row['queueId']}, offset {row['queueOffset']}"
    arrow = "-->>" if row["reachable"] is False or row["damage"] else "->>"
    replaced = f", placeholder: {row['placeholder']}" if row["placeholder"] else ""
    damage = f", {row['damage']}" if row["damage"] else replaced
    return f"{begin}{arrow}{end}: " + _text(f"{row['kind']}{after} ({place}{damage})")


def _source(row: Row) -> str:
    """Return who caused a stage: the producer, a consumer group, or the broker."""
    is_sent = row["kind"] in _SENT and not row["reconsumeTimes"] and row["group"] is None
    return PRODUCER if is_sent else row["group"] or BROKER


def _group_line(row: Row, names: dict[str, str]) -> str:
    begin, end = _alias(row["topic"], names), _alias(row["group"], names)
    behind = f", {row['behind']} before it" if row["behind"] else ""
    place = f"queue {row['queueId']}, offset {row['queueOffset']}"
    return f"{begin}-->>{end}: " + _text(f"{row['state']} ({place}{behind})")


def _text(text: str) -> str:
    return _NOT_PLAIN.sub(lambda match: f"#{ord(match[0])};", printable(text))
