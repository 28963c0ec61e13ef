"""The life of a message as the arrows of a sequence diagram."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.format.timestamp import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

Row = dict[str, Any]
PRODUCER, BROKER = "producer", "broker"
_SENT = frozenset({"stored", "resent", "half", "delayed", "timer"})


class Arrow(NamedTuple):
    """A step from one participant to another."""

    begin: str
    end: str
    text: str
    place: str  # the queue and what is odd there
    is_dashed: bool  # nothing arrived, or it is the state of a group


def arrows(document: Row) -> Iterator[Arrow]:
    """Yield an arrow for each stage of a trace, then one for each group.

    `document` is that of `rmqctl trace`.
    """
    for row in document["stages"]:
        after = f" after {duration(row['deltaMs'])}" if row["deltaMs"] else ""
        replaced = f", placeholder: {row['placeholder']}" if row["placeholder"] else ""
        damage = f", {row['damage']}" if row["damage"] else replaced
        is_dashed = row["reachable"] is False or bool(row["damage"])
        yield Arrow(_source(row), row["topic"], f"{row['kind']}{after}", f"{_place(row)}{damage}", is_dashed)
    for row in document["groups"]:
        behind = f", {row['behind']} before it" if row["behind"] else ""
        yield Arrow(row["topic"], row["group"], row["state"], f"{_place(row)}{behind}", is_dashed=True)


def _place(row: Row) -> str:
    return f"queue {row['queueId']}, offset {row['queueOffset']}"


def _source(row: Row) -> str:
    """Return who caused a stage: the producer, a consumer group, or the broker."""
    is_sent = row["kind"] in _SENT and not row["reconsumeTimes"] and row["group"] is None
    return PRODUCER if is_sent else row["group"] or BROKER
