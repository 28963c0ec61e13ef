"""The messages of one log that another one lacks, where the two differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.forensics.dump import Dump, Row
from rmqctl.forensics.message_filter import Filter
from rmqctl.format.body.bodies import NO_BODIES, Bodies
from rmqctl.format.message import ERASED, placeholder_code
from rmqctl.format.properties import UNIQ_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqctl.forensics.diff.log_diff import Range
    from rmqctl.store.read.read_only_store import ReadOnlyStore

_BY_FIELDS = ("queueId", "bornTimestamp", "bornHost", "bodyCrc")


class OnlyInA:
    """The messages in `ranges` that A has and B has not.

    A message is the same in both if topic and UNIQ_KEY are; without UNIQ_KEY, if queueId, producer and body are. B may
    have it at another place of the ranges. Placeholders of `rmqctl recover` are no messages.
    """

    def __init__(self, a: ReadOnlyStore, b: ReadOnlyStore, ranges: Sequence[Range], bodies: Bodies) -> None:
        self._stores, self._ranges, self._bodies = (a, b), ranges, bodies
        self.placeholders = 0  # of A
        self.erased: list[int] = []  # physical offsets of messages that `rmqctl erase` erased in B
        self.damaged = 0  # places of A: what it had there is not known

    def rows(self) -> Iterator[Row]:
        """Yield the rows of the messages, as dump's. Raises OSError."""
        of_a, of_b = self._stores
        known, erased = set[int](), set[int]()
        for row in (row for one in self._ranges for row in self._dump(of_b, one, NO_BODIES).rows()):
            known.add(hash(_identity(row)))
            if placeholder_code(row["preparedTransactionOffset"], row["properties"]) == ERASED:
                erased.add(row["physicalOffset"])
        for one in self._ranges:
            dump = self._dump(of_a, one, self._bodies)
            for row in dump.rows():
                if placeholder_code(row["preparedTransactionOffset"], row["properties"]) is not None:
                    self.placeholders += 1
                elif hash(_identity(row)) not in known:
                    if row["physicalOffset"] in erased:
                        self.erased.append(row["physicalOffset"])
                    yield row
            self.damaged += dump.damages

    @staticmethod
    def _dump(store: ReadOnlyStore, part: Range, bodies: Bodies) -> Dump:
        wanted = Filter(from_offset=part.begin, to_offset=part.end)
        return Dump(store, wanted, bodies=bodies, on_damage=lambda _: None)


def _identity(row: Row) -> tuple[object, ...]:
    unique = row["properties"].get(UNIQ_KEY)
    return row["topic"], *([unique] if unique else [row[name] for name in _BY_FIELDS])
