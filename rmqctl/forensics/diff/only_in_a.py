"""The messages of one log that another one lacks, where the two differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.forensics.dump import Dump, Row
from rmqctl.forensics.message_filter import Filter
from rmqctl.format.body.bodies import NO_BODIES, Bodies
from rmqctl.format.properties import UNIQ_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqctl.forensics.diff.log_diff import Range
    from rmqctl.store.read.read_only_store import ReadOnlyStore

_BY_FIELDS = ("queueId", "bornTimestamp", "bornHost", "bodyCrc")


def only_in_a(a: ReadOnlyStore, b: ReadOnlyStore, ranges: Sequence[Range], bodies: Bodies) -> Iterator[Row]:
    """Yield the rows of the messages in `ranges` that A has and B has not, as dump's.

    A message is the same in both if topic and UNIQ_KEY are; without UNIQ_KEY, if queueId, producer and body are. B may
    have it at another place of the ranges.
    """
    of_b = {_identity(row) for row in _rows(b, ranges, NO_BODIES)}
    for row in _rows(a, ranges, bodies):
        if _identity(row) not in of_b:
            yield row


def _rows(store: ReadOnlyStore, ranges: Sequence[Range], bodies: Bodies) -> Iterator[Row]:
    for begin, end, _ in ranges:
        wanted = Filter(from_offset=begin, to_offset=end)
        yield from Dump(store, wanted, bodies=bodies, on_damage=lambda _: None).rows()


def _identity(row: Row) -> tuple[object, ...]:
    unique = row["properties"].get(UNIQ_KEY)
    return row["topic"], *([unique] if unique else [row[name] for name in _BY_FIELDS])
